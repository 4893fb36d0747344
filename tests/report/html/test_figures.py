"""The same charts as pictures: three formats, the same bytes every time, names as they are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from matplotlib.colors import to_hex

from likelyshot.errors import InputError
from likelyshot.report.charts import COLOURS, Bars, Chart, Heat, Intervals, Line, Panel, Points, Steps
from likelyshot.report.explore_page import write_explore_figures
from likelyshot.report.figures import draw_chart, write_figure, write_figures

NAMES = ("features", "families", "behind", "rates", "scores", "correlations", "agreement")
SIGNS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def written(exploration, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("likelyshot.report.figures.FORMATS", ("svg",))  # a PDF takes three times as long
        return write_explore_figures(tmp_path_factory.mktemp("figures") / "new", exploration)


def texts(path):
    return ["".join(node.itertext()) for node in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_every_figure_is_drawn(written):
    assert [path.name for path in written] == [f"{name}.svg" for name in NAMES]
    assert all(path.read_bytes().startswith(SIGNS["svg"]) for path in written)


def test_hostile_names_are_text_and_no_mathematics(written, exploration):
    found = texts(next(path for path in written if path.name == "rates.svg"))
    for name in exploration["classes"]:
        assert name in found


def test_three_formats_and_the_same_data_give_the_same_bytes(tmp_path):
    chart = Chart("c", "", "", [Panel("x", "y", [Steps("a", [0, 1], [1]), Line("_b", [0, 1], [0, 1], 1)])])
    first, second = (write_figures(tmp_path / name, [chart]) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert [path.name for path in first] == [f"c.{suffix}" for suffix in SIGNS]
    assert all(path.read_bytes().startswith(SIGNS[path.suffix[1:]]) for path in first)
    assert {"a", " _b"} <= set(texts(first[0]))  # an underscore does not hide a name from the legend


def test_letters_the_font_lacks_and_control_characters_do_not_stop_it(tmp_path):
    heat = Heat("u", ["鳥", "a\x00b"], ["1"], [[None], [1.0]])
    svg, *_ = write_figures(tmp_path, [Chart("c", "", "", [Panel("", "", [heat])])])
    assert {"鳥", "a b"} <= set(texts(svg))


def test_lines_have_the_colours_of_the_page():
    panel = Panel("x", "y", [Line(str(i), [0, 1], [0, i], i) for i in range(5)])
    lines = draw_chart(Chart("c", "", "", [panel])).axes[0].lines
    assert tuple(line.get_color() for line in lines) == COLOURS
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == 5


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write_figures(tmp_path / "file", [])


def test_lines_beyond_the_palette_differ_by_their_dashes():
    panel = Panel("x", "y", [Line(str(i), [0, 1], [0, i], i) for i in range(25)])
    lines = draw_chart(Chart("c", "", "", [panel])).axes[0].lines
    assert len({f"{line.get_color()} {line._dash_pattern}" for line in lines}) == 25


def test_intervals_are_where_their_values_are():
    marks = [
        Intervals("a", ["x", "y", "z"], [1.0, None, 3.0], [0.5, 0.0, 0.25], 0),
        Intervals("b", ["x", "y", "z"], [None, 2.0, 4.0], [0.0, 0.1, 0.1], 2, hollow=True),
    ]
    axes = draw_chart(Chart("c", "", "", [Panel("x", "", marks)])).axes[0]
    first, second = axes.containers
    assert first.lines[2][0].get_segments()[0].tolist() == [[0.5, 0.0], [1.5, 0.0]]
    assert first.lines[2][0].get_segments()[-1][:, 0].tolist() == [2.75, 3.25]
    assert second.lines[0].get_ydata().tolist() == pytest.approx([0, 1, 2.11])
    assert first.lines[0].get_ydata()[2] == pytest.approx(1.89)  # beside the other
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y", "z"]
    assert axes.yaxis_inverted()
    assert [line.lines[0].get_markerfacecolor() for line in axes.containers] == [COLOURS[0], "white"]
    assert {line.lines[0].get_marker() for line in axes.containers} == {"o", "s"}


def test_points_on_a_logarithmic_axis_have_numbers_and_chosen_labels(tmp_path):
    points = Points("p", [0.05, 30.0], [1.0, 2.0], [0.1, 0.1], ["one $x$", "two"], [True, False])
    chart = Chart("c", "", "", [Panel("ms", "y", [points], log_x=True)])
    found = texts(write_figure(tmp_path / "c.svg", chart))
    assert {"0.1", "1", "10", "one $x$"} <= set(found)
    assert "two" not in found
    assert not any("mathdefault" in text for text in found)


@pytest.mark.parametrize(("right", "side", "across"), [(False, "right", -4), (True, "left", 4)])
def test_a_label_stands_on_the_side_of_its_point_that_is_free(right, side, across):
    points = Points("p", [1.0], [1.0], [0.1], ["one"], [True], right=right)
    (label,) = draw_chart(Chart("c", "", "", [Panel("", "", [points])])).axes[0].texts
    assert (label.get_ha(), label.xyann) == (side, (across, 4))


def test_the_values_of_bars_have_as_many_decimals_as_each_other():
    axes = draw_chart(Chart("c", "", "", [Panel("", "", [Bars("", ["a", "b", "c"], [64.0, 54.5, 8.25])])])).axes[0]
    assert [text.get_text() for text in axes.texts] == ["64.0", "54.5", "8.2"]


def test_bars_have_one_colour_or_one_each():
    for colour, expected in ((1, [COLOURS[1]] * 2), ((2, 5), [COLOURS[2], COLOURS[0]])):
        axes = draw_chart(Chart("c", "", "", [Panel("", "", [Bars("", ["a", "b"], [1, 2], colour)])])).axes[0]
        assert [to_hex(bar.get_facecolor()).upper() for bar in axes.patches] == expected


def test_only_histograms_begin_at_zero():
    line, steps = Line("a", [0, 1], [5, 6]), Steps("b", [0, 1], [5])
    from_zero = [
        draw_chart(Chart("c", "", "", [Panel("", "", [mark])])).axes[0].get_ylim()[0] for mark in (line, steps)
    ]
    assert from_zero[0] > 4
    assert from_zero[1] == 0


def test_one_figure_in_the_format_of_its_suffix(tmp_path):
    chart = Chart("c", "", "", [Panel("x", "y", [Line("a", [0, 1], [1, 2], 0, [0.1, 0.2])])])
    for suffix, sign in SIGNS.items():
        assert write_figure(tmp_path / f"c.{suffix}", chart).read_bytes().startswith(sign)
    with pytest.raises(InputError, match="got 'c'"):
        write_figure(tmp_path / "c", chart)

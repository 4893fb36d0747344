"""The same charts as pictures: three formats, the same bytes every time, names as they are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from likelyshot.charts import COLOURS, Chart, Heat, Line, Panel, Steps
from likelyshot.errors import InputError
from likelyshot.explore_page import write_explore_figures
from likelyshot.figures import draw, write_figures

NAMES = ("features", "families", "behind", "rates", "scores", "correlations", "agreement")
SIGNS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def written(exploration, tmp_path_factory):
    return write_explore_figures(tmp_path_factory.mktemp("figures") / "new", exploration)


def texts(path):
    return ["".join(node.itertext()) for node in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_every_figure_comes_in_three_formats(written):
    assert [path.name for path in written] == [f"{name}.{suffix}" for name in NAMES for suffix in SIGNS]
    for path in written:
        assert path.read_bytes().startswith(SIGNS[path.suffix[1:]])


def test_hostile_names_are_text_and_no_mathematics(written, exploration):
    found = texts(next(path for path in written if path.name == "rates.svg"))
    for name in exploration["classes"]:
        assert name in found


def test_the_same_data_give_the_same_bytes(tmp_path):
    chart = Chart("c", "", "", [Panel("x", "y", [Steps("a", [0, 1], [1]), Line("_b", [0, 1], [0, 1], 1)])])
    first, second = (write_figures(tmp_path / name, [chart]) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert {"a", " _b"} <= set(texts(first[0]))  # an underscore does not hide a name from the legend


def test_letters_the_font_lacks_and_control_characters_do_not_stop_it(tmp_path):
    heat = Heat("u", ["鳥", "a\x00b"], ["1"], [[None], [1.0]])
    svg, *_ = write_figures(tmp_path, [Chart("c", "", "", [Panel("", "", [heat])])])
    assert {"鳥", "a b"} <= set(texts(svg))


def test_lines_have_the_colours_of_the_page():
    panel = Panel("x", "y", [Line(str(i), [0, 1], [0, i], i) for i in range(5)])
    lines = draw(Chart("c", "", "", [panel])).axes[0].lines
    assert tuple(line.get_color() for line in lines) == COLOURS
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == 5


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        write_figures(tmp_path / "file", [])

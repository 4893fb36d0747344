"""Pictures of a sweep."""

from __future__ import annotations

import pytest

from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import Sweep
from likelyshot.report.sweep_chart import draw_sweep, sweep_chart


def made(grid: dict, shots: range) -> Sweep:
    points = [{}]
    for key, values in grid.items():
        points = [{**point, key: value} for point in points for value in values]
    rows = [
        {"point": point, "shots": count, "mean": 0.5 + 0.01 * count + 0.001 * i, "ci95": 0.01, "ways": 5, "tasks": 9}
        for i, point in enumerate(points)
        for count in shots
    ]
    return Sweep("mll", grid, rows, {})


def test_every_number_of_shots_is_drawn_even_beyond_the_palette(tmp_path):
    path = draw_sweep(made({"lambda_max": [10.0, 20.0]}, range(1, 9)), tmp_path / "s.svg")
    text = path.read_text()
    assert all(f"{count}-shot" in text for count in range(1, 9))


@pytest.mark.parametrize("grid", [{"marginals": ["uniform", "estimated"]}, {"eta": [0.1, 0.5], "iterations": [1, 5]}])
def test_words_and_pairs_of_parameters_are_drawn(grid, tmp_path):
    text = draw_sweep(made(grid, range(1, 8)), tmp_path / "s.svg").read_text()
    for key, values in grid.items():
        assert key in text
        assert all(str(value) in text for value in values)


def test_curves_are_in_percent_with_their_intervals():
    chart = sweep_chart(made({"lambda_max": [10.0, 20.0]}, range(1, 3)), "lambda")
    one, two = chart.panels[0].marks
    assert (one.x, one.half) == ([10.0, 20.0], [1.0, 1.0])
    assert one.y == pytest.approx([51, 51.1])
    assert two.y == pytest.approx([52, 52.1])
    assert (one.name, two.name, chart.name) == ("1-shot", "2-shot", "lambda")
    assert "Best point, averaged over the shots: lambda_max = 20." in chart.caption


def test_a_heat_map_has_the_first_parameter_down():
    first, second = sweep_chart(made({"eta": [0.1, 0.5, 0.9], "iterations": [1, 5]}, range(1, 3))).panels
    heat = first.marks[0]
    assert (heat.rows, heat.columns, first.x, first.y) == (["0.1", "0.5", "0.9"], ["1", "5"], "iterations", "eta")
    assert [value for row in heat.values for value in row] == pytest.approx([51, 51.1, 51.2, 51.3, 51.4, 51.5])
    assert second.marks[0].values[0][0] == pytest.approx(52)
    assert heat.write
    assert not sweep_chart(made({"a": [1], "b": list(range(30))}, range(1, 2))).panels[0].marks[0].write


def test_three_parameters_and_unknown_formats_are_refused(tmp_path):
    with pytest.raises(InputError, match="got 3: sweep fewer"):
        sweep_chart(made({"a": [1], "b": [1], "c": [1]}, range(1, 2)))
    with pytest.raises(InputError, match="svg, pdf, png"):
        draw_sweep(made({"a": [1]}, range(1, 2)), tmp_path / "s.gif")

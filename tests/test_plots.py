"""Pictures of a sweep."""

from __future__ import annotations

import pytest

from likelyshot.plots import draw_sweep
from likelyshot.sweep import Sweep


def made(grid: dict, shots: range) -> Sweep:
    points = [{}]
    for key, values in grid.items():
        points = [{**point, key: value} for point in points for value in values]
    rows = [
        {"point": point, "shots": count, "mean": 0.5 + 0.01 * count, "ci95": 0.01, "ways": 5, "tasks": 9}
        for count in shots
        for point in points
    ]
    return Sweep("mll", grid, rows, {})


def test_every_number_of_shots_is_drawn_even_beyond_the_palette(tmp_path):
    path = draw_sweep(made({"lambda_max": [10.0, 20.0]}, range(1, 9)), tmp_path / "s.svg")
    text = path.read_text()
    assert all(f"{count}-shot" in text for count in range(1, 9))


@pytest.mark.parametrize("grid", [{"marginals": ["uniform", "estimated"]}, {"eta": [0.1, 0.5], "iterations": [1, 5]}])
def test_words_and_pairs_of_parameters_are_drawn(grid, tmp_path):
    text = draw_sweep(made(grid, range(1, 3)), tmp_path / "s.svg").read_text()
    for key, values in grid.items():
        assert key in text
        assert all(str(value) in text for value in values)

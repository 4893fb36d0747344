from __future__ import annotations

import functools
import json

import pytest

from hostile import variants
from likelyshot import Balanced, evaluate, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import Sweep, sweep
from likelyshot.methods import METHODS
from likelyshot.report.sweep_chart import draw_sweep


@pytest.fixture(scope="module")
def tasks(features):
    return [sample_tasks(features.labels, n_tasks=20, ways=3, shots=s, query=Balanced(4), seed=0) for s in (1, 3)]


@pytest.fixture(scope="module")
def swept(features, tasks):
    return sweep("mll", {"lambda_max": [2.0, 20.0, 80.0]}, features, tasks)


def test_every_point_is_an_evaluation(swept, features, tasks):
    assert len(swept.rows) == 6
    row = next(row for row in swept.rows if row["point"] == {"lambda_max": 80.0} and row["shots"] == 3)
    alone = evaluate(functools.partial(METHODS["mll"], lambda_max=80.0), features, tasks[1])
    assert row["mean"] == alone.mean


def test_best_is_the_highest_mean_over_the_shots(swept):
    means = {value: swept.mean_at({"lambda_max": value}) for value in (2.0, 20.0, 80.0)}
    assert swept.best() == {"lambda_max": max(means, key=means.get)}


def test_a_sweep_is_saved_with_its_grid_and_best(swept, tmp_path):
    stored = json.loads(swept.save(tmp_path / "s.json").read_text())
    assert stored["grid"] == {"lambda_max": [2.0, 20.0, 80.0]}
    assert stored["best"] == swept.best()
    assert len(stored["rows"]) == 6


def test_one_parameter_is_drawn_as_curves_two_as_a_heat_map(swept, features, tasks, tmp_path):
    curves = draw_sweep(swept, tmp_path / "curves.svg").read_text()
    assert "lambda_max" in curves
    assert "3-shot" in curves
    two = sweep("mll_transductive", {"iterations": [0, 2], "eta": [0.3, 0.7]}, features, tasks)
    picture = draw_sweep(two, tmp_path / "map.svg").read_text()
    assert "iterations" in picture
    assert "eta" in picture
    assert f"{100 * two.rows[0]['mean']:.1f}" in picture
    assert draw_sweep(swept, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_other_documents_are_refused_or_can_be_used(swept, tmp_path):
    path = tmp_path / "s.json"
    document = json.loads(swept.save(path).read_text())
    assert Sweep.load(path) == swept
    refused = 0
    for place, content in variants(document):
        path.write_bytes(content)
        try:
            loaded = Sweep.load(path)
        except InputError:
            refused += 1
        else:
            assert 0 <= loaded.mean_at(loaded.best()) <= 1, place
    assert refused > 100
    document["grid"] = {str(number): [1.0] * 100 for number in range(100)}  # 10^200 points
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="another number of rows"):
        Sweep.load(path)

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from likelyshot import Balanced, Result, evaluate, sample_tasks
from likelyshot.data.results import mean_ci95
from likelyshot.errors import InputError
from likelyshot.methods import METHODS


@pytest.fixture(scope="module")
def pair(features):
    tasks = sample_tasks(features.labels, n_tasks=50, ways=4, shots=1, query=Balanced(5), seed=0)
    return [evaluate(METHODS[name], features, tasks) for name in ("mll", "euclidean")]


def test_interval_is_the_normal_one():
    values = np.random.default_rng(0).normal(size=1000)
    mean, half = mean_ci95(values)
    low, high = stats.norm.interval(0.95, loc=mean, scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-5)


def test_one_task_has_no_interval():
    assert mean_ci95(np.array([0.5])) == (0.5, 0.0)


def test_differences_are_paired(pair):
    found = pair[0].minus(pair[1])
    gaps = pair[0].accuracy - pair[1].accuracy
    assert found.mean == pytest.approx(gaps.mean())
    assert found.ci95 == pytest.approx(1.96 * gaps.std(ddof=1) / np.sqrt(50))
    assert found.significant == (abs(found.mean) > found.ci95)
    assert str(pair[0].minus(pair[0])) == "+0.00 ± 0.00"


def test_differences_over_other_tasks_are_refused(pair, features):
    tasks = sample_tasks(features.labels, n_tasks=50, ways=4, shots=1, query=Balanced(5), seed=1)
    with pytest.raises(InputError, match="different tasks"):
        pair[0].minus(evaluate(METHODS["mll"], features, tasks))


def test_the_first_tasks_compare_with_a_run_over_fewer(pair, features):
    tasks, few = pair[0].config["tasks"], 5
    part = pair[0].first(few, "digest of the first five")
    assert part.mean == pair[0].accuracy[:few].mean()
    assert (part.config["tasks"], part.config["tasks_digest"]) == (few, "digest of the first five")
    assert part.seconds == pair[0].seconds * few / tasks
    assert len(pair[0].accuracy) == tasks


def test_results_survive_the_disk(pair, tmp_path):
    loaded = Result.load(pair[0].save(tmp_path / "r.json"))
    assert np.array_equal(loaded.accuracy, pair[0].accuracy)
    assert loaded.row() == pair[0].row()
    assert loaded.minus(pair[1]) == pair[0].minus(pair[1])


def test_the_row_is_flat_and_complete(pair):
    row = json.loads(json.dumps(pair[0].row()))
    wanted = [
        "method",
        "ways",
        "shots",
        "query",
        "tasks",
        "seed",
        "mean",
        "ci95",
        "balanced_accuracy",
        "macro_f1",
        "seconds",
    ]
    assert set(wanted) <= row.keys()
    assert row["query"] == "balanced"
    assert row["per_class"] == 5
    assert 0 < row["mean"] <= 1


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "other"}', "\x00"])
def test_a_foreign_file_is_refused(tmp_path, content):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(InputError, match="expected a result"):
        Result.load(tmp_path / "r.json")
    with pytest.raises(InputError, match="cannot read"):
        Result.load(tmp_path)

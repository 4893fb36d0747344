from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from hostile import variants
from likelyshot import Balanced, Features, Result, evaluate, sample_tasks
from likelyshot.data.results import UNKNOWN, Difference, environment, half_width, mean_ci95, with_interval
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


def test_one_task_says_nothing_of_how_tasks_vary():
    assert mean_ci95(np.array([0.5])) == (0.5, UNKNOWN)
    assert (with_interval(0.5, UNKNOWN), half_width(UNKNOWN)) == ("50.00", 0)
    assert not Difference(0.1, UNKNOWN).significant


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
    draw = {"ways": 4, "shots": 1, "query": Balanced(5)}
    part = evaluate(METHODS["mll"], features, sample_tasks(features.labels, n_tasks=5, seed=0, **draw))
    assert part.shared_tasks(pair[1]) == pair[1].shared_tasks(part) == 5
    assert part.minus(pair[1]).mean == pytest.approx((pair[0].accuracy - pair[1].accuracy)[:5].mean())
    for others in (
        sample_tasks(features.labels, n_tasks=5, seed=1, **draw),
        sample_tasks(features.labels, n_tasks=10, seed=0, **draw)[5:],
        sample_tasks(features.labels, n_tasks=10, seed=0, **draw)[::2],
    ):
        other = evaluate(METHODS["mll"], features, others)
        assert other.shared_tasks(pair[1]) == 0
        with pytest.raises(InputError, match="different tasks"):
            pair[1].minus(other)
    labels = features.labels.roll(1)
    moved = Features(features.vectors, labels, features.classes, {})
    other = evaluate(METHODS["mll"], moved, sample_tasks(labels, n_tasks=5, seed=0, **draw))
    assert other.shared_tasks(pair[1]) == 0


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


def test_other_documents_are_refused_or_can_be_used(pair, tmp_path):
    path = tmp_path / "r.json"
    document = json.loads(pair[0].save(path).read_text())
    for tasks in document["per_task"].values():
        del tasks[3:]
    refused = 0
    for place, content in variants(document):
        path.write_bytes(content)
        try:
            result = Result.load(path)
        except InputError:
            refused += 1
            continue
        assert np.isfinite([result.row()["mean"], result.ece]).all(), place
        assert str(result.minus(result)) == "+0.00 ± 0.00", place
        assert result.shared_tasks(pair[1]) in (0, 3), place
    assert refused > 500
    with pytest.raises(InputError, match="is a folder"):
        Result.load(tmp_path)


def test_the_cores_that_may_be_used_are_recorded(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3}, raising=False)
    assert environment()["cores"] == 1

"""Runs are read from folders and files; what is none of ours is passed over or refused."""

from __future__ import annotations

import json

import pytest

from likelyshot import Balanced, evaluate, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import sweep
from likelyshot.methods import METHODS
from likelyshot.report.runs import load_runs


@pytest.fixture(scope="module")
def tasks(features):
    return sample_tasks(features.labels, n_tasks=12, ways=4, shots=1, query=Balanced(5), seed=0)


@pytest.fixture
def run(features, tasks, tmp_path):
    (tmp_path / "cells").mkdir()
    evaluate(METHODS["mll"], features, tasks).save(tmp_path / "mll.json")
    evaluate(METHODS["cosine"], features, tasks).save(tmp_path / "cells" / "cosine.json")
    sweep("mll", {"lambda_max": [10.0, 20.0]}, features, [tasks]).save(tmp_path / "sweep.json")
    document = {"command": ["evaluate", "F"], "environment": {"torch": "2"}, "rows": []}
    (tmp_path / "evaluate.json").write_text(json.dumps(document))
    return tmp_path


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_with_all_that_is_in_it(run):
    (run / "calibration.json").write_text('{"format": "likelyshot.calibration/1"}')
    (run / "notes.json").write_text("not JSON")
    (run / "list.json").write_text("[1]")
    (run / "binary.json").write_bytes(b"\xff\xfe")
    found = load_runs([run])
    assert [result.method for result in found.results] == ["mll", "cosine"]
    assert [swept.method for swept in found.sweeps] == ["mll"]
    assert [file.name for file in found.damaged] == ["binary.json", "list.json", "notes.json"]
    assert found.made_by == [{"run": run.name, "command": ["evaluate", "F"], "environment": {"torch": "2"}}]


def test_what_a_run_does_not_tell_is_left_out(run):
    change(run / "evaluate.json", command="evaluate F", environment=None)
    assert load_runs([run]).made_by == [{"run": run.name, "command": [], "environment": {}}]


def test_single_files_and_the_same_run_twice(run):
    assert len(load_runs([run / "mll.json", run / "sweep.json"]).results) == 1
    assert len(load_runs([run, run]).results) == 2


def test_runs_without_results_are_refused(run, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, match in (
        (empty, "found none"),
        (run / "evaluate.json", "found none"),
        (tmp_path / "missing", "there is no"),
    ):
        with pytest.raises(InputError, match=match):
            load_runs([run, path])
    (empty / "notes.json").write_text("[")
    with pytest.raises(InputError, match="expected JSON"):
        load_runs([empty / "notes.json"])
    (empty / "old.json").write_text('{"format": "likelyshot.result/1"}')
    with pytest.raises(InputError, match="1 results of an older format"):
        load_runs([empty])


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {}},
        {"per_task": {name: [] for name in ("accuracy", "balanced_accuracy", "macro_f1", "largest_share")}},
        {"per_task": {name: [float("nan")] for name in ("accuracy", "balanced_accuracy", "macro_f1", "largest_share")}},
    ],
)
def test_a_damaged_result_is_refused(run, changes):
    change(run / "mll.json", **changes)
    with pytest.raises(InputError, match="damaged"):
        load_runs([run])


@pytest.mark.parametrize(
    "query", [{}, {"plan": "balanced"}, {"plan": "spiral", "total": 5}, {"plan": "balanced", "x": 1}]
)
def test_an_unknown_query_plan_is_refused(run, query):
    config = json.loads((run / "mll.json").read_text())["config"]
    change(run / "mll.json", config={**config, "query": query})
    with pytest.raises(InputError, match="damaged"):
        load_runs([run])


@pytest.mark.parametrize(
    "changes", [{"rows": []}, {"rows": [{"point": {}}]}, {"grid": {"lambda_max": [1.0]}}, {"grid": []}]
)
def test_a_damaged_sweep_is_refused(run, changes):
    change(run / "sweep.json", **changes)
    with pytest.raises(InputError, match="damaged"):
        load_runs([run])


def test_features_that_are_no_records_are_refused(run):
    config = json.loads((run / "mll.json").read_text())["config"]
    change(run / "mll.json", config={**config, "features": ["f.npz"]})
    with pytest.raises(InputError, match="damaged"):
        load_runs([run])

"""Runs are read from folders and files; other files are skipped, and damaged ones refused, each in a sentence."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import pytest

from hostile import variants
from likelyshot import Balanced, evaluate, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import sweep
from likelyshot.methods import METHODS
from likelyshot.report import compare_results, load_runs, report_page


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
    (run / "list.json").write_text("[1]")
    (run / "other.json").write_text('{"format": 7}')
    loaded = load_runs([run])
    assert [result.method for result in loaded.results] == ["mll", "cosine"]
    assert [swept.method for swept in loaded.sweeps] == ["mll"]
    assert loaded.made_by == [{"run": run.name, "command": ["evaluate", "F"], "environment": {"torch": "2"}}]


def test_a_run_need_not_record_its_command(run):
    change(run / "evaluate.json", command="evaluate F", environment=None)
    assert load_runs([run]).made_by == [{"run": run.name, "command": [], "environment": {}}]


def test_single_files_and_the_same_run_twice(run):
    assert len(load_runs([run / "mll.json", run / "sweep.json"]).results) == 1
    assert len(load_runs([run, run]).results) == 2


def problems(*paths):
    with pytest.raises(InputError) as caught:
        load_runs(paths)
    return str(caught.value).splitlines()


def test_runs_without_results_are_refused(run, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    sentences = problems(run, empty, run / "evaluate.json", tmp_path / "missing")
    assert len(sentences) == 3
    assert f"expected results of likelyshot in {empty}, but found none" in sentences[0]
    assert f"expected results of likelyshot in {run / 'evaluate.json'}, but found none" in sentences[1]
    assert sentences[2] == f"there is no {tmp_path / 'missing'}: check the path"


def test_every_damaged_or_older_file_has_its_sentence(run):
    (run / "binary.json").write_bytes(b"\xff\xfe")
    (run / "deep.json").write_text("[" * 100_000)
    (run / "folder.json").mkdir()
    os.mkfifo(run / "pipe.json")
    (run / "old.json").write_text('{"format": "likelyshot.result/1"}')
    change(run / "mll.json", config={})
    change(run / "sweep.json", rows=[])
    config = json.loads((run / "cells" / "cosine.json").read_text())["config"]
    change(run / "cells" / "cosine.json", config={**config, "query": {"plan": "spiral"}})
    sentences = problems(run)
    names = ["binary", "deep", "folder", "mll", "old", "pipe", "sweep", "cosine"]
    assert len(sentences) == len(names)
    for name, sentence in zip(names, sentences, strict=True):
        assert f"{name}.json" in sentence
        assert "Traceback" not in sentence
    assert "but this version reads likelyshot.result/2: make it again" in sentences[4]


@pytest.mark.parametrize("name", ["mll.json", "sweep.json"])
def test_a_change_in_any_place_is_harmless_or_refused(run, name):
    file, other = run / name, run / "changed.json"
    for where, text in variants(json.loads(file.read_text())):
        other.write_bytes(text)
        try:
            loaded = load_runs([other])
        except InputError:
            continue
        data = compare_results(loaded.results, loaded.sweeps, loaded.made_by)
        assert json.dumps(asdict(report_page(data, command="c")), allow_nan=False), where

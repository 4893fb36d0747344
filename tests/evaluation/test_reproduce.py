from __future__ import annotations

import functools
import json

import pytest

from likelyshot.data.results import Result
from likelyshot.evaluation import published
from likelyshot.evaluation import reproduce as module
from likelyshot.methods import METHODS, facts_of, variants

CELLS = sum(len(rows) for _, rows in module.protocols(full=False).values()) * len(module.SHOTS)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "LAMBDA_MAX", (40.0, 80.0))
    monkeypatch.setattr("likelyshot.methods.binding.CALIBRATION_TASKS", 20)
    monkeypatch.setattr(module, "CALIBRATION_TASKS", 20)


def test_a_second_run_takes_the_finished_cells(small, tmp_path, monkeypatch):
    first = module.reproduce(tmp_path, n_tasks=15)
    assert first.reused == 0
    assert len(first.results) == CELLS
    assert first.lambda_max in (40.0, 80.0)
    names = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert {
        "reproduce.json",
        "lambda_max.json",
        "lambda_max.svg",
        "imbalanced_1shot_mll_transductive.json",
    } <= names
    (tmp_path / "cells" / "inductive_1shot_mll.json").write_text('{"half": ')
    calls = []
    monkeypatch.setattr(module, "evaluate", lambda *a, **k: calls.append(a) or evaluate(*a, **k))
    second = module.reproduce(tmp_path, n_tasks=15)
    assert second.reused == CELLS - 1
    assert len(calls) == 1
    for key, result in first.results.items():
        assert second.results[key].mean == result.mean
    rows = json.loads((tmp_path / "reproduce.json").read_text())["rows"]
    assert len(rows) == CELLS


evaluate = module.evaluate


def test_other_settings_or_fresh_compute_anew(small, tmp_path):
    module.reproduce(tmp_path, n_tasks=10)
    assert module.reproduce(tmp_path, n_tasks=10, seed=1).reused == 0
    assert module.reproduce(tmp_path, n_tasks=10, seed=1, fresh=True).reused == 0
    assert module.reproduce(tmp_path, n_tasks=10, seed=1).reused == CELLS


def test_a_new_default_of_a_method_computes_its_cells_anew(small, tmp_path, monkeypatch):
    module.reproduce(tmp_path, n_tasks=10)
    monkeypatch.setitem(METHODS, "laplacianshot", functools.partial(METHODS["laplacianshot"], lam=0.5))
    assert module.reproduce(tmp_path, n_tasks=10).reused == CELLS - len(module.SHOTS)


def test_stopped_in_the_middle_it_goes_on(small, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(*arguments, **options)

    monkeypatch.setattr(module, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.reproduce(tmp_path, n_tasks=10)
    for path in (tmp_path / "cells").iterdir():
        Result.load(path)
    assert module.reproduce(tmp_path, n_tasks=10).reused == 3


def test_progress_reaches_the_announced_total(small, tmp_path):
    for _ in range(2):
        done = []
        module.reproduce(tmp_path, n_tasks=10, progress=done.append)
    fitted = 10 * CELLS  # tasks that temperatures are fitted on
    assert sum(done) == 10 * CELLS + fitted + 10 * 2 * 2  # the second run calibrates nothing


def test_full_has_every_method_and_slow_ones_on_fewer_tasks(small, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SLOW_TASKS", 2)
    monkeypatch.setattr(module, "SHOTS", (1,))
    whole = module.protocols(full=True)
    monkeypatch.setattr(module, "protocols", lambda full: {"imbalanced": whole["imbalanced"]})
    done = []
    run = module.reproduce(tmp_path, n_tasks=3, full=True, progress=done.append)
    assert {result.method for result in run.results.values()} == set(METHODS)
    assert set(variants()) < {row for _, _, row in run.results}
    assert sum(done) == module.total_work(3, full=True)
    for (_, _, row), result in run.results.items():
        assert len(result.accuracy) == (2 if row in METHODS and facts_of(METHODS[row]).slow else 3)
        gap = run.difference("imbalanced", 1, row, "euclidean")
        if row == "euclidean":
            assert gap is None
        else:
            other = run.results["imbalanced", 1, "euclidean"].accuracy[: len(result.accuracy)]
            assert gap.mean == pytest.approx((result.accuracy - other).mean())


def test_published_rows_are_plausible():
    for row in (*published.INDUCTIVE, *published.IMBALANCED):
        assert 40 < row.one_shot < row.five_shot < 90

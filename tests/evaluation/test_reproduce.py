from __future__ import annotations

import functools
import json
import sys

import pytest
from safetensors.torch import save_file

from likelyshot import Balanced, Calibration, Dirichlet
from likelyshot.data.results import Result
from likelyshot.errors import InputError
from likelyshot.evaluation import published
from likelyshot.evaluation import reproduce as module
from likelyshot.evaluation import run as loop
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of, needs, variants

ROWS = ("euclidean", "mll", "combined", "laplacianshot")
CELLS = 2 * len(ROWS) * len(module.SHOTS)
evaluate = loop.evaluate


@pytest.fixture(scope="module")
def networks(features, validation, tmp_path_factory):
    """Small files in the place of the packaged ones."""
    folder = tmp_path_factory.mktemp("networks")
    paths = {metric: folder / f"{metric}.safetensors" for metric in ("euclidean", "cosine", "mll")}
    for number, path in enumerate(paths.values()):
        tensors = {}
        for split, part in (("train", validation), ("val", validation), ("test", features)):
            tensors |= {f"{split}.features": part.vectors.roll(number, 1), f"{split}.labels": part.labels.clone()}
        save_file(tensors, path)
    return paths


@pytest.fixture
def small(networks, monkeypatch):
    monkeypatch.setattr(module, "NETWORKS", networks)
    monkeypatch.setattr(module, "LAMBDA_MAX", (40.0, 80.0))
    monkeypatch.setattr(loop, "CALIBRATION_TASKS", 20)
    few = {"inductive": (Balanced(15), ROWS), "imbalanced": (Dirichlet(30, 2.0), ROWS)}
    monkeypatch.setattr(module, "protocols", lambda full: few)


def test_a_second_run_takes_the_finished_cells(small, tmp_path, monkeypatch):
    first = module.reproduce(tmp_path, n_tasks=15)
    assert first.reused == 0
    assert len(first.results) == CELLS
    assert first.lambda_max in (40.0, 80.0)
    names = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert {"reproduce.json", "lambda_max.json", "calibration_5shot.json", "imbalanced_1shot_mll.json"} <= names
    (tmp_path / "cells" / "inductive_1shot_mll.json").write_text('{"half": ')
    calls = []
    monkeypatch.setattr(loop, "evaluate", lambda *a, **k: calls.append(a) or evaluate(*a, **k))
    second = module.reproduce(tmp_path, n_tasks=15)
    assert second.reused == CELLS - 1
    assert len(calls) == 1
    for key, result in first.results.items():
        assert second.results[key].mean == result.mean
    rows = json.loads((tmp_path / "reproduce.json").read_text())["rows"]
    assert len(rows) == CELLS


def test_cells_of_other_tasks_are_kept_unless_fresh(small, tmp_path):
    first = module.reproduce(tmp_path, n_tasks=10)
    for settings, wanted in (({"seed": 1}, "10 tasks of seed 1"), ({"n_tasks": 11}, "11 tasks of seed 0")):
        message = f"a new folder for {wanted}, but .* has results of 10 tasks of seed 0: choose another folder with -o"
        with pytest.raises(InputError, match=message):
            module.reproduce(tmp_path, **{"n_tasks": 10, **settings})
    assert module.reproduce(tmp_path, n_tasks=10).reused == CELLS
    assert module.reproduce(tmp_path, n_tasks=10, fresh=True).reused == 0
    again = module.reproduce(tmp_path, n_tasks=10, seed=1, fresh=True)
    assert again.reused == 0
    assert again.sweep.config["tasks"] != first.sweep.config["tasks"]
    assert module.reproduce(tmp_path, n_tasks=10, seed=1).reused == CELLS


def test_a_new_default_of_a_method_computes_its_cells_anew(small, tmp_path, monkeypatch):
    module.reproduce(tmp_path, n_tasks=10)
    monkeypatch.setitem(METHODS, "laplacianshot", functools.partial(METHODS["laplacianshot"], lam=0.5))
    assert module.reproduce(tmp_path, n_tasks=10).reused == CELLS - 2 * len(module.SHOTS)


@pytest.mark.parametrize(
    ("changed", "anew"),
    [
        ("methods.laplacianshot", ("laplacianshot",)),
        ("functional.gram", ("laplacianshot",)),  # which it calls
        ("evaluation.evaluate", ROWS),
    ],
)
def test_changed_code_computes_its_cells_anew(small, tmp_path, monkeypatch, changed, anew):
    module.reproduce(tmp_path, n_tasks=10)
    other = tmp_path / "other.py"
    other.write_text("changed")
    monkeypatch.setattr(sys.modules[f"likelyshot.{changed}"], "__file__", str(other))
    assert module.reproduce(tmp_path, n_tasks=10).reused == CELLS - 2 * len(module.SHOTS) * len(anew)


def test_stopped_in_the_middle_it_goes_on(small, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 4 + 4:  # the sweep, and cells up to that of combined
            raise KeyboardInterrupt
        return evaluate(*arguments, **options)

    monkeypatch.setattr(loop, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.reproduce(tmp_path, n_tasks=10)
    for path in (tmp_path / "cells").iterdir():
        Result.load(path)
    for path in tmp_path.glob("calibration_*.json"):
        path.unlink()  # as if it had been killed before it wrote them
    assert module.reproduce(tmp_path, n_tasks=10).reused == 3
    for shots in module.SHOTS:
        assert Calibration.load(tmp_path / f"calibration_{shots}shot.json").shots == shots


class Bar:
    """What `start` of a reproduction announces and reports."""

    def __call__(self, total):
        self.total, self.done = total, 0
        return self.advance, lambda stage: None

    def advance(self, steps):
        self.done += steps


def test_progress_reaches_the_announced_total(small, tmp_path):
    for _ in range(2):
        bar = Bar()
        module.reproduce(tmp_path, n_tasks=10, start=bar)
        assert bar.done == bar.total == 10 * CELLS * 2 + 10 * 2 * 2  # each cell with its temperature, and the sweep


EVERY = module.protocols(full=True)["imbalanced"][1]


def test_full_has_every_method_and_slow_ones_on_fewer_tasks(small, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SLOW_TASKS", 2)
    monkeypatch.setattr(module, "SHOTS", (1,))
    monkeypatch.setattr(module, "protocols", lambda full: {"imbalanced": (Dirichlet(30, 2.0), EVERY)})
    bar = Bar()
    run = module.reproduce(tmp_path, n_tasks=3, full=True, start=bar)
    without_head = {name for name in METHODS if "head" not in needs(name)}
    assert {result.method for result in run.results.values()} == without_head
    assert set(variants()) < {row for _, _, row in run.results}
    assert bar.done == bar.total
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

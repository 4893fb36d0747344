"""The paper's experiments on the packaged features, one finished cell at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from likelyshot.binding import CALIBRATION_TASKS, Statistics, bind, parameters
from likelyshot.errors import InputError
from likelyshot.evaluation import Progress, evaluate
from likelyshot.features import Features
from likelyshot.files import output_folder, write_json
from likelyshot.packaged import PACKAGED
from likelyshot.plots import draw_sweep
from likelyshot.results import Result, environment
from likelyshot.sweep import Sweep, sweep
from likelyshot.tasks import Balanced, Dirichlet, Tasks, sample_tasks

WAYS = 5
SHOTS = (1, 5)
LAMBDA_MAX = tuple(float(value) for value in range(10, 101, 10))
SWEEP_TASKS = 2_000
INDUCTIVE = ("euclidean", "cosine", "mll", "combined")
PROTOCOLS: dict[str, tuple[Balanced | Dirichlet, tuple[str, ...]]] = {
    "inductive": (Balanced(15), INDUCTIVE),
    "imbalanced": (Dirichlet(75, 2.0), (*INDUCTIVE, "mll_transductive")),
}


@dataclass(frozen=True)
class Reproduction:
    """All that the tables show."""

    lambda_max: float
    sweep: Sweep
    results: dict[tuple[str, int, str], Result]  # by protocol, shots and method
    reused: int
    folder: Path


def total_work(n_tasks: int) -> int:
    """Count the tasks that a run from scratch evaluates, for a progress bar."""
    cells = sum(len(methods) for _, methods in PROTOCOLS.values()) * len(SHOTS)
    validation = min(SWEEP_TASKS, n_tasks) * len(LAMBDA_MAX) + CALIBRATION_TASKS
    return cells * n_tasks + validation * len(SHOTS)


def reproduce(
    folder: str | Path,
    *,
    n_tasks: int = 10_000,
    seed: int = 0,
    device: str = "cpu",
    fresh: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda stage: None,
) -> Reproduction:
    """Choose lambda_max on the validation classes, calibrate, and fill the two tables on the test classes.

    Every finished cell is a file in `folder`; a later call with the same settings takes it from there, unless `fresh`.
    """
    folder = output_folder(folder, make=False)
    validation, test = Features.load(PACKAGED, split="val"), Features.load(PACKAGED, split="test")
    drawn = {
        (protocol, shots): sample_tasks(
            test.labels, n_tasks=n_tasks, ways=WAYS, shots=shots, query=query, seed=seed, classes=test.classes
        )
        for protocol, (query, _) in PROTOCOLS.items()
        for shots in SHOTS
    }
    cells = output_folder(folder / "cells")
    say("lambda_max on the validation classes")
    swept = _sweep(folder, validation, min(SWEEP_TASKS, n_tasks), seed, device, fresh, progress)
    lambda_max = float(swept.best()["lambda_max"])
    statistics = Statistics(validation=validation, seed=seed, device=device)
    results: dict[tuple[str, int, str], Result] = {}
    reused = 0
    for (protocol, shots), tasks in drawn.items():
        for name in PROTOCOLS[protocol][1]:
            say(f"{protocol}, {shots}-shot, {name}")
            path = cells / f"{protocol}_{shots}shot_{name}.json"
            wanted = _identity(name, lambda_max, tasks, validation, test)
            result = None if fresh else _finished(path, wanted)
            if result is None:
                params = {"lambda_max": lambda_max} if "lambda_max" in parameters(name) else {}
                method = bind(name, params, statistics, ways=WAYS, shots=shots, progress=progress)
                result = evaluate(method, test, tasks, device=device, progress=progress)
                result = replace(result, config={**result.config, "cell": wanted})
                result.save(path)
            else:
                reused += 1
                if progress is not None:
                    progress(n_tasks)
            results[protocol, shots, name] = result
    for shots, calibration in statistics.made():
        calibration.save(folder / f"calibration_{shots}shot.json")
    write_json(
        folder / "reproduce.json",
        {
            "config": {
                "tasks": n_tasks,
                "seed": seed,
                "device": device,
                "ways": WAYS,
                "lambda_max": lambda_max,
                "validation": {"digest": validation.digest, **validation.source},
                "test": {"digest": test.digest, **test.source},
                "protocols": {name: query.to_dict() for name, (query, _) in PROTOCOLS.items()},
            },
            "environment": environment(),
            "rows": [{"protocol": protocol, **result.row()} for (protocol, _, _), result in results.items()],
        },
    )
    return Reproduction(lambda_max, swept, results, reused, folder)


def _sweep(
    folder: Path,
    validation: Features,
    n_tasks: int,
    seed: int,
    device: str,
    fresh: bool,
    progress: Progress | None,
) -> Sweep:
    path = folder / "lambda_max.json"
    tasks = [
        sample_tasks(validation.labels, n_tasks=n_tasks, ways=WAYS, shots=shots, query=Balanced(15), seed=seed)
        for shots in SHOTS
    ]
    swept = None if fresh else _stored_sweep(path, validation, tasks)
    if swept is None:
        swept = sweep("mll", {"lambda_max": LAMBDA_MAX}, validation, tasks, device=device, progress=progress)
        swept.save(path)
        draw_sweep(swept, path.with_suffix(".svg"))
    elif progress is not None:
        progress(n_tasks * len(LAMBDA_MAX) * len(SHOTS))
    return swept


def _stored_sweep(path: Path, validation: Features, tasks: list[Tasks]) -> Sweep | None:
    try:
        stored = json.loads(path.read_text())
        found = Sweep(stored["method"], stored["grid"], stored["rows"], stored["config"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    same = (
        found.config["features"]["digest"] == validation.digest
        and found.config["tasks"] == [drawn.digest for drawn in tasks]
        and tuple(found.grid.get("lambda_max", ())) == LAMBDA_MAX
        and stored["environment"]["likelyshot"] == environment()["likelyshot"]
    )
    return found if same else None


def _identity(name: str, lambda_max: float, tasks: Tasks, validation: Features, test: Features) -> dict[str, Any]:
    """What a cell's figures follow from: if all of it is the same, so are they."""
    return {
        "method": name,
        "lambda_max": lambda_max,
        "tasks": tasks.digest,
        "validation": validation.digest,
        "test": test.digest,
        "likelyshot": environment()["likelyshot"],
    }


def _finished(path: Path, wanted: dict[str, Any]) -> Result | None:
    try:
        result = Result.load(path)
    except InputError:
        return None
    return result if result.config.get("cell") == wanted else None

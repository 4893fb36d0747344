"""The paper's experiments on the packaged networks, one finished cell at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from likelyshot import __version__
from likelyshot.data.containers import write_document
from likelyshot.data.features import Base, Features
from likelyshot.data.files import output_folder
from likelyshot.data.packaged import NETWORKS
from likelyshot.data.results import Difference, Result, environment
from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.evaluation.networks import Network, Networks
from likelyshot.evaluation.sweep import Sweep, sweep
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, facts_of, variants
from likelyshot.methods.binding import CALIBRATION_TASKS, TEMPERATURE_TASKS, Params, Statistics, bind, parameters
from likelyshot.methods.calibration import METRICS
from likelyshot.report.sweep_chart import draw_sweep

WAYS = 5
SHOTS = (1, 5)
LAMBDA_MAX = tuple(float(value) for value in range(10, 101, 10))
SWEEP_TASKS = 2_000
#: The rows of the paper's Table I.
PAPER = (*METRICS, "combined")
SLOW_TASKS = 1_000

Protocols = dict[str, tuple[Balanced | Dirichlet, tuple[str, ...]]]


def protocols(full: bool) -> Protocols:
    """Give the query plan and the rows of every table; with `full`, every method at four degrees of imbalance."""
    if not full:
        quick = [name for name, method in METHODS.items() if facts_of(method).quick]
        return {"inductive": (Balanced(15), PAPER), "imbalanced": (Dirichlet(75, 2.0), (*PAPER, *quick))}
    every = tuple(dict.fromkeys([*PAPER, *METHODS, *variants()]))
    return {
        "inductive": (Balanced(15), PAPER),
        "imbalanced": (Dirichlet(75, 2.0), every),
        "dirichlet_1": (Dirichlet(75, 1.0), every),
        "dirichlet_5": (Dirichlet(75, 5.0), every),
        "balanced": (Balanced(15), every),
    }


@dataclass(frozen=True)
class Reproduction:
    """All that the tables show."""

    lambda_max: float
    sweep: Sweep
    protocols: Protocols
    results: dict[tuple[str, int, str], Result]  # by protocol, shots and row
    reused: int
    folder: Path

    def difference(self, protocol: str, shots: int, row: str, reference: str) -> Difference | None:
        """Give the paired difference to a row that has all tasks, over the tasks of this one; None to itself."""
        one, whole = self.results[protocol, shots, row], self.results[protocol, shots, reference]
        return None if row == reference else one.minus(whole)


def total_work(n_tasks: int, full: bool) -> int:
    """Count the tasks that a run from scratch evaluates, for a progress bar."""
    lengths = [_length(row, n_tasks) for _, rows in protocols(full).values() for row in rows]
    cells = sum(length + min(TEMPERATURE_TASKS, length) for length in lengths)
    validation = min(SWEEP_TASKS, n_tasks) * len(LAMBDA_MAX) + CALIBRATION_TASKS
    return (cells + validation) * len(SHOTS)


def _length(row: str, n_tasks: int) -> int:
    return min(n_tasks, SLOW_TASKS) if facts_of(METHODS[_method(row)[0]]).slow else n_tasks


def _method(row: str) -> tuple[str, Params]:
    """Give the method of a row and the parameters that differ from its defaults."""
    if row in METHODS:
        return row, {}
    name, variant = variants()[row]
    return name, variant.params


def reproduce(
    folder: str | Path,
    *,
    command: Sequence[str] = (),
    n_tasks: int = 10_000,
    seed: int = 0,
    device: str = "cpu",
    full: bool = False,
    fresh: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda stage: None,
) -> Reproduction:
    """Choose lambda_max on the validation classes, calibrate, and fill the tables on the test classes.

    With `full`, the tables of every method, slow ones on at most `SLOW_TASKS` tasks. Every finished cell is a file in
    `folder`; a later call with the same settings takes it from there, unless `fresh`.
    """
    tables = protocols(full)
    folder = output_folder(folder, make=False)
    networks = _networks(seed, device)
    test = networks.members[0].features
    drawn = {
        (protocol, shots): sample_tasks(
            test.labels, n_tasks=n_tasks, ways=WAYS, shots=shots, query=query, seed=seed, classes=test.classes
        )
        for protocol, (query, _) in tables.items()
        for shots in SHOTS
    }
    cells = output_folder(folder / "cells")
    say("lambda_max on the validation classes")
    swept = _sweep(folder, networks, min(SWEEP_TASKS, n_tasks), seed, device, fresh, progress)
    lambda_max = float(swept.best()["lambda_max"])
    results: dict[tuple[str, int, str], Result] = {}
    reused = 0
    for (protocol, shots), whole in drawn.items():
        for row in tables[protocol][1]:
            say(f"{protocol}, {shots}-shot, {row}")
            path = cells / f"{protocol}_{shots}shot_{row}.json"
            tasks = whole[: _length(row, n_tasks)]
            name, params = _method(row)
            if "lambda_max" in parameters(name):
                params = {"lambda_max": lambda_max, **params}
            features, statistics = networks.of(name)
            wanted = _identity(name, params, tasks, networks)
            result = None if fresh else _finished(path, wanted)
            if result is None:
                method = bind(name, params, statistics, ways=WAYS, shots=shots, progress=progress)
                temperature = statistics.temperature(method, tasks, progress)
                result = evaluate(method, features, tasks, device=device, progress=progress, temperature=temperature)
                told = {"row": row, "networks": networks.digests, "cell": wanted}
                result = replace(result, config={**result.config, **told})
                result.save(path)
            else:
                reused += 1
                if progress is not None:
                    progress(len(tasks) + min(TEMPERATURE_TASKS, len(tasks)))
            results[protocol, shots, row] = result
    for shots, calibration in networks.calibrations():
        calibration.save(folder / f"calibration_{shots}shot.json")
    write_document(
        folder / "reproduce.json",
        {
            "command": list(command),
            "config": {
                "tasks": n_tasks,
                "seed": seed,
                "device": device,
                "ways": WAYS,
                "lambda_max": lambda_max,
                "validation": [_about(one.validation) for one in networks.members],
                "test": [_about(one.features) for one in networks.members],
                "protocols": {name: query.to_dict() for name, (query, _) in tables.items()},
            },
            "environment": environment(),
            "rows": rows(results),
        },
    )
    return Reproduction(lambda_max, swept, tables, results, reused, folder)


def rows(results: Mapping[tuple[str, int, str], Result]) -> list[dict[str, Any]]:
    """Summarise every cell in one flat record."""
    return [{"protocol": protocol, "row": row, **result.row()} for (protocol, _, row), result in results.items()]


def _networks(seed: int, device: str) -> Networks:
    """Read the packaged features: a network for each metric, that of MLL, the last, for every other method."""
    members = [
        Network(Features.load(path, split="test"), Features.load(path, split="val"), Base.load(path))
        for path in NETWORKS.values()
    ]
    return Networks(members, tuple(NETWORKS), Statistics(seed=seed, device=device))


def _about(features: Features | None) -> dict[str, str]:
    return {} if features is None else {"digest": features.digest, **features.source}


def _sweep(
    folder: Path,
    networks: Networks,
    n_tasks: int,
    seed: int,
    device: str,
    fresh: bool,
    progress: Progress | None,
) -> Sweep:
    path = folder / "lambda_max.json"
    validation = networks.members[-1].validation
    assert validation is not None
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
        found = Sweep.load(path)
    except InputError:
        return None
    same = (
        [one["digest"] for one in found.config["features"]] == [validation.digest]
        and found.config["tasks"] == [drawn.digest for drawn in tasks]
        and tuple(found.grid.get("lambda_max", ())) == LAMBDA_MAX
        and found.config["likelyshot"] == __version__
    )
    return found if same else None


def _identity(name: str, params: Params, tasks: Tasks, networks: Networks) -> dict[str, Any]:
    """What a cell's figures follow from: if all of it is the same, so are they."""
    return {
        "method": name,
        "params": {**parameters(name), **params},
        "tasks": tasks.digest,
        "validation": [_about(one.validation).get("digest") for one in networks.members],
        "test": networks.digests,
        "likelyshot": __version__,
    }


def _finished(path: Path, wanted: dict[str, Any]) -> Result | None:
    try:
        result = Result.load(path)
    except InputError:
        return None
    return result if json.dumps(result.config.get("cell")) == json.dumps(wanted) else None

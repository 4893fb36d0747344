"""The paper's experiments on the packaged networks, one finished cell at a time."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from likelyshot import __version__
from likelyshot.data.features import Base, Features
from likelyshot.data.files import output_folder, write_document
from likelyshot.data.packaged import NETWORKS
from likelyshot.data.results import Difference, Result, environment
from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.evaluation.parts import run_part
from likelyshot.evaluation.run import Job, Network, Networks, run, work
from likelyshot.evaluation.sweep import Sweep, sweep
from likelyshot.machine import Progress
from likelyshot.methods import METHODS
from likelyshot.methods.binding import Params, facts_of, function_of, needs, parameters, variants
from likelyshot.methods.calibration import METRICS
from likelyshot.workers import Part

WAYS = 5
SHOTS = (1, 5)
LAMBDA_MAX = tuple(float(value) for value in range(10, 101, 10))
SWEEP_TASKS = 2_000
#: The rows of the paper's Table I.
PAPER = (*METRICS, "combined")
SLOW_TASKS = 1_000

Protocols = dict[str, tuple[Balanced | Dirichlet, tuple[str, ...]]]
Cell = tuple[str, int, str]  # protocol, shots and row
#: Called with a number of steps; gives what is called with steps that are done, and with the name of every stage.
Start = Callable[[int], tuple[Progress, Callable[[str], None]]]


def protocols(full: bool) -> Protocols:
    """Give the query plan and the rows of every table; with `full`, every method at four degrees of imbalance."""
    if not full:
        quick = [name for name, method in METHODS.items() if facts_of(method).quick]
        return {"inductive": (Balanced(15), PAPER), "imbalanced": (Dirichlet(75, 2.0), (*PAPER, *quick))}
    known = [name for name in METHODS if "head" not in needs(name)]  # no trained head is packaged
    every = tuple(dict.fromkeys([*PAPER, *known, *variants()]))
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
    results: dict[Cell, Result]
    reused: int
    folder: Path

    def difference(self, protocol: str, shots: int, row: str, reference: str) -> Difference | None:
        """Give the paired difference to a row that has all tasks, over the tasks of this one; None to itself."""
        one, whole = self.results[protocol, shots, row], self.results[protocol, shots, reference]
        return None if row == reference else one.minus(whole)


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
    known: Mapping[str, Result] = MappingProxyType({}),
    start: Start = lambda total: (lambda n: None, lambda stage: None),
) -> Reproduction:
    """Choose lambda_max on the validation classes, calibrate, and fill the tables on the test classes.

    Args:
        folder: Every finished cell becomes a file in it. A later call with the same settings and code takes it from
            there. A folder with cells of other tasks is refused.
        command: What is recorded as the command that made the results.
        n_tasks: Tasks of every cell.
        seed: Seed of the tasks.
        device: Where everything is computed.
        full: Whether to fill the tables of every method, slow ones on at most `SLOW_TASKS` tasks.
        fresh: Whether to compute finished cells again, and to replace those of other tasks.
        known: Results of cells by their label, as `merge_parts` gives them.
        start: Called with the total number of tasks; gives what is called with the number of tasks that have been
            done, and with the name of every stage.
    """
    folder = output_folder(folder, make=False)
    networks = _networks(seed, device)
    tables, cells, swept, progress, say = _prepare(folder, networks, n_tasks, full, fresh, start)
    lambda_max = float(swept.best()["lambda_max"])
    results, reused = _fill(cells, networks, folder, fresh, known, progress, say)
    config = {
        "tasks": n_tasks,
        "seed": seed,
        "device": device,
        "ways": WAYS,
        "lambda_max": lambda_max,
        "validation": [_about(one.validation) for one in networks.members],
        "test": [_about(one.features) for one in networks.members],
        "protocols": {name: query.to_dict() for name, (query, _) in tables.items()},
    }
    document = {"command": list(command), "config": config, "environment": environment(), "rows": rows(results)}
    write_document(folder / "reproduce.json", document)
    return Reproduction(lambda_max, swept, tables, results, reused, folder)


def reproduce_part(
    folder: str | Path,
    part: Part,
    *,
    n_tasks: int = 10_000,
    seed: int = 0,
    device: str = "cpu",
    full: bool = False,
    start: Start = lambda total: (lambda n: None, lambda stage: None),
) -> tuple[int, int]:
    """Do a part of the tasks of every cell; return how many cells were done now, and how many before.

    Every part chooses lambda_max on its own, unless it stands in the folder already. The other arguments are as in
    `reproduce`, which puts the parts together if it is given what `likelyshot.evaluation.parts.merge_parts` returns.

    Args:
        folder: The folder of the results, the same for all parts.
        part: Which part.
        n_tasks: Tasks of every cell, in all parts together.
        seed: Seed of the tasks.
        device: Where everything is computed.
        full: Whether to fill the tables of every method.
        start: As in `reproduce`.
    """
    folder = output_folder(folder, make=False)
    networks = _networks(seed, device)
    _, cells, _, progress, say = _prepare(folder, networks, n_tasks, full, False, start)
    about = {"command": "reproduce", "tasks": n_tasks, "seed": seed, "device": device, "full": full}
    return run_part(list(cells.values()), networks, part, folder, about=about, progress=progress, say=say)


def _prepare(
    folder: Path, networks: Networks, n_tasks: int, full: bool, fresh: bool, start: Start
) -> tuple[Protocols, dict[Cell, Job], Sweep, Progress, Callable[[str], None]]:
    """Draw the tasks of all cells, and choose lambda_max."""
    tables = protocols(full)
    cells = _cells(tables, networks, n_tasks)
    sweep_tasks = min(SWEEP_TASKS, n_tasks)
    if not fresh:
        _check_cells(folder, cells, n_tasks, networks.seed)
    progress, say = start(work(list(cells.values()), networks) + sweep_tasks * len(LAMBDA_MAX) * len(SHOTS))
    output_folder(folder / "cells")
    say("lambda_max on the validation classes")
    swept = _sweep(folder, networks, sweep_tasks, fresh, progress)
    lambda_max = float(swept.best()["lambda_max"])
    for key, job in cells.items():
        if "lambda_max" in parameters(job.method):
            cells[key] = job._replace(params={"lambda_max": lambda_max, **job.params})
    return tables, cells, swept, progress, say


def _check_cells(folder: Path, cells: Mapping[Cell, Job], n_tasks: int, seed: int) -> None:
    """Refuse a folder that has cells of other tasks, which may have taken hours and would be overwritten."""
    for job in cells.values():
        try:
            config = Result.load(folder / "cells" / f"{job.label}.json").config
        except InputError:  # it is missing or damaged, and computed
            continue
        if config.get("tasks_digest") != job.tasks.digest:
            got = f"{config.get('tasks')} tasks of seed {config.get('seed')}"
            raise InputError(
                f"expected a new folder for {n_tasks:,} tasks of seed {seed}, but {folder} has results of {got}: "
                "choose another folder with -o, or replace the results with --fresh"
            )


def rows(results: Mapping[Cell, Result]) -> list[dict[str, Any]]:
    """Summarise every cell in one flat record."""
    return [{"protocol": protocol, "row": row, **result.row()} for (protocol, _, row), result in results.items()]


def _networks(seed: int, device: str) -> Networks:
    """Read the packaged features: a network for each metric, that of MLL, the last, for every other method."""
    members = [
        Network(Features.load(path, split="test"), Features.load(path, split="val"), Base.load(path))
        for path in NETWORKS.values()
    ]
    return Networks(members, tuple(NETWORKS), seed=seed, device=device)


def _cells(tables: Protocols, networks: Networks, n_tasks: int) -> dict[Cell, Job]:
    """Draw the tasks, the same for all networks, and give what fills each cell of the tables."""
    test, cells = networks.members[0].features, {}
    for protocol, (query, rows) in tables.items():
        for shots in SHOTS:
            tasks = sample_tasks(
                test.labels,
                n_tasks=n_tasks,
                ways=WAYS,
                shots=shots,
                query=query,
                seed=networks.seed,
                classes=test.classes,
            )
            for row in rows:
                label = f"{protocol}_{shots}shot_{row}"
                cells[protocol, shots, row] = Job(*_method(row), tasks[: _length(row, n_tasks)], label)
    return cells


def _fill(
    cells: Mapping[Cell, Job],
    networks: Networks,
    folder: Path,
    fresh: bool,
    known: Mapping[str, Result],
    progress: Progress,
    say: Callable[[str], None],
) -> tuple[dict[Cell, Result], int]:
    """Compute every cell, or take it from an earlier run; give the results, and how many were there already."""
    keys = {job.label: key for key, job in cells.items()}
    results: dict[Cell, Result] = {}
    reused: list[str] = []

    def finished(job: Job) -> Result | None:
        if job.label in known:
            return known[job.label]
        result = None if fresh else _stored_cell(folder / "cells" / f"{job.label}.json", _identity(job, networks))
        reused.extend([job.label] if result is not None else [])
        return result

    for job, result in run(list(cells.values()), networks, finished=finished, progress=progress, say=say):
        _, shots, row = keys[job.label]
        if job.label not in reused:
            result = replace(result, config={**result.config, "row": row, "cell": _identity(job, networks)})
            result.save(folder / "cells" / f"{job.label}.json")
        if "calibration" in result.config["params"]:
            write_document(folder / f"calibration_{shots}shot.json", result.config["params"]["calibration"])
        results[keys[job.label]] = result
    return results, len(reused)


def _about(features: Features | None) -> dict[str, str]:
    return {} if features is None else {"digest": features.digest, **features.source}


def _sweep(folder: Path, networks: Networks, n_tasks: int, fresh: bool, progress: Progress) -> Sweep:
    """Sweep lambda_max on the validation classes of the last network, or take the sweep of an earlier run."""
    path = folder / "lambda_max.json"
    validation = networks.members[-1].validation
    assert validation is not None
    tasks = [
        sample_tasks(validation.labels, n_tasks=n_tasks, ways=WAYS, shots=shots, query=Balanced(15), seed=networks.seed)
        for shots in SHOTS
    ]
    swept = None if fresh else _stored_sweep(path, validation, tasks)
    if swept is None:
        alone = Networks([Network(validation)], device=networks.device)
        swept = sweep("mll", {"lambda_max": LAMBDA_MAX}, alone, tasks, progress=progress)
        swept = replace(swept, config={**swept.config, "code": _code_digest("mll")})
        swept.save(path)
    else:
        progress(n_tasks * len(LAMBDA_MAX) * len(SHOTS))
    return swept


def _stored_sweep(path: Path, validation: Features, tasks: list[Tasks]) -> Sweep | None:
    try:
        stored = Sweep.load(path)
    except InputError:
        return None
    same = (
        [one["digest"] for one in stored.config["features"]] == [validation.digest]
        and stored.config["tasks"] == [each.digest for each in tasks]
        and tuple(stored.grid.get("lambda_max", ())) == LAMBDA_MAX
        and stored.config["likelyshot"] == __version__
        and stored.config.get("code") == _code_digest("mll")
    )
    return stored if same else None


def _identity(job: Job, networks: Networks) -> dict[str, Any]:
    """What a cell's figures follow from: if all of it is the same, so are they."""
    return {
        "method": job.method,
        "params": {**parameters(job.method), **job.params},
        "tasks": job.tasks.digest,
        "validation": [_about(one.validation).get("digest") for one in networks.members],
        "test": networks.digests,
        "likelyshot": __version__,
        "code": _code_digest(job.method),
    }


def _code_digest(name: str) -> str:
    """Give a digest of the source of a method, of what it calls in this package, and of the evaluation."""
    waiting, modules = [function_of(METHODS[name]).__module__], {evaluate.__module__}
    while waiting:
        module = waiting.pop()
        if module in modules or module not in sys.modules:
            continue
        modules.add(module)
        names = {str(getattr(value, "__module__", "")) for value in vars(sys.modules[module]).values()}
        waiting += [other for other in names if other.startswith("likelyshot.")]
    files = [getattr(sys.modules[module], "__file__", None) for module in sorted(modules)]
    sources = [Path(file).read_bytes() for file in files if file and Path(file).is_file()]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


def _stored_cell(path: Path, cell: dict[str, Any]) -> Result | None:
    try:
        result = Result.load(path)
    except InputError:
        return None
    return result if json.dumps(result.config.get("cell")) == json.dumps(cell) else None

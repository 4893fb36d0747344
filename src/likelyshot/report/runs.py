"""Reading what commands left on the disk: the results, sweeps and commands of one or more runs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.data.results import FORMAT as RESULT
from likelyshot.data.results import PER_TASK, Result
from likelyshot.data.tasks import plan_from
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import FORMAT as SWEEP
from likelyshot.evaluation.sweep import Sweep

COMMANDS = ("evaluate.json", "reproduce.json")  # say how the results beside them were made
NEEDED = {
    "ways": int,
    "shots": int,
    "seed": int,
    "query": dict,
    "params": dict,
    "features": list,
    "tasks_digest": str,
    "range": list,
}


@dataclass(frozen=True)
class Runs:
    """What one or more runs found, and how: `made_by` has the command and the environment of each that told."""

    results: Sequence[Result]
    sweeps: Sequence[Sweep]
    made_by: Sequence[Mapping[str, Any]]
    damaged: Sequence[Path] = ()  # files that are no JSON object


def load_runs(paths: Sequence[str | Path]) -> Runs:
    """Read runs: folders of results and sweeps (also in their folder cells), or single JSON files.

    Files of other formats in a folder are passed over, and so are damaged ones, which are named; a run without any
    result or sweep is refused.
    """
    results: list[Result] = []
    sweeps: list[Sweep] = []
    made_by: list[dict[str, Any]] = []
    damaged: list[Path] = []
    for path in dict.fromkeys(Path(path).absolute() for path in paths):
        before, older = len(results) + len(sweeps), 0
        for file in _files(path):
            document = _read(file, whole=file == path)
            damaged += [] if document else [file]
            form = document.get("format", "")
            if form == RESULT:
                results.append(_checked(Result.load(file), file))
            elif form == SWEEP:
                sweeps.append(_checked_sweep(Sweep.load(file), file))
                made_by += [{"run": path.name, **_told(document)}] if document.get("command") else []
            elif file.name in COMMANDS:
                made_by.append({"run": path.name, **_told(document)})
            older += str(form).startswith("likelyshot.result/") and form != RESULT
        if len(results) + len(sweeps) == before:
            why = f"{older} results of an older format" if older else "none"
            raise InputError(
                f"expected results of likelyshot in {path}, found {why}: give a folder that likelyshot evaluate -o, "
                "sweep or reproduce of this version has written"
            )
    return Runs(results, sweeps, made_by, damaged)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [*sorted(path.glob("*.json")), *sorted((path / "cells").glob("*.json"))]
    if not path.exists():
        raise InputError(f"expected a folder or file of results, but there is no {path}: check the path")
    return [path]


def _read(file: Path, *, whole: bool) -> dict[str, Any]:
    """Read a JSON object; what is none counts as empty, unless it is the `whole` run."""
    try:
        document = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file} ({error.strerror}): check the path") from None
    except (ValueError, RecursionError):
        if whole:
            raise InputError(f"expected JSON in {file}, found something else: name a folder of results") from None
        return {}
    return document if isinstance(document, dict) else {}


def _told(document: Mapping[str, Any]) -> dict[str, Any]:
    command, environment = document.get("command"), document.get("environment")
    return {
        "command": [str(word) for word in command] if isinstance(command, list) else [],
        "environment": environment if isinstance(environment, dict) else {},
    }


def _checked(result: Result, file: Path) -> Result:
    """Refuse a result that was changed by hand so that it cannot be drawn."""
    config, lengths = result.config, {len(getattr(result, name)) for name in PER_TASK}
    whole = all(isinstance(config.get(key), kind) for key, kind in NEEDED.items()) and _is_plan(config["query"])
    whole = whole and all(isinstance(features, dict) for features in config["features"])
    whole = whole and isinstance(config.get("networks", []), list)
    finite = all(np.isfinite(getattr(result, name)).all() for name in PER_TASK) and np.isfinite(result.seconds)
    if not whole or not finite or len(lengths) != 1 or 0 in lengths:
        raise InputError(f"expected a whole result with one figure a task in {file}, found a damaged one: make it anew")
    return result


def _is_plan(query: Mapping[str, Any]) -> bool:
    try:
        return plan_from(query).to_dict() == query
    except (KeyError, TypeError, InputError):
        return False


def _checked_sweep(sweep: Sweep, file: Path) -> Sweep:
    rows = sweep.rows if isinstance(sweep.rows, list) and isinstance(sweep.grid, dict) else []
    keys = {"point", "shots", "ways", "tasks", "mean", "ci95"}
    whole = bool(rows) and all(isinstance(row, dict) and keys <= row.keys() for row in rows)
    points = math.prod(len(values) for values in sweep.grid.values()) if whole else 0
    if not whole or len(rows) != points * len({row["shots"] for row in rows}):
        raise InputError(f"expected a whole sweep in {file}, found a damaged one: make it anew")
    return sweep

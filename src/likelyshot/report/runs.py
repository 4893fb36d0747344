"""Reading what commands left on the disk: the results, sweeps and commands of one or more runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likelyshot.data.results import FORMAT as RESULT
from likelyshot.data.results import Result
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import FORMAT as SWEEP
from likelyshot.evaluation.sweep import Sweep

COMMANDS = ("evaluate.json", "reproduce.json")  # say how the results beside them were made


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
                results.append(Result.load(file))
            elif form == SWEEP:
                sweeps.append(Sweep.load(file))
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

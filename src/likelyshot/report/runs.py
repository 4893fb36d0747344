"""Reading what commands have written: the results, sweeps and command lines of one or more runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likelyshot.data.files import read_document
from likelyshot.data.results import FORMAT as RESULT
from likelyshot.data.results import Result
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import FORMAT as SWEEP
from likelyshot.evaluation.sweep import Sweep

COMMANDS = ("evaluate.json", "reproduce.json")  # record the command line that made the results beside them


@dataclass(frozen=True)
class Runs:
    """The results and sweeps of one or more runs, and the command and environment of each run that recorded them."""

    results: Sequence[Result]
    sweeps: Sequence[Sweep]
    made_by: Sequence[Mapping[str, Any]]


def load_runs(paths: Sequence[str | Path]) -> Runs:
    """Read the results and sweeps of runs.

    Damaged files and files of another version are refused, with one sentence for each.

    Args:
        paths: Folders that likelyshot evaluate -o, sweep or reproduce wrote, or single JSON files of them. JSON files
            of other programs in a folder are skipped.
    """
    results: list[Result] = []
    sweeps: list[Sweep] = []
    made_by: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in dict.fromkeys(Path(path).absolute() for path in paths):
        if not path.exists():
            problems.append(f"there is no {path}: check the path")
            continue
        before = len(results) + len(sweeps) + len(problems)
        for file in _files(path):
            try:
                read = read_document(file, object, what="a JSON file", remedy="remove it, or give single files")
                document = read if isinstance(read, dict) else {}
                form = str(document.get("format", ""))
                if form == RESULT:
                    results.append(Result.load(file))
                elif form == SWEEP:
                    sweeps.append(Sweep.load(file))
                elif form.startswith((_kind(RESULT), _kind(SWEEP))):
                    reads = RESULT if form.startswith(_kind(RESULT)) else SWEEP
                    raise InputError(f"{file} has the format {form}, but this version reads {reads}: make it again")
                if file.name in COMMANDS or (form == SWEEP and document.get("command")):
                    made_by.append({"run": path.name, **_maker(document)})
            except InputError as error:
                problems.append(str(error))
        if len(results) + len(sweeps) + len(problems) == before:
            problems.append(
                f"expected results of likelyshot in {path}, but found none: give a folder that likelyshot evaluate -o, "
                "sweep or reproduce has written"
            )
    if problems:
        raise InputError("\n".join(problems))
    return Runs(results, sweeps, made_by)


def _kind(form: str) -> str:
    return f"{form.partition('/')[0]}/"


def _files(path: Path) -> list[Path]:
    return [*sorted(path.glob("*.json")), *sorted((path / "cells").glob("*.json"))] if path.is_dir() else [path]


def _maker(document: Mapping[str, Any]) -> dict[str, Any]:
    command, environment = document.get("command"), document.get("environment")
    return {
        "command": [str(word) for word in command] if isinstance(command, list) else [],
        "environment": environment if isinstance(environment, dict) else {},
    }

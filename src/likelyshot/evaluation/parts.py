"""Parts of an evaluation, each by its own process, and the whole that they make."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from likelyshot import __version__
from likelyshot.data.features import Features
from likelyshot.data.files import output_folder, read_container, write_container
from likelyshot.data.results import Result, check_configuration
from likelyshot.data.tasks import Tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import Decisions, chunk_size, configuration, judge, summarise
from likelyshot.evaluation.run import Job, Networks, work
from likelyshot.machine import Progress
from likelyshot.methods.binding import facts_of, row_name
from likelyshot.workers import Part

FORM = "likelyshot.part/1"
FOLDER = "parts"
ARRAYS = ("support", "query", "query_labels", "classes")


class _Facts(msgspec.Struct):
    """What a file says besides its tensors."""

    about: dict[str, Any]  # the command and its settings, the same in all files
    jobs: list[str]  # the keys of all jobs, in order
    job: str
    label: str
    part: tuple[int, int]
    refused: str = ""  # why the job cannot run
    method: str = ""
    ways: int = 0
    shots: int = 0
    tasks: dict[str, Any] = {}
    names: list[str] = []  # of the classes
    config: dict[str, Any] = {}
    temperature: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Merged:
    """The results of all parts.

    Args:
        about: What `run_part` was given.
        results: The label and the result of every job that could run, in order.
        refused: The labels of the others, and why.
    """

    about: Mapping[str, Any]
    results: Sequence[tuple[str, Result]]
    refused: Mapping[str, str]


def run_part(
    jobs: Iterable[Job],
    networks: Networks,
    part: Part,
    folder: str | Path,
    *,
    about: Mapping[str, Any],
    temperatures: bool = True,
    skip: bool = False,
    progress: Progress = lambda steps: None,
    say: Callable[[str], None] = lambda stage: None,
) -> tuple[int, int]:
    """Evaluate a part of the tasks of every job, and keep what the method says in files; `merge_parts` reads them.

    Returns how many jobs were evaluated, and how many had been before.

    Args:
        jobs: What to evaluate.
        networks: The features and statistics.
        part: Which of the tasks.
        folder: The folder of the results; the files go to its folder parts.
        about: The command and its settings; the same in all parts.
        temperatures: As in `run`.
        skip: Whether a job that cannot run is left out instead of an error.
        progress: As in `run`.
        say: As in `run`.
    """
    jobs = list(jobs)
    place = output_folder(Path(folder) / FOLDER)
    keys = [_key(job, networks, about) for job in jobs]
    done = earlier = 0
    for job, key in zip(jobs, keys, strict=True):
        say(", ".join(word for word in (job.label, str(part) if part.count > 1 else "") if word))
        path = _file(place, key, part)
        chosen = networks.features(job.method)
        sets = [chosen] if isinstance(chosen, Features) else chosen
        tasks = job.tasks[:0]
        facts = _Facts(dict(about), keys, key, job.label, (part.number, part.count))
        if path.is_file():
            earlier += 1
            progress(work([job], networks, temperatures))
            continue
        tensors: dict[str, Tensor] = {}
        try:
            method = networks.bind(job.method, job.params, ways=job.tasks.ways, shots=job.tasks.shots)
            size = chunk_size(sets, job.tasks, networks.device, memory=facts_of(method).memory)
            chunks = part.of(-(-len(job.tasks) // size))
            tasks = job.tasks[chunks.start * size : chunks.stop * size]
            fitted = networks.temperature(job.method, method, job.tasks, progress) if temperatures else None
            started = time.perf_counter()
            if len(tasks):
                judged = judge(method, sets, tasks, fitted, networks.device, progress=progress)
                tensors = judged._asdict() | {f"tasks.{name}": getattr(tasks, name) for name in ARRAYS}
            facts = msgspec.structs.replace(
                facts,
                method=row_name(job.method),
                ways=tasks.ways,
                shots=tasks.shots,
                tasks=dict(job.tasks.config),
                names=list(sets[0].classes),
                config=configuration(method, sets, job.tasks, networks.device) | {"networks": networks.digests},
                temperature=fitted,
                seconds=time.perf_counter() - started,
            )
        except InputError as error:
            if not skip:
                raise
            facts.refused = str(error)
        write_container(path, tensors, msgspec.to_builtins(facts), form=FORM)
        progress(len(job.tasks) - len(tasks))
        done += 1
    return done, earlier


def run_kept(jobs: Iterable[Job], networks: Networks, folder: str | Path, **options: Any) -> Merged:
    """Evaluate jobs, and keep each in a file until all are finished, so that a call that was stopped goes on.

    Args:
        jobs: As in `run_part`.
        networks: As in `run_part`.
        folder: As in `run_part`.
        **given: The keyword arguments of `run_part`.
    """
    jobs, whole = list(jobs), Part(1, 1)
    run_part(jobs, networks, whole, folder, **options)
    place = Path(folder) / FOLDER
    keys = [_key(job, networks, options["about"]) for job in jobs]
    merged = _merged(place, keys, whole.count, options["about"])
    for key in keys:
        _file(place, key, whole).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # others have files there
        place.rmdir()
    return merged


def _file(place: Path, key: str, part: Part) -> Path:
    return place / f"{key}_{part.number}-of-{part.count}.safetensors"


def _key(job: Job, networks: Networks, about: Mapping[str, Any]) -> str:
    """Name what a job follows from: files of other settings in the same folder are not taken for its own."""
    identity = [job.method, job.params, job.tasks.digest, networks.digests, networks.seed, dict(about), __version__]
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:16]


def merge_parts(folder: str | Path) -> Merged:
    """Put the parts of an evaluation together; one that is missing raises InputError.

    Args:
        folder: The folder of the results.
    """
    if not Path(folder).is_dir():
        got = "is a file" if Path(folder).exists() else "does not exist"
        raise InputError(f"expected the folder that all parts were written to, but {folder} {got}: check the path")
    place = Path(folder) / FOLDER
    files = sorted(place.glob("*_*-of-*.safetensors")) if place.is_dir() else []
    if not files:
        raise InputError(f"expected what commands wrote with --part, but {folder} has no such parts: check the path")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)  # the folder may hold parts of earlier settings
    _, last = _read(newest)
    return _merged(place, last.jobs, last.part[1], last.about)


def _merged(place: Path, keys: Sequence[str], count: int, about: Mapping[str, Any]) -> Merged:
    results, refused = [], {}
    for key in keys:
        paths = [_file(place, key, Part(number, count)) for number in range(1, count + 1)]
        missing = [number for number, path in enumerate(paths, 1) if not path.is_file()]
        if missing:
            listed = f"{'part' if len(missing) == 1 else 'parts'} {', '.join(map(str, missing))} of {count}"
            raise InputError(
                f"expected {count} parts in {place}, but {listed} {'is' if len(missing) == 1 else 'are'} not finished: "
                f"run the command with --part {missing[0]}/{count} again"
            )
        read = [_read(path) for path in paths]
        facts = read[0][1]
        if facts.refused:
            refused[facts.label] = facts.refused
        else:
            results.append((facts.label, _joined(read, place)))
    return Merged(about, results, refused)


def _joined(read: Sequence[tuple[dict[str, Tensor], _Facts]], place: Path) -> Result:
    filled = [tensors for tensors, _ in read if tensors]
    facts = read[0][1]
    check_configuration(facts.config, str(place))
    whole = {name: torch.cat([tensors[name] for tensors in filled]) for name in filled[0]}
    arrays = {name: whole[f"tasks.{name}"] for name in ARRAYS}
    tasks = Tasks(**arrays, ways=facts.ways, shots=facts.shots, config=facts.tasks)
    if tasks.digest != facts.config["tasks_digest"]:
        raise InputError(f"expected parts of the same tasks in {place}, but got others: remove them, and run all again")
    judged = Decisions(whole["predicted"], whole["top"])
    seconds = sum(each.seconds for _, each in read)
    result = summarise(judged, tasks, facts.names, facts.config, facts.temperature, seconds)
    return replace(result, method=facts.method)


def _read(path: Path) -> tuple[dict[str, Tensor], _Facts]:
    texts = {"what": "a part that likelyshot wrote", "remedy": "remove it, and run the part again"}
    return read_container(path, _Facts, form=FORM, **texts)

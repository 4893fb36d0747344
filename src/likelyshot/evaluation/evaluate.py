"""The loop over chunks of tasks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.data.features import Features
from likelyshot.data.results import Result, environment
from likelyshot.data.tasks import Tasks
from likelyshot.errors import InputError
from likelyshot.functional import temperature as temperatures
from likelyshot.functional.scores import (
    class_confusion,
    confusion_counts,
    decide,
    l2_normalise,
    rate_bound,
    reliability_counts,
    task_metrics,
)
from likelyshot.heads import Head
from likelyshot.machine import CACHE_BYTES, Pieces, Progress, cluster, cores, keep_memory, map_blocks, ordered_map
from likelyshot.methods import Method
from likelyshot.methods.binding import facts_of, is_ours, name_of, needs_of, parameters_of
from likelyshot.methods.calibration import METRICS, Calibration, fit_calibration
from likelyshot.methods.combined import score_columns

T = TypeVar("T")

#: Bytes of a chunk on an accelerator, with all that the method allocates; on a CPU a chunk should stay in cache.
ACCELERATOR_BYTES = 2**30
#: Tasks that a worker of a cluster gets at a time.
TOGETHER = 256
#: Pairs of classes that a result names as confused, of those that had enough queries.
CONFUSED_PAIRS, CONFUSED_QUERIES = 30, 20


def evaluate(
    method: Method,
    features: Features | Sequence[Features],
    tasks: Tasks,
    *,
    device: str | torch.device = "cpu",
    chunk_bytes: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    temperature: float | None = None,
) -> Result:
    """Run a method on every task and record accuracy, balanced accuracy and macro-F1 of each.

    Args:
        method: A function of `METHODS` or one of your own; parameters and statistics go in by `functools.partial`.
        features: One set, or one per network for `combined`: the same images in the same order.
        tasks: What `sample_tasks` returns.
        device: Where to compute.
        chunk_bytes: Memory for the gathered features of one chunk of tasks. The result does not depend on it.
        workers: Number of threads; one per core by default. The result does not depend on it.
        progress: Called with the number of tasks done since the last call.
        temperature: What scores are divided by before softmax gives probabilities, for the record of their
            reliability: `fit_temperature` fits it on other classes. Without one it is 1.

    >>> from likelyshot import Features, sample_tasks, Balanced, evaluate
    >>> from likelyshot.methods import METHODS
    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(100) % 5
    >>> vectors = torch.rand(100, 16, generator=generator) + torch.eye(5, 16)[labels]
    >>> features = Features.from_arrays(vectors, labels)
    >>> tasks = sample_tasks(features.labels, n_tasks=50, ways=3, shots=2, query=Balanced(5), seed=0)
    >>> print(evaluate(METHODS["mll"], features, tasks))
    mll: ... % over 50 tasks
    """
    sets = [features] if isinstance(features, Features) else list(features)
    started = time.perf_counter()
    judged = judge(method, sets, tasks, temperature, device, chunk_bytes, workers, progress)
    config = configuration(method, sets, tasks, device)
    return summarise(judged, tasks, sets[0].classes, config, temperature, time.perf_counter() - started)


class Decisions(NamedTuple):
    """What a method says of the queries of tasks."""

    predicted: Tensor  # (t, q) ways
    top: Tensor  # (t, q) their probabilities


def judge(
    method: Method,
    sets: Sequence[Features],
    tasks: Tasks,
    temperature: float | None,
    device: str | torch.device = "cpu",
    chunk_bytes: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Decisions:
    """Run a method on every task, on this machine or on the cluster that `likelyshot.workers.on_ray` has joined."""
    if cluster() is None:

        def decided(scores: Tensor, chunk: slice) -> list[Tensor]:
            return list(decide(scores, 1.0 if temperature is None else temperature))

        parts = _score(method, sets, tasks, decided, device, chunk_bytes, workers, progress)
        return Decisions(*(torch.cat(each).cpu() for each in zip(*parts, strict=True)))  # fetched once
    machine.check_device(str(device))
    size = chunk_size(sets, tasks)
    size *= max(1, TOGETHER // size)
    ranges = [slice(start, start + size) for start in range(0, len(tasks), size)]
    pieces = []
    for piece in map_blocks(_judge_range, (method, sets, tasks, temperature), ranges):
        pieces.append(piece)
        if progress is not None:
            progress(len(piece.predicted))
    return Decisions(*(torch.cat(each) for each in zip(*pieces, strict=True)))


def _judge_range(
    shared: tuple[Method, Sequence[Features], Tasks, float | None], chosen: slice
) -> Decisions:  # on a worker, which has one core
    method, sets, tasks, temperature = shared
    return judge(method, sets, tasks[chosen], temperature, workers=1)


def configuration(
    method: Method, sets: Sequence[Features], tasks: Tasks, device: str | torch.device = "cpu"
) -> dict[str, Any]:
    """Record what a result follows from."""
    name, params = describe(method)
    return {
        "method": name,
        "params": params,
        "ways": tasks.ways,
        "shots": tasks.shots,
        "query": tasks.config["query"],
        "tasks": len(tasks),
        "seed": tasks.config["seed"],
        "overlap": tasks.config["overlap"],
        "tasks_digest": tasks.digest,
        "labels_digest": tasks.config["labels_digest"],
        "range": tasks.config["range"],
        "features": [{"digest": s.digest, "dim": s.dim, **s.source} for s in sets],
        "device": str(device),
    }


def summarise(
    judged: Decisions,
    tasks: Tasks,
    classes: Sequence[str],
    config: Mapping[str, Any],
    temperature: float | None,
    seconds: float,
) -> Result:
    """Compare what a method says with the truth."""
    predicted, top = judged
    truth = tasks.query_labels.long()
    confusions = confusion_counts(predicted, truth, tasks.ways)
    sure = reliability_counts(top.flatten(), (predicted == truth).flatten())
    accuracy, balanced, f1 = (x.numpy().round(9) for x in task_metrics(confusions))
    per_class = confusions.sum(-1).double()
    return Result(
        method=config["method"],
        accuracy=accuracy,
        balanced_accuracy=balanced,
        macro_f1=f1,
        largest_share=(per_class.amax(-1) / per_class.sum(-1)).numpy().round(9),
        reliability={
            "temperature": 1.0 if temperature is None else float(temperature),
            "fitted": temperature is not None,
            **dict(zip(("count", "confidence", "correct"), sure.round(decimals=6).tolist(), strict=True)),
        },
        confused=_confused(confusions, tasks, classes),
        config=config,
        environment=environment(),
        seconds=seconds,
    )


def fit_temperature(
    method: Method,
    features: Features | Sequence[Features],
    tasks: Tasks,
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> float:
    """Find the temperature that makes the right classes of these tasks likeliest under softmax(scores / temperature).

    Take tasks like those to come, of other (validation) classes.
    """
    sets = [features] if isinstance(features, Features) else list(features)
    scores = torch.cat(_score(method, sets, tasks, lambda scores, chunk: scores, device, None, None, progress)).cpu()
    return temperatures.fit_temperature(scores.flatten(0, 1), tasks.query_labels.flatten())


def _score(
    method: Method,
    sets: Sequence[Features],
    tasks: Tasks,
    then: Callable[[Tensor, slice], T],
    device: str | torch.device,
    chunk_bytes: int | None,
    workers: int | None,
    progress: Progress | None,
) -> list[T]:
    """Score the queries of every task by a method, and hand the scores of every chunk of tasks on."""
    name, params = describe(method)
    missing = needs_of(method)
    if missing:
        raise InputError(
            f"{name} needs {' and '.join(missing)}: give it with functools.partial({name}, {missing[0]}=...)"
        )
    calibration = parameters_of(method).get("calibration")
    through = isinstance(calibration, Calibration) and calibration.normalise
    _check_features(sets, tasks, normalised=through or (is_ours(method) and bool(params.get("normalise", False))))
    if isinstance(calibration, Calibration):
        calibration.check_encoders([s.source.get("encoder", "") for s in sets])
    facts = facts_of(method)
    if facts.double and torch.device(device).type in machine.WITHOUT_DOUBLE:
        raise InputError(f"{name} computes in double precision, which {device} does not have: use cpu (--device cpu)")
    labels = tasks.support_labels.to(device)
    run, scaling = _hoist(method, sets)
    checked = is_ours(method) and _need_no_check(sets, tasks, facts.non_negative)

    def solve(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> T:
        one = len(sets) == 1
        with machine.checked_inputs() if checked else contextlib.nullcontext():
            scores = run(supports[0] if one else supports, labels, queries[0] if one else queries, n_ways=tasks.ways)
        return then(scores.contiguous(), chunk)  # argmax of a transposed view takes several times as long

    return map_chunks(solve, sets, tasks, device, chunk_bytes, workers, progress, scaling, facts.memory)


def _need_no_check(sets: Sequence[Features], tasks: Tasks, non_negative: bool) -> bool:
    """Whether no chunk can have what methods refuse; if any could, they look at every chunk themselves."""
    labels = tasks.support_labels
    return (
        bool(((labels >= 0) & (labels < tasks.ways)).all())
        and _lengths(sets, None) is not None  # NaN and infinity are in no range either
        and not (non_negative and any(bool((s.vectors < 0).any()) for s in sets))
    )


def _confused(confusions: Tensor, tasks: Tasks, classes: Sequence[str]) -> list[dict[str, Any]]:
    """List the ordered pairs of classes that are confused most, as a share of the chances that tasks gave."""
    wrong, queries = class_confusion(confusions, tasks.classes, len(classes))
    wrong.fill_diagonal_(0)
    share = wrong / queries.clamp_min(1)
    share[queries < CONFUSED_QUERIES] = 0  # of a few queries, any share is chance
    worst = share.flatten().argsort(descending=True, stable=True)[:CONFUSED_PAIRS].tolist()
    pairs = [divmod(place, len(classes)) for place in worst]
    return [
        {"true": classes[a], "predicted": classes[b], "wrong": int(wrong[a, b]), "queries": int(queries[a, b])}
        for a, b in pairs
        if share[a, b] > 0
    ]


def calibrate(
    features: Features | Sequence[Features],
    tasks: Tasks,
    *,
    metrics: Sequence[str] = METRICS,
    lambda_max: float | None = None,
    normalise: bool = True,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Calibration:
    """Collect the scores of all (query, class) pairs of validation tasks and fit the combined metric's Gaussians.

    Args:
        features: One set that every metric scores, or one set per metric.
        tasks: Tasks of validation classes.
        metrics: The metrics to combine.
        lambda_max: Upper bound of the rates of MLL. By default it follows from the mean of the features, as in `mll`.
        normalise: Scale feature vectors to length one first.
        device: Where to compute.
        progress: Called with the number of tasks done since the last call.
    """
    sets = [features] if isinstance(features, Features) else list(features)
    _check_features(sets, tasks, normalised=normalise)
    if lambda_max is None:
        scored = sets[list(metrics).index("mll")] if len(sets) > 1 and "mll" in metrics else sets[0]
        vectors = scored.vectors.float()
        lambda_max = float(rate_bound(l2_normalise(vectors) if normalise else vectors))
    labels = tasks.support_labels.to(device)

    def score(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> Tensor:
        one = len(sets) == 1
        return score_columns(
            supports[0] if one else supports,
            labels,
            queries[0] if one else queries,
            n_ways=tasks.ways,
            metrics=metrics,
            lambda_max=lambda_max,
            normalise=normalise,
        )

    columns = torch.cat(map_chunks(score, sets, tasks, device, None, None, progress)).cpu()
    return fit_calibration(
        columns,
        tasks.query_labels,
        metrics=metrics,
        shots=tasks.shots,
        dims=[s.dim for s in sets] * (len(metrics) if len(sets) == 1 else 1),
        lambda_max=lambda_max,
        normalise=normalise,
        features=[s.digest for s in sets],
        encoders=[s.source.get("encoder", "") for s in sets],
        tasks=tasks.digest,
    )


def chunk_size(
    sets: Sequence[Features],
    tasks: Tasks,
    device: str | torch.device = "cpu",
    chunk_bytes: int | None = None,
    memory: float = 1.0,
) -> int:
    """Count the tasks of a chunk. Whoever splits tasks does so between chunks, so that all bits stay the same.

    On an accelerator a method allocates `memory` times the bytes of the gathered features.
    """
    per_task = 4 * sum(s.dim for s in sets) * (tasks.support.shape[1] + tasks.query.shape[1])
    if chunk_bytes is None and torch.device(device).type != "cpu":
        return max(1, int(ACCELERATOR_BYTES / (per_task * (1 + memory))))
    return max(1, (chunk_bytes or CACHE_BYTES) // per_task)


def map_chunks(
    function: Callable[[list[Tensor], list[Tensor], slice], T],
    sets: Sequence[Features],
    tasks: Tasks,
    device: str | torch.device,
    chunk_bytes: int | None,
    workers: int | None,
    progress: Progress | None,
    scaling: Scaling | None = None,
    memory: float = 1.0,
) -> list[T]:
    """Apply a function to the gathered support and query features of one chunk of tasks after the other, in order.

    With a `scaling`, they are gathered as (x - origin) / length. A chunk that does not fit in the memory of the device
    is done in halves, and so are those after it.
    """
    on_cpu = torch.device(device).type == "cpu"
    size = chunk_size(sets, tasks, device, chunk_bytes, memory)
    support, query = tasks.support.to(device), tasks.query.to(device)  # sent once
    tables = [s.vectors.to(device) for s in sets]
    origin = None if scaling is None or scaling.origin is None else scaling.origin.to(device)
    lengths = [None] * len(sets) if scaling is None else [length.to(device) for length in scaling.lengths]

    if on_cpu:
        keep_memory()

    def run(chunk: slice) -> T:
        with torch.no_grad():
            supports = [_gather(*pair, origin, support[chunk]) for pair in zip(tables, lengths, strict=True)]
            queries = [_gather(*pair, origin, query[chunk]) for pair in zip(tables, lengths, strict=True)]
            return function(supports, queries, chunk)

    pieces = Pieces(
        size,
        f"expected memory for at least one task on {device}, but there was too little: use cpu (--device cpu), or "
        "fewer queries",
    )

    def run_from(start: int) -> list[T]:
        return pieces.map(run, start, min(start + size, len(tasks)))

    starts = range(0, len(tasks), size)
    threads = min(workers or (cores() if on_cpu else 1), len(starts))
    outcomes: list[T] = []
    for start, outcome in zip(starts, ordered_map(run_from, starts, threads=threads, one_core_each=True), strict=True):
        outcomes += outcome
        if progress is not None:
            progress(min(size, len(tasks) - start))
    return outcomes


def _gather(table: Tensor, lengths: Tensor | None, origin: Tensor | None, rows: Tensor) -> Tensor:
    flat = rows.reshape(-1)
    picked = table.index_select(0, flat).to(torch.promote_types(table.dtype, torch.float32))
    if origin is not None:
        picked -= origin
    if lengths is not None:
        picked /= lengths.index_select(0, flat)
    return picked.view(*rows.shape, table.shape[-1])


class Scaling(NamedTuple):
    """What is subtracted from every vector, and what it is then divided by."""

    origin: Tensor | None  # (d,)
    lengths: list[Tensor]  # (n, 1) of each set


def _hoist(method: Method, sets: Sequence[Features]) -> tuple[Method, Scaling | None]:
    """Take the normalisation out of a method: measure every vector once, instead of once in every task that has it.

    Only out of ours: what `normalise` and `base_mean` mean to a user's own method, we cannot know.
    """
    params = parameters_of(method) if is_ours(method) else {}
    origin = params.get("base_mean")
    if params.get("normalise") is True and not facts_of(method).rescales:
        run, origin = functools.partial(method, normalise=False), None
    elif isinstance(origin, Tensor) and origin.shape == (sets[0].dim,):
        run = functools.partial(method, base_mean=None)
    else:
        return method, None
    lengths = _lengths(sets, origin)
    return (method, None) if lengths is None else (run, Scaling(origin, lengths))


def _lengths(sets: Sequence[Features], origin: Tensor | None) -> list[Tensor] | None:
    """Measure every vector; nothing where squares could overflow or vanish."""
    lengths = []
    for features in sets:
        dtype = torch.promote_types(features.vectors.dtype, torch.float32)
        parts = (features.vectors[row : row + 4096].to(dtype) for row in range(0, len(features), 4096))
        parts = parts if origin is None else (part - origin.to(part) for part in parts)
        lengths.append(torch.cat([torch.linalg.vector_norm(part, dim=-1, keepdim=True) for part in parts]))
    safe = all(float(length.amin()) > 1e-15 and float(length.amax()) < 1e15 for length in lengths)
    return lengths if safe else None


def describe(method: Method) -> tuple[str, dict[str, Any]]:
    """Name a method and list its parameters as JSON: those given by `functools.partial` and the defaults.

    >>> import functools
    >>> from likelyshot.methods import METHODS
    >>> describe(functools.partial(METHODS["mll"], lambda_max=80.0))
    ('mll', {'lambda_max': 80.0, 'normalise': True, 'shrinkage': 0.0})
    """
    return name_of(method), {key: _plain(value) for key, value in parameters_of(method).items()}


def _plain(value: Any) -> Any:
    """Turn a parameter into what JSON can hold: arrays into their digest, other objects into their kind."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        return {"shape": list(array.shape), "digest": hashlib.sha256(array.tobytes()).hexdigest()[:16]}
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.item()
    if isinstance(value, Calibration):
        return value.to_dict()
    if isinstance(value, Head):
        return {"head": value.name, **value.params, "dim": value.dim, **value.trained, "digest": value.digest[:16]}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str | int | float | None) else type(value).__qualname__


def _check_features(sets: Sequence[Features], tasks: Tasks, normalised: bool) -> None:
    if not len(tasks):
        raise InputError("expected at least one task, got none: sample more, or take a longer slice")
    for features in sets:
        tasks.check(features.labels)
        if normalised:
            zero = (features.vectors == 0).all(-1).nonzero().flatten()
            if len(zero):
                row = int(zero[0])
                raise InputError(
                    f"feature vector {row + 1} (class {features.classes[int(features.labels[row])]}) is all zeros, "
                    f"{len(zero)} of {len(features)} are: it has no direction to normalise, so drop such rows or "
                    "evaluate with normalise=False (--no-normalise)"
                )

"""Few-shot tasks: which rows are support and which are query, drawn once and shared by every method."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.files import write_whole

BLOCK = 256  # tasks drawn from one random stream; another value gives other tasks
REDRAWS = 1_000  # times the query counts of a task are drawn before we give up
_POOL_ENTRIES = 8_000_000  # largest table shuffled at once: 32 MB
_FORMAT = "likelyshot-tasks-1"
_ARRAYS = ("support", "query", "query_labels", "classes")

Ints: TypeAlias = NDArray[np.int64]
Labels: TypeAlias = Tensor | NDArray[Any] | Sequence[int]


@dataclass(frozen=True)
class Balanced:
    """The same number of queries from every class of a task."""

    per_class: int = 15

    def __post_init__(self) -> None:
        _check_whole(per_class=self.per_class)

    def describe(self) -> str:
        """Say it in words: "balanced, 15 per class"."""
        return f"balanced, {self.per_class} per class"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "balanced", "per_class": int(self.per_class)}


@dataclass(frozen=True)
class Dirichlet:
    """Queries divided among the classes of a task by a symmetric Dirichlet(alpha): imbalanced.

    Proportions become counts by the largest-remainder rule, so that a class may get none
    (Veilleux et al. 2021, "Realistic evaluation of transductive few-shot learning").
    """

    total: int = 75
    alpha: float = 2.0

    def __post_init__(self) -> None:
        _check_whole(total=self.total)
        if not isinstance(self.alpha, Real) or isinstance(self.alpha, bool) or not 0 < self.alpha <= 1e100:
            raise InputError(f"expected alpha above 0, at most 1e100, but got {self.alpha!r}: 2 is customary")

    def describe(self) -> str:
        """Say it in words: "Dirichlet(2), 75 queries"."""
        return f"Dirichlet({self.alpha:g}), {self.total} queries"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "dirichlet", "total": int(self.total), "alpha": float(self.alpha)}


@dataclass(frozen=True, eq=False)
class Tasks:
    """Indices into features, one row per task; t tasks of k ways. Compare two by their `digest`."""

    support: Tensor  # (t, k*shots) int32 rows of the features, those of way 0 first
    query: Tensor  # (t, q) int32 rows of the features, shuffled
    query_labels: Tensor  # (t, q) int16 way of each query, 0..k-1
    classes: Tensor  # (t, k) int32 label, in the features, of each way
    ways: int
    shots: int
    config: Mapping[str, Any]  # JSON: how they were drawn, and from which labels

    def __post_init__(self) -> None:
        t, q = self.classes.shape[:1], self.query.shape[1:2] or (0,)
        shapes = ((*t, self.ways * self.shots), (*t, *q), (*t, *q), (*t, self.ways))
        dtypes = (torch.int32, torch.int32, torch.int16, torch.int32)
        for name, *expected in zip(_ARRAYS, shapes, dtypes, strict=True):
            found = [tuple(getattr(self, name).shape), getattr(self, name).dtype]
            if found != expected:
                raise InputError(f"expected {name} of {expected} in tasks, but got {found}: sample them anew")
        wrong_way = (self.query_labels < 0) | (self.query_labels >= self.ways)
        if wrong_way.any() or (self.support < 0).any() or (self.query < 0).any():
            raise InputError(f"expected rows from 0 and ways below {self.ways} in tasks: sample them anew")

    @property
    def support_labels(self) -> Tensor:
        """Way of each support row, (k*shots,) int64: the same for every task."""
        return torch.arange(self.ways).repeat_interleave(self.shots)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: slice) -> Tasks:
        """Take some of the tasks, without a copy."""
        if not isinstance(part, slice) or (part.step is not None and part.step < 1):
            raise InputError(f"expected a forward slice of tasks, but got {part!r}: write tasks[i:i + 1]")
        kept = range(*self.config.get("range", (0, len(self), 1)))[part]
        config = {**self.config, "n_tasks": len(kept), "range": [kept.start, kept.stop, kept.step]}
        arrays = {name: getattr(self, name)[part] for name in _ARRAYS}
        return Tasks(**arrays, ways=self.ways, shots=self.shots, config=config)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays: equal exactly when the tasks are."""
        sha = hashlib.sha256()
        for name in _ARRAYS:
            array = getattr(self, name).cpu().numpy()
            sha.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        return sha.hexdigest()

    def check(self, labels: Labels) -> None:
        """Raise InputError unless the tasks were drawn from these very labels."""
        given, drawn_from = _labels_digest(_as_labels(labels)), str(self.config.get("labels_digest"))
        if given != drawn_from:
            sizes = (
                f"{self.config.get('n_labels', '?')} ({drawn_from[:8]}), but got {len(labels)} ({given[:8]})"
            )
            remedy = "use the features the tasks were drawn from, or sample tasks from these"
            raise InputError(f"these tasks were drawn from other labels: expected {sizes}: {remedy}")

    def save(self, path: str | Path) -> None:
        """Write the tasks to a safetensors file."""
        config = json.dumps(dict(self.config), allow_nan=False)
        about = {"format": _FORMAT, "ways": str(self.ways), "shots": str(self.shots), "config": config}
        arrays = {name: getattr(self, name).contiguous() for name in _ARRAYS}
        write_whole(path, safetensors.torch.save(arrays, {**about, "checksum": self._checksum(config)}))

    @classmethod
    def load(cls, path: str | Path) -> Tasks:
        """Read tasks written by `save`; a foreign, damaged or altered file is refused."""
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                if about.get("format") != _FORMAT:
                    raise InputError(f"its format is {about.get('format')!r}, not {_FORMAT!r}")
                arrays = {name: file.get_tensor(name).clone() for name in _ARRAYS}
            ways, shots, config = int(about["ways"]), int(about["shots"]), json.loads(about["config"])
            tasks = cls(**arrays, ways=ways, shots=shots, config=config)
            if about["checksum"] != tasks._checksum(about["config"]):
                raise InputError("its checksum does not match what it holds")
        except (OSError, safetensors.SafetensorError, KeyError, ValueError) as error:
            problem = f"expected a file written by Tasks.save, but {path} is not, or is damaged ({error})"
            raise InputError(f"{problem}: name another, or sample the tasks anew") from None
        return tasks

    def _checksum(self, config: str) -> str:
        return hashlib.sha256((self.digest + config).encode()).hexdigest()


def sample_tasks(
    labels: Labels,  # (n,) class of each row of the features
    *,
    n_tasks: int = 10_000,
    ways: int = 5,
    shots: int = 1,
    query: Balanced | Dirichlet = Dirichlet(),  # noqa: B008  (frozen)
    seed: int = 0,
    overlap: bool = False,
    classes: Sequence[str] | None = None,  # names, for error messages
) -> Tasks:
    """Draw tasks: `ways` classes, and of each its support and its queries, all different images.

    Task i does not depend on `n_tasks`: ten tasks are the first ten of ten thousand. Dirichlet counts that ask
    a class for more images than it has are drawn again. `overlap=True` draws support and query independently
    of each other, as public code does, so that a query may be in the support: only to compare with its figures.

    >>> tasks = sample_tasks([0, 1, 2] * 20, n_tasks=100, ways=2, shots=5, query=Balanced(10))
    >>> tasks.support.shape, tasks.query.shape
    (torch.Size([100, 10]), torch.Size([100, 20]))
    """
    values = _as_labels(labels)
    _check_whole(n_tasks=n_tasks, shots=shots)
    _check_whole(least=2, ways=ways)
    _check_whole(least=0, seed=seed)
    if not isinstance(query, Balanced | Dirichlet):
        raise InputError(
            f"expected a Balanced or Dirichlet query plan, but got {query!r}: e.g. Dirichlet(75)"
        )
    by_class = np.argsort(values, kind="stable")  # (n,) rows, class after class
    ids, first, sizes = np.unique(values[by_class], return_index=True, return_counts=True)
    known = dict(enumerate(classes or ()))
    names = [repr(known.get(label, label)) for label in ids.tolist()]
    _check_sizes(sizes, names, ways, shots, query, overlap)

    def draw_block(block: int) -> tuple[NDArray[Any], ...]:
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(int(seed), spawn_key=(block,))))
        chosen = _draw_distinct(rng, np.full(BLOCK, len(ids)), ways)  # (t, k)
        if isinstance(query, Balanced):
            counts = np.full_like(chosen, query.per_class)  # (t, k)
        else:
            counts = _draw_counts(rng, query, chosen, sizes, names, 0 if overlap else shots)
        most, images = int(counts.max()), sizes[chosen].ravel()
        drawn = [_draw_distinct(rng, images, n) for n in ((shots, most) if overlap else (shots + most,))]
        places = np.concatenate(drawn, axis=1).reshape(BLOCK, ways, -1) + first[chosen][:, :, None]
        wanted = (
            np.arange(most) < counts[:, :, None]
        )  # (t, k, most); places is (t, k, shots + most) in by_class
        order = rng.random((BLOCK, int(counts[0].sum()))).argsort(axis=1, kind="stable")  # (t, q)
        rows, of_way = (a.reshape(order.shape) for a in (places[:, :, shots:][wanted], wanted.nonzero()[1]))
        return (
            by_class[places[:, :, :shots]].reshape(BLOCK, -1).astype(np.int32),
            by_class[np.take_along_axis(rows, order, axis=1)].astype(np.int32),
            np.take_along_axis(of_way, order, axis=1).astype(np.int16),
            ids[chosen].astype(np.int32),
        )

    blocks = [draw_block(block) for block in range(-(-n_tasks // BLOCK))]
    arrays = [torch.from_numpy(np.concatenate(parts)[:n_tasks]) for parts in zip(*blocks, strict=True)]
    config = {"n_tasks": int(n_tasks), "range": [0, int(n_tasks), 1], "ways": int(ways), "shots": int(shots)}
    config |= {"query": query.to_dict(), "seed": int(seed), "overlap": bool(overlap)}
    config |= {"labels_digest": _labels_digest(values), "n_labels": len(values)}
    return Tasks(*arrays[:4], int(ways), int(shots), config)


def _draw_distinct(rng: np.random.Generator, sizes: Ints, steps: int) -> Ints:
    """Draw `steps` different numbers below each size, (r, steps), by the start of a Fisher-Yates shuffle.

    If a size is below `steps`, only that many entries of its row mean anything.
    """
    step = np.arange(steps)[:, None]
    swap = step + (rng.random((steps, len(sizes))) * np.maximum(sizes - step, 1)).astype(np.int64)
    width = max(int(sizes.max()), steps)
    at_once = max(1, _POOL_ENTRIES // width)
    drawn = []
    for start in range(0, len(sizes), at_once):
        targets = swap[:, start : start + at_once]  # (steps, r)
        row = np.arange(targets.shape[1])
        pool = np.repeat(np.arange(width, dtype=np.int32)[:, None], len(row), axis=1)  # (width, r)
        for here, there in enumerate(targets):
            picked = pool[there, row]
            pool[there, row] = pool[here]
            pool[here] = picked
        drawn.append(pool[:steps].T.astype(np.int64))
    return np.concatenate(drawn)


def _draw_counts(
    rng: np.random.Generator, plan: Dirichlet, chosen: Ints, sizes: Ints, names: list[str], reserved: int
) -> Ints:
    """Draw query counts, (t, k), and again for the tasks that ask a class for more images than it has."""
    counts, room, unfit = np.empty_like(chosen), sizes[chosen] - reserved, np.arange(len(chosen))
    for _ in range(REDRAWS):
        proportions = rng.dirichlet(np.full(chosen.shape[1], float(plan.alpha)), size=len(unfit))
        counts[unfit] = _largest_remainder(proportions, plan.total)
        unfit = np.flatnonzero((counts > room).any(axis=1))
        if not len(unfit):
            return counts
    worst = np.unravel_index((counts - room).argmax(), room.shape)
    needed = f"{counts[worst] + reserved} were needed in the last of {REDRAWS:,} draws for one task"
    raise _too_few(names[chosen[worst]], sizes[chosen[worst]], needed)


def _largest_remainder(proportions: NDArray[np.float64], total: int) -> Ints:
    """Round total * proportions, (t, k), down; what is left goes to the largest remainders, lower index first.

    >>> _largest_remainder(np.array([[0.5, 0.25, 0.25]]), 5)
    array([[3, 1, 1]])
    """
    shares = proportions * total
    counts = np.floor(shares).astype(np.int64)
    rank = (counts - shares).argsort(axis=1, kind="stable").argsort(axis=1)
    counts += rank < total - counts.sum(axis=1, keepdims=True)
    return counts


def _check_sizes(
    sizes: Ints, names: list[str], ways: int, shots: int, plan: Balanced | Dirichlet, overlap: bool
) -> None:
    if len(sizes) < ways:
        found = f"{len(sizes)}: ask for fewer ways" if len(sizes) > 1 else f"one class only, {names[0]}"
        raise InputError(
            f"expected at least {ways} classes for {ways}-way tasks, but got {found}, or add classes"
        )
    queries = plan.per_class if isinstance(plan, Balanced) else 0
    needed = max(shots, queries) if overlap else shots + queries
    for c in np.flatnonzero(sizes < needed):
        raise _too_few(names[c], sizes[c], f"{needed} are needed ({shots}-shot, {plan.describe()})")
    smallest = sizes.argsort(kind="stable")[:ways]
    room = sizes[smallest].sum() - (0 if overlap else ways * shots)
    if isinstance(plan, Dirichlet) and room < plan.total:
        needed = f"{plan.total} queries are needed and the {ways} smallest classes have room for {room}"
        raise _too_few(names[smallest[0]], sizes[smallest[0]], needed)


def _too_few(name: str, images: int, needed: str) -> InputError:
    remedy = "ask for fewer shots or queries, or leave that class out"
    return InputError(f"class {name} has {images} images, but {needed}: {remedy}")


def _as_labels(labels: Labels) -> Ints:
    try:
        values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected a list of integer labels, but got {error}: one per image") from None
    if values.ndim != 1 or not values.size:
        raise InputError(f"expected labels of shape (n,), n > 0, but got {values.shape}: one label per image")
    if values.dtype.kind not in "iu" or values.min() < -(2**31) or values.max() >= 2**31:
        remedy = "number the classes, e.g. numpy.unique(labels, return_inverse=True)[1]"
        raise InputError(f"expected integer labels of 32 bits, but got {values.dtype}: {remedy}")
    return values.astype(np.int64)


def _labels_digest(labels: Ints) -> str:
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _check_whole(least: int = 1, **numbers: object) -> None:
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise InputError(f"expected {name} to be an integer >= {least}, but got {value!r}: change {name}")

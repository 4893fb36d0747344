"""Few-shot tasks: which rows are support and which are query, drawn once and shared by every method."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.files import Count, read_container, write_container
from likelyshot.errors import InputError

BLOCK = 256  # tasks drawn from one random stream; another value gives other tasks
MOST_TASKS = 10_000_000  # nearly 5 GB, with 80 images in each
REDRAWS = 1_000  # times the query counts of a task are drawn before we give up
_POOL_ENTRIES = 8_000_000  # largest table shuffled at once: 32 MB
FORMAT = "likelyshot.tasks/1"
_REMEDY = "ask for fewer shots or queries, or leave that class out"
_ARRAYS = {"support": torch.int32, "query": torch.int32, "query_labels": torch.int16, "classes": torch.int32}

Ints: TypeAlias = NDArray[np.int64]
Labels: TypeAlias = Tensor | NDArray[Any] | Sequence[int]
Plan: TypeAlias = "Balanced | Dirichlet"


def check_whole(least: int, **numbers: Any) -> list[int]:
    """Give these numbers as int, or raise InputError for one that is no integer or below `least`."""
    for name, value in numbers.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InputError(f"expected {name} to be a whole number of at least {least}, but got {value!r}: change it")
    return [int(value) for value in numbers.values()]


@dataclass(frozen=True)
class Balanced:
    """The same number of queries from every class of a task.

    Args:
        per_class: Number of queries of each class.
    """

    per_class: int = 15

    def __post_init__(self) -> None:
        check_whole(1, per_class=self.per_class)

    def describe(self) -> str:
        """Describe the plan in words: "balanced, 15 per class"."""
        return f"balanced, {self.per_class} per class"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "balanced", "per_class": int(self.per_class)}


@dataclass(frozen=True)
class Dirichlet:
    """Queries in Dirichlet(alpha) class proportions, rounded by largest remainder (Veilleux et al. 2021).

    Args:
        total: Number of queries of a task.
        alpha: Concentration: the smaller, the more imbalanced. 2 is customary.
    """

    total: int = 75
    alpha: float = 2.0

    def __post_init__(self) -> None:
        check_whole(1, total=self.total)
        number = isinstance(self.alpha, int | float | np.floating) and not isinstance(self.alpha, bool)
        alpha = float(self.alpha) if isinstance(self.alpha, np.floating) else self.alpha
        if not number or not 0 < alpha <= 1e100:
            raise InputError(f"expected alpha above 0, at most 1e100, but got {self.alpha!r}: try 2")

    def describe(self) -> str:
        """Describe the plan in words: "Dirichlet(2), 75 queries"."""
        return f"Dirichlet({self.alpha:g}), {self.total} queries"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "dirichlet", "total": int(self.total), "alpha": float(self.alpha)}


#: What few-shot tasks are drawn with unless another plan is given.
IMBALANCED = Dirichlet()


def plan_from(config: Mapping[str, Any]) -> Balanced | Dirichlet:
    """Read what `to_dict` of a plan gave.

    >>> plan_from({"plan": "dirichlet", "total": 75, "alpha": 1.0})
    Dirichlet(total=75, alpha=1.0)
    """
    fields = dict(config)
    try:
        plan: Plan | None = {"balanced": Balanced, "dirichlet": Dirichlet}[fields.pop("plan")](**fields)
    except (KeyError, TypeError):
        plan = None
    if plan is None or plan.to_dict() != config:
        raise InputError(f"expected a query plan, balanced or dirichlet, but got {str(config)[:80]}")
    return plan


@dataclass(frozen=True, eq=False)
class Tasks:
    """Indices into features, one row per task: t tasks of k ways. Compare two by their `digest`.

    Args:
        support: Rows of the features, those of way 0 first, (t, k*shots) int32.
        query: Rows of the features, shuffled, (t, q) int32.
        query_labels: Way of each query, 0..k-1, (t, q) int16.
        classes: Label, in the features, of each way, (t, k) int32.
        ways: Number of classes of a task, k.
        shots: Number of support rows of each class.
        config: How they were drawn, and from which labels, as `sample_tasks` writes it.
    """

    support: Tensor
    query: Tensor
    query_labels: Tensor
    classes: Tensor
    ways: int
    shots: int
    config: Mapping[str, Any]

    def __post_init__(self) -> None:
        t, q = self.classes.shape[:1], self.query.shape[1:2] or (0,)
        shapes = ((*t, self.ways * self.shots), (*t, *q), (*t, *q), (*t, self.ways))
        expected = dict(zip(_ARRAYS, zip(_ARRAYS.values(), shapes, strict=True), strict=True))
        actual = {name: (getattr(self, name).dtype, tuple(getattr(self, name).shape)) for name in _ARRAYS}
        if actual != expected:
            raise InputError(f"expected tasks of {expected}, but got {actual}: sample them again")
        wrong_way = (self.query_labels < 0) | (self.query_labels >= self.ways)
        if wrong_way.any() or (self.support < 0).any() or (self.query < 0).any():
            raise InputError(f"expected rows from 0 and ways below {self.ways} in tasks: sample them again")
        try:
            config = msgspec.convert(self.config, _Config)
        except (msgspec.ValidationError, RecursionError) as error:
            raise InputError(
                f"expected a configuration of tasks, but got another ({error}): sample them again"
            ) from None
        if not len(range(*config.range)) == config.n_tasks == len(self):
            raise InputError(f"expected a range of {len(self)} tasks, but got {config.range}: sample them again")

    @property
    def support_labels(self) -> Tensor:
        """Way of each support row, (k*shots,) int64: the same for every task."""
        return torch.arange(self.ways).repeat_interleave(self.shots)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, part: slice) -> Tasks:
        if not isinstance(part, slice) or (part.step is not None and part.step < 1):
            raise InputError(f"expected a forward slice of tasks, but got {part!r}: write tasks[i:i + 1]")
        chosen = range(*self.config["range"])[part]
        config = {**self.config, "n_tasks": len(chosen), "range": [chosen.start, chosen.stop, chosen.step]}
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
        """Raise InputError unless the tasks were drawn from these very labels.

        Args:
            labels: Labels of the features, (n,).
        """
        digest, drawn_from = _as_labels(labels)[1], self.config["labels_digest"]
        if digest != drawn_from:
            expected = f"{self.config['n_labels']} labels (digest {drawn_from[:8]})"
            got = f"{len(labels)} other labels (digest {digest[:8]}): use the former, or sample the tasks again"
            raise InputError(f"expected the {expected} that the tasks were drawn from, but got {got}")

    def save(self, path: str | Path) -> Path:
        """Write the tasks to a safetensors file, whole or not at all.

        Args:
            path: The safetensors file.
        """
        facts = {"ways": self.ways, "shots": self.shots, "config": dict(self.config)}
        return write_container(path, {name: getattr(self, name) for name in _ARRAYS}, facts, form=FORMAT)

    @classmethod
    def load(cls, path: str | Path) -> Tasks:
        """Read tasks written by `save`; a file that is damaged, altered or of another kind raises InputError.

        Args:
            path: The safetensors file.
        """
        texts = {"what": "a file written by Tasks.save", "remedy": "name another, or sample the tasks again"}
        arrays, facts = read_container(path, _Facts, form=FORMAT, **texts)
        if arrays.keys() != _ARRAYS.keys():
            raise InputError(f"expected the arrays {', '.join(_ARRAYS)} in {path}, but got {', '.join(arrays)}")
        return cls(**arrays, ways=facts.ways, shots=facts.shots, config=facts.config)


class _Config(msgspec.Struct):
    """What must be known of how tasks were drawn."""

    n_tasks: Count
    range: tuple[Count, Count, Annotated[int, msgspec.Meta(ge=1)]]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    overlap: bool
    query: dict[str, Any]
    labels_digest: str
    n_labels: Count

    def __post_init__(self) -> None:
        plan_from(self.query)


class _Facts(msgspec.Struct):
    """What a file of tasks holds besides its arrays."""

    ways: Annotated[int, msgspec.Meta(ge=1, lt=2**15)]
    shots: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    config: dict[str, Any]


def sample_tasks(
    labels: Labels,
    *,
    n_tasks: int = 10_000,
    ways: int = 5,
    shots: int = 1,
    query: Plan = IMBALANCED,
    seed: int = 0,
    overlap: bool = False,
    classes: Sequence[str] | None = None,
) -> Tasks:
    """Draw tasks: `ways` classes, and of each its support and its queries, all different images.

    Task i does not depend on `n_tasks`: ten tasks are the first ten of ten thousand. Dirichlet counts that ask a class
    for more images than it has are drawn again.

    Args:
        labels: Class of each row of the features, (n,).
        n_tasks: Number of tasks.
        ways: Number of classes of a task.
        shots: Number of labelled examples of each class.
        query: How many queries each class has: `Balanced` or `Dirichlet`. Default: Dirichlet(75, 2).
        seed: Another seed gives other tasks.
        overlap: Draw support and query without regard to each other, as public code does, so that they share images.
            Only to compare with its figures.
        classes: Names of the classes, for error messages.

    >>> tasks = sample_tasks([0, 1, 2] * 20, n_tasks=100, ways=2, shots=5, query=Balanced(10))
    >>> tasks.support.shape, tasks.query.shape
    (torch.Size([100, 10]), torch.Size([100, 20]))
    """
    values, labels_digest = _as_labels(labels)
    n_tasks, shots = check_whole(1, n_tasks=n_tasks, shots=shots)
    if n_tasks > MOST_TASKS:
        raise InputError(f"expected at most {MOST_TASKS:,} tasks, but got {n_tasks:,}: draw fewer, by several seeds")
    ways, seed = *check_whole(2, ways=ways), *check_whole(0, seed=seed)
    if not isinstance(query, (Balanced, Dirichlet)):
        raise InputError(f"expected a query plan, but got {query!r}: give Balanced(15) or Dirichlet(75)")
    by_class = np.argsort(values, kind="stable")  # (n,) rows, class after class
    ids, first, sizes = np.unique(values[by_class], return_index=True, return_counts=True)
    names = [repr(classes[c] if classes and 0 <= c < len(classes) else c) for c in ids.tolist()]
    reserved = 0 if overlap else shots  # images of a class that cannot be queries
    _check_sizes(sizes, names, ways, shots, query, reserved)

    def draw_block(block: int) -> tuple[Ints, ...]:
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(block,))))
        chosen = _draw_distinct(rng, np.full(BLOCK, len(ids)), ways)  # (t, k)
        images = sizes[chosen]  # (t, k)
        counts = _draw_counts(rng, query, images - reserved)  # (t, k)
        worst = np.unravel_index((counts - images).argmax(), counts.shape)
        if counts[worst] + reserved > images[worst]:
            got = f"class {names[chosen[worst]]} has {images[worst]} images"
            needed = f"{counts[worst] + reserved} were needed in the last of {REDRAWS:,} draws for one task"
            raise InputError(f"{got}, but {needed}: {_REMEDY}")
        most = int(counts.max())
        steps = (shots, most) if overlap else (shots + most,)
        numbers = np.concatenate([_draw_distinct(rng, images.ravel(), n) for n in steps], axis=1)
        places = numbers.reshape(BLOCK, ways, -1) + first[chosen][:, :, None]  # (t, k, shots + most)
        coded = places[:, :, shots:] * ways + np.arange(ways)[:, None]  # place and way in one number
        queries = coded[np.arange(most) < counts[:, :, None]].reshape(BLOCK, -1)  # (t, q)
        query_places, query_ways = np.divmod(rng.permuted(queries, axis=1), ways)
        support = by_class[places[:, :, :shots]].reshape(BLOCK, -1)
        return support, by_class[query_places], query_ways, ids[chosen]

    blocks = zip(*(draw_block(block) for block in range(-(-n_tasks // BLOCK))), strict=True)
    support, queries, of_way, chosen = (torch.from_numpy(np.concatenate(b)[:n_tasks]) for b in blocks)
    config = {"n_tasks": n_tasks, "range": [0, n_tasks, 1], "seed": seed, "overlap": bool(overlap)}
    config |= {"query": query.to_dict(), "labels_digest": labels_digest, "n_labels": len(values)}
    return Tasks(support.int(), queries.int(), of_way.short(), chosen.int(), ways, shots, config)


def _draw_distinct(rng: np.random.Generator, sizes: Ints, steps: int) -> Ints:
    """Draw `steps` (or all) different numbers below each size, (r, steps): a partial Fisher-Yates shuffle."""
    step = np.arange(steps)[:, None]
    swap = step + (rng.random((steps, len(sizes))) * np.maximum(sizes - step, 1)).astype(np.int64)
    width = max(int(sizes.max()), steps)
    parts = []
    for targets in np.array_split(swap, min(len(sizes), width * len(sizes) // _POOL_ENTRIES + 1), axis=1):
        row = np.arange(targets.shape[1])
        pool = np.repeat(np.arange(width, dtype=np.int32)[:, None], len(row), axis=1)  # (width, r)
        for position, target in enumerate(targets):
            picked = pool[target, row]
            pool[target, row] = pool[position]
            pool[position] = picked
        parts.append(pool[:steps].copy())
    return np.array(np.concatenate(parts, axis=1).T, dtype=np.int64, order="C")


def _draw_counts(rng: np.random.Generator, plan: Plan, room: Ints) -> Ints:
    """Draw query counts, (t, k), and again, up to REDRAWS times, for the tasks where they exceed the room."""
    if isinstance(plan, Balanced):
        return np.full_like(room, plan.per_class)
    counts, unfit = np.empty_like(room), np.arange(len(room))
    for _ in range(REDRAWS):
        proportions = rng.dirichlet(np.full(room.shape[1], float(plan.alpha)), size=len(unfit))
        counts[unfit] = _largest_remainder(proportions, plan.total)
        unfit = np.flatnonzero((counts > room).any(axis=1))
        if not len(unfit):
            break
    return counts


def _largest_remainder(proportions: NDArray[np.float64], total: int) -> Ints:
    """Round total * proportions, (t, k), down; the rest goes to the largest remainders, lower index first."""
    shares = proportions * total
    counts = np.floor(shares).astype(np.int64)
    rank = (counts - shares).argsort(axis=1, kind="stable").argsort(axis=1)
    counts += rank < total - counts.sum(axis=1, keepdims=True)
    return counts


def _check_sizes(sizes: Ints, names: list[str], ways: int, shots: int, plan: Plan, reserved: int) -> None:
    if len(sizes) < ways:
        got = f"{len(sizes)} classes" if len(sizes) > 1 else f"one class only, {names[0]}"
        raise InputError(
            f"expected at least {ways} classes for {ways}-way tasks, but got {got}: add some, or ask for fewer ways"
        )
    least = max(shots, reserved + plan.per_class if isinstance(plan, Balanced) else 0)
    short, needed = np.flatnonzero(sizes < least), f"{least} are needed ({shots}-shot, {plan.describe()})"
    smallest = sizes.argsort(kind="stable")[:ways]
    room = int(sizes[smallest].sum()) - ways * reserved  # Python's integers: shots of any size get an answer
    if not len(short) and isinstance(plan, Dirichlet) and room < plan.total:
        short, needed = smallest, f"{plan.total} queries are needed and the {ways} smallest have {room}"
    if len(short):
        raise InputError(f"class {names[short[0]]} has {sizes[short[0]]} images, but {needed}: {_REMEDY}")


def _as_labels(labels: Labels) -> tuple[Ints, str]:
    """Give labels as (n,) int64, and their digest."""
    values = np.asarray(labels.tolist() if isinstance(labels, Tensor) else labels)
    whole = values.ndim == 1 and values.size and values.dtype.kind in "iu"
    if not whole or values.min() < -(2**31) or values.max() >= 2**31:
        got = f"{values.dtype} {values.shape}"
        raise InputError(f"expected integer labels (n,), n > 0, but got {got}: number the classes from 0")
    return values.astype(np.int64), hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()

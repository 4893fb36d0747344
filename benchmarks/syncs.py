"""How often every method makes the host wait for the device, for one chunk of 64 tasks: the table of docs/gpu.md.

python -m benchmarks.syncs

Counted without a GPU, by a dispatch mode that sees every operation of torch: what needs a value on the host
(`.item()`, an `if` on a tensor, `equal`), what has an output whose shape the host must know (`nonzero`, indexing by a
mask, `unique`), and what asks whether a decomposition failed. Methods run as `evaluate` runs them, on the path that
accelerators take.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from likelyshot import Balanced, Base, Features, calibrate, heads, machine, sample_tasks
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of, needs_of, parameters_of, takes_of

TASKS, WAYS, QUERIES, DIM = 64, 5, 15, 24
SHOTS = (1, 5)

#: Operations for which the host waits; `_linalg_eigh` and `_linalg_svd` ask for their error inside.
WAITS = {
    "_local_scalar_dense",
    "equal",
    "is_nonzero",
    "nonzero",
    "masked_select",
    "unique_dim",
    "_unique2",
    "unique_consecutive",
    "bincount",
    "_linalg_check_errors",
    "_linalg_eigh",
    "_linalg_svd",
}
MASKED = {"index", "index_put", "index_put_", "_index_put_impl_"}


class HostSyncs(TorchDispatchMode):
    """Count what makes the host wait and the bytes at the peak, and see any double precision on the device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.double, self.counts = device, False, Counter[str]()
        self.references, self.now, self.peak = Counter[int](), 0, 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in WAITS or (name in MASKED and any(isinstance(x, Tensor) and x.dtype == torch.bool for x in args[1])):
            self.counts[name] += 1
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if isinstance(x, Tensor) and x.device.type == self.device:
                self.double |= x.dtype == torch.float64
                self._hold(x)
        return made

    def _hold(self, x: Tensor) -> None:
        """Count the bytes of a tensor until nothing that shares them is left."""
        storage = x.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if self.references[key] == 0:
            self.now += size
            self.peak = max(self.peak, self.now)
        self.references[key] += 1
        weakref.finalize(x, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.references[key] -= 1
        self.now -= size if self.references[key] == 0 else 0


@contextmanager
def as_on_an_accelerator() -> Iterator[None]:
    """Have methods take the path of accelerators, with inputs that are checked already."""
    with mock.patch.object(machine, "on_accelerator", return_value=True), machine.checked_inputs(), torch.no_grad():
        yield


@functools.cache
def chunk(queries: int = QUERIES, dim: int = DIM, shots: int = 1) -> tuple[Features, Tensor, Tensor, Tensor]:
    """Give features and one chunk of tasks of them: support, labels, query."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 20
    vectors = torch.rand(600, dim, generator=generator) * torch.rand(20, dim, generator=generator)[labels]
    features = Features.from_arrays(torch.nn.functional.normalize(vectors, dim=-1), labels)
    tasks = sample_tasks(labels, n_tasks=TASKS, ways=WAYS, shots=shots, query=Balanced(queries // WAYS), seed=0)
    return features, features.vectors[tasks.support], tasks.support_labels, features.vectors[tasks.query]


@functools.cache
def ready(name: str, dim: int = DIM, shots: int = 1) -> functools.partial[Tensor]:
    """Give a method with all that it needs from other data."""
    features = chunk(QUERIES, dim)[0]
    tasks = sample_tasks(features.labels, n_tasks=30, ways=WAYS, shots=shots, query=Balanced(3), seed=1)
    make = {
        "base_mean": lambda: Base.of(features).mean,
        "base_within": lambda: Base.of(features).within,
        "calibration": lambda: calibrate(features, tasks),
        "network_weights": lambda: torch.ones(1),
        "head": lambda: heads.build(name, {"ways": WAYS} if "ways" in heads.parameters(name, {}) else {}, dim=dim),
    }
    method = METHODS[name]
    few = {"steps": 20} if parameters_of(method).get("steps", 0) > 20 else {}  # each step is like the others
    statistics = {key: make[key]() for key in [*needs_of(method), *takes_of(method)]}
    return functools.partial(method, n_ways=WAYS, **statistics, **few)


def count(
    name: str, device: str = "cpu", queries: int = QUERIES, dim: int = DIM, shots: int = 1, tasks: int = TASKS
) -> tuple[HostSyncs, Tensor]:
    """Run one chunk of a method, and count: what was seen, and the scores. On `meta` nothing is computed."""
    support, labels, query = (x.to(device) for x in chunk(queries, dim, shots)[1:])
    support, query = support[:tasks], query[:tasks]
    method = ready(name, dim, shots)
    with as_on_an_accelerator():
        if device != "meta":
            method(support[:1], labels, query[:1])  # what is computed once and kept
        with HostSyncs(device) as seen:
            scores = method(support, labels, query)
    return seen, scores


def multiple(seen: HostSyncs, shots: int = 1) -> float:
    """Give the peak of what a method allocated, as a multiple of the features, for 75 queries of 512 numbers."""
    return seen.peak / (TASKS * (WAYS * shots + 75) * 512 * 4)


def main() -> None:
    table = Table(title=f"A chunk of {TASKS} tasks, {WAYS}-way", title_justify="left")
    for column in ("method", *(f"syncs, {shots}-shot" for shots in SHOTS), "memory", "double precision", "waits for"):
        table.add_column(column, justify="right" if column[:5] in ("syncs", "memor") else "left")
    for name in METHODS:
        counts, facts = [count(name, shots=shots)[0].counts for shots in SHOTS], facts_of(METHODS[name])
        what = ", ".join(f"{n} {key}" for key, n in counts[-1].items())
        numbers = [str(each.total()) for each in counts]
        table.add_row(name, *numbers, f"{facts.memory:g}", "yes" if facts.double else "", what)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

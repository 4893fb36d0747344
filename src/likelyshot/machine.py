"""The machine that we run on: cores, devices, threads, memory, and the cluster that work may be sent to."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from likelyshot.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

#: Called with the number of steps that have been done since the last call.
Progress = Callable[[int], None]

#: Bytes of a working set that stays in cache: larger temporaries cost several times as much. With smaller ones, threads
#: wait for Python more often between operations.
CACHE_BYTES = 8 * 2**20

#: Devices that have no double precision.
WITHOUT_DOUBLE = {"mps"}

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h

_state = threading.local()


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_device(device: str) -> str:
    """Return the device, or raise InputError if this machine does not have it, or if workers of a cluster do not."""
    import torch

    try:
        if cluster() is not None and torch.device(device).type != "cpu":
            raise InputError(f"expected the device cpu on a Ray cluster, got {device}: leave out --device, or --ray")
        torch.zeros(1, device=device).cpu()
    except InputError:
        raise
    except (RuntimeError, AssertionError, ImportError, AttributeError, TypeError, ValueError, OverflowError):
        raise InputError(f"device {device!r} is not available on this machine: use cpu (--device cpu)") from None
    return device


def half_precision(device: str) -> str:
    """Name the half precision that encoders run in on a device, "fp16", or "" for a CPU and for devices without one."""
    import torch

    kind = torch.device(device).type
    return "fp16" if kind != "cpu" and torch.amp.is_autocast_available(kind) else ""


def copied_to(device: str, x: Tensor) -> Tensor:
    """Copy a tensor to a device; to CUDA from pinned memory, which is quicker and does not make the host wait."""
    if device.startswith("cuda"):
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


class Pieces:
    """Ranges that fit in the memory of a device. One that does not fit is done in halves, and so are those after it.

    Args:
        most: The length of a range, to begin with.
        too_little: What to say if a range of one does not fit.

    >>> Pieces(2, "").map(lambda piece: piece, 0, 3)
    [slice(0, 2, None), slice(2, 3, None)]
    """

    def __init__(self, most: int, too_little: str) -> None:
        self.most, self.too_little = most, too_little

    def map(self, function: Callable[[slice], R], start: int, stop: int) -> list[R]:
        """Call a function with one range after the other.

        Args:
            function: Raises torch.OutOfMemoryError if a range is too long.
            start: Where the first range begins.
            stop: Where the last range ends.
        """
        import torch

        done = []
        while start < stop:
            piece = slice(start, min(start + self.most, stop))
            try:
                done.append(function(piece))
            except torch.OutOfMemoryError:
                if piece.stop - piece.start == 1:
                    raise InputError(self.too_little) from None
                self.most = (piece.stop - piece.start) // 2
                continue
            start = piece.stop
        return done


def ordered_map(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    threads: int | None = None,
    ahead: int | None = None,
    one_core_each: bool = False,
) -> Generator[R, None, None]:
    """Map a function over items in threads, and yield the results in the order of the items.

    Args:
        function: What to call with each item.
        items: Consumed a little ahead of the results, so an endless or very long iterable needs little memory.
        threads: Number of threads. Default: one per core.
        ahead: Number of items in work at a time. Default: two per thread, and one.
        one_core_each: Have each thread run torch on one core. Small tensors are faster when the threads,
            and not the operations, share the cores.

    A single item needs no thread: the caller's computes it.
    An exception of the function, or closing the generator, cancels the items that have not started.

    >>> list(ordered_map(str.upper, ["a", "b"], threads=2))
    ['A', 'B']
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:
        with _torch_threads(one_core_each) as initializer:
            if initializer is not None:
                initializer()
            results = [function(item) for item in first]
        yield from results
        return
    count = threads or cores()
    most = ahead or 2 * count + 1
    waiting: deque[Future[R]] = deque()
    with _torch_threads(one_core_each) as initializer:
        pool = ThreadPoolExecutor(count, initializer=initializer)
        try:
            for item in chain(first, items):
                waiting.append(pool.submit(function, item))
                if len(waiting) >= most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


class Cluster(Protocol):
    """Other machines that compute blocks: see `likelyshot.workers.Ray`."""

    @property
    def workers(self) -> int:
        """How many blocks are computed at a time."""

    def map(self, function: Callable[[S, T], R], shared: S, items: Iterable[T]) -> Generator[R, None, None]:
        """Do what `map_blocks` does."""


_cluster: ContextVar[Cluster | None] = ContextVar("cluster", default=None)


def cluster() -> Cluster | None:
    """Give the cluster that work is sent to now, if there is one."""
    return _cluster.get()


@contextlib.contextmanager
def sent_to(joined: Cluster) -> Iterator[None]:
    """Send the blocks of `map_blocks` to a cluster.

    Args:
        joined: What computes them.
    """
    token = _cluster.set(joined)
    try:
        yield
    finally:
        _cluster.reset(token)


def map_blocks(function: Callable[[S, T], R], shared: S, items: Iterable[T]) -> Generator[R, None, None]:
    """Call a module-level function with what is shared and with each item; yield the results in the order of the items.

    Calls run in threads, one per core, or as tasks of the cluster that `likelyshot.workers.on_ray` has joined. Torch
    runs on one core in each of them, so that neither the number of threads nor that of machines changes a bit.

    Args:
        function: Called as function(shared, item).
        shared: Sent once to every worker of a cluster.
        items: Consumed a little ahead of the results.

    >>> list(map_blocks(pow, 2, [1, 2, 3]))
    [2, 4, 8]
    """
    joined = cluster()
    if joined is not None:
        return joined.map(function, shared, items)
    return ordered_map(partial(function, shared), items, one_core_each=True)


@contextlib.contextmanager
def _torch_threads(single: bool) -> Iterator[Callable[[], None] | None]:
    """Give what a worker calls first so that torch uses one core in it, and undo what that changes for other threads.

    `torch.set_num_threads` in one thread also sets the default of all threads that start later.
    """
    if not single:
        yield None
        return
    import torch

    before = torch.get_num_threads()
    try:
        yield lambda: torch.set_num_threads(1)
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def checked_inputs() -> Iterator[None]:
    """Have methods skip the checks of the values of their inputs, in this thread.

    For callers that run a method on one chunk of tasks after the other and have checked all features before: they are
    finite, non-negative if the method needs that, and have lengths from 1e-15 to 1e15 or zero, and labels are in range.

    >>> with checked_inputs():
    ...     inputs_are_checked()
    True
    >>> inputs_are_checked()
    False
    """
    before = inputs_are_checked()
    _state.checked = True
    try:
        yield
    finally:
        _state.checked = before


def inputs_are_checked() -> bool:
    """Whether the caller has checked the values of the inputs."""
    return getattr(_state, "checked", False)


def on_accelerator(x: Tensor) -> bool:
    """Whether to ask for values of this tensor makes the host wait, so that a few rounds in vain cost less.

    The host then waits until the device has computed all that was asked before.
    """
    return not x.is_cpu


def widest(x: Tensor) -> Tensor:
    """Give a tensor in the highest precision that its device has.

    >>> import torch
    >>> widest(torch.zeros(1)).dtype
    torch.float64
    """
    return x.float() if x.device.type in WITHOUT_DOUBLE else x.double()


@functools.cache
def keep_memory() -> None:
    """Have glibc keep freed memory: handed back, the temporaries of every step would page-fault again.

    This sets two options of glibc's allocator for the whole process, once; docs/training.md has the gain. What the
    user sets by MALLOC_ variables stays, and other allocators are not affected.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no libc to load, or one without mallopt
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(M_MMAP_THRESHOLD, 2**30):  # older versions of glibc refuse more than 32 MB
            mallopt(M_MMAP_THRESHOLD, 32 * 2**20)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)

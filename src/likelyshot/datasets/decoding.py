"""Pixels of a data set: all in memory, or batch by batch."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.datasets.image_set import ImageSet
from likelyshot.errors import InputError
from likelyshot.images import ImageError
from likelyshot.items import Problem

T = TypeVar("T")
R = TypeVar("R")

CHUNK = 64  # images that a thread decodes before it says so
NAMED = 10  # unreadable images that an error names


@dataclass(frozen=True, eq=False)
class Decoded:
    """Square images in memory."""

    pixels: Tensor  # (n, 3, size, size) uint8
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()  # what could not be read and was left out

    def __len__(self) -> int:
        return len(self.labels)


def decoded(
    images: ImageSet,
    size: int,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Decoded:
    """Read a whole data set: the shorter side becomes `size`, and the middle square of it is kept.

    Needs n x 3 x size x size bytes. Unreadable images are reported together, by name, when all others are read; or left
    out, if the set says so. `progress` is called with the number of images read since the last call.
    """
    if size < 1:
        raise InputError(f"expected a size of at least 1 pixel, but got {size}: give a larger one")
    pixels = torch.empty(len(images), 3, size, size, dtype=torch.uint8)
    chunks = [range(start, min(start + CHUNK, len(images))) for start in range(0, len(images), CHUNK)]
    problems: dict[int, Problem] = {}

    def fill(chunk: Sequence[int]) -> tuple[int, dict[int, Problem]]:
        return len(chunk), _read(images, chunk, size, pixels[chunk[0] : chunk[-1] + 1].numpy())

    for count, wrong in _in_threads(fill, chunks, workers):
        problems |= wrong
        if progress is not None:
            progress(count)
    _report(problems.values(), images)
    if not problems:
        return Decoded(pixels, images.labels, images.classes)
    kept = torch.ones(len(images), dtype=torch.bool)
    kept[list(problems)] = False
    return Decoded(pixels[kept], images.labels[kept], images.classes, tuple(problems.values()))


def batches(
    images: ImageSet, size: int, order: Iterable[Sequence[int]], *, workers: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Read a data set batch by batch, in the given order, ahead of what is asked for.

    Yields pixels (b, 3, size, size) uint8 and labels (b,) for each sequence of positions in `order`, without the
    unreadable ones if the set says so.
    """

    def read(batch: Sequence[int]) -> tuple[Tensor, Tensor]:
        pixels = torch.empty(len(batch), 3, size, size, dtype=torch.uint8)
        problems = _read(images, batch, size, pixels.numpy())
        _report(problems.values(), images)
        kept = [place for place, i in enumerate(batch) if i not in problems]
        positions = torch.tensor([batch[place] for place in kept], dtype=torch.int64)
        return (pixels[kept] if problems else pixels), images.labels[positions]

    yield from _in_threads(read, order, workers)


def _read(images: ImageSet, positions: Sequence[int], size: int, into: NDArray[np.uint8]) -> dict[int, Problem]:
    """Decode some images into an array (n, 3, size, size); give what was wrong with those that could not be read."""
    from PIL import Image, ImageOps

    problems = {}
    for row, i in enumerate(positions):
        try:
            image = images.read(i, side=size)
        except ImageError as error:
            problems[i] = Problem(images.names[i], error.kind, error.detail)
            continue
        square = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
        into[row] = np.asarray(square).transpose(2, 0, 1)
    return problems


def _report(problems: Iterable[Problem], images: ImageSet) -> None:
    wrong = list(problems)
    if wrong and not (images.skip_unreadable and len(wrong) < len(images)):
        named = ", ".join(f"{problem.name!r} ({problem.kind})" for problem in wrong[:NAMED])
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        remedy = "mend them" if images.skip_unreadable else "mend them, or have unreadable images skipped"
        raise InputError(f"expected readable images, but got {len(wrong)} that are not, {named}{more}: {remedy}")


def _in_threads(function: Callable[[T], R], tasks: Iterable[T], workers: int | None) -> Iterator[R]:
    """Give the results in order; threads work a little ahead (Pillow decodes without the interpreter's lock)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or cores
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(count)
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) > 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)

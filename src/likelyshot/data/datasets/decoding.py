"""Pixels of a data set: all in memory, or handed over a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.datasets.image_set import ImageSet
from likelyshot.data.images import ImageError
from likelyshot.data.items import Problem
from likelyshot.errors import InputError
from likelyshot.machine import Progress, ordered_map

Pixels = NDArray[np.uint8]  # (n, 3, size, size)

CHUNK = 64  # images that a thread decodes before it says so
NAMED = 10  # unreadable images that an error names


@dataclass(frozen=True, eq=False)
class Decoded:
    """Square images in memory, or mapped into it from a file.

    Args:
        pixels: (n, 3, size, size) uint8.
        labels: Numbers of classes, (n,) int64.
        classes: Names of the classes.
        problems: What could not be read and was left out.
    """

    pixels: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


def decoded(images: ImageSet, size: int, *, progress: Progress | None = None) -> Decoded:
    """Read a whole data set: the shorter side becomes `size`, and the middle square of it is kept.

    Needs n x 3 x size x size bytes. Unreadable images are reported together, by name, when all others are read; or left
    out, if the set says so.

    Args:
        images: The data set.
        size: Side of the squares, in pixels.
        progress: Called with the number of images read since the last call.
    """
    check_size(size)
    pixels = torch.empty(len(images), 3, size, size, dtype=torch.uint8)
    filled = 0

    def keep(rows: Pixels) -> None:
        nonlocal filled
        pixels[filled : filled + len(rows)] = torch.from_numpy(rows)
        filled += len(rows)

    problems = decode(images, size, keep, progress=progress)
    return without(images, pixels[:filled], problems)


def decode(
    images: ImageSet, size: int, keep: Callable[[Pixels], None], *, progress: Progress | None = None
) -> dict[int, Problem]:
    """Hand over the pixels of the readable images, in order and a few at a time; return the problems of the others.

    Unreadable images are an error at the end, unless the set says otherwise.
    """
    chunks = [range(start, min(start + CHUNK, len(images))) for start in range(0, len(images), CHUNK)]
    problems: dict[int, Problem] = {}
    for chunk, (rows, wrong) in zip(chunks, ordered_map(lambda chunk: _read(images, chunk, size), chunks), strict=True):
        keep(rows)
        problems |= wrong
        if progress is not None:
            progress(len(chunk))
    refuse_unreadable(problems.values(), images.skip_unreadable, len(images))
    return problems


def without(images: ImageSet, pixels: Tensor, problems: Mapping[int, Problem]) -> Decoded:
    """Put the pixels of the readable images together with their labels."""
    readable = torch.ones(len(images), dtype=torch.bool)
    readable[list(problems)] = False
    return Decoded(pixels, images.labels[readable], images.classes, tuple(problems.values()))


def check_size(size: int) -> None:
    """Refuse a size below one pixel."""
    if size < 1:
        raise InputError(f"expected a size of at least 1 pixel, but got {size}: give a larger one")


def _read(images: ImageSet, positions: Sequence[int], size: int) -> tuple[Pixels, dict[int, Problem]]:
    """Decode some images to an array (n, 3, size, size); return the problems of those that cannot be read."""
    from PIL import Image, ImageOps

    rows = np.empty((len(positions), 3, size, size), np.uint8)
    filled, problems = 0, {}
    for i in positions:
        try:
            image = images.read(i, side=size)
        except ImageError as error:
            problems[i] = Problem(images.names[i], error.kind, error.detail)
            continue
        square = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
        rows[filled] = np.asarray(square).transpose(2, 0, 1)
        filled += 1
    return rows[:filled], problems


def refuse_unreadable(problems: Iterable[Problem], leave_out: bool, total: int) -> None:
    """Raise InputError if there are unreadable images, unless they are to be left out and others of `total` remain."""
    wrong = list(problems)
    if wrong and not (leave_out and len(wrong) < total):
        named = ", ".join(f"{problem.name!r} ({problem.kind})" for problem in wrong[:NAMED])
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        skip = ", or skip unreadable images (--skip-unreadable; data.skip_unreadable in a recipe)"
        remedy = f"repair or remove them{'' if leave_out else skip}"
        raise InputError(f"cannot read {len(wrong)} of the images, {named}{more}: {remedy}")

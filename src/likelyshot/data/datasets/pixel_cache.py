"""Pixels of a data set in a file: decoded once, mapped by every run and process, and read where they are needed.

Beside the pixels, a plain .npy file (n, 3, size, size) uint8, lies a small JSON file with what could not be read. It is
written last: pixels without it are those of a run that was stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import features

from likelyshot.data.containers import write_document
from likelyshot.data.datasets.decoding import Decoded, Pixels, check_size, decode, report, without
from likelyshot.data.datasets.image_set import ImageSet
from likelyshot.data.files import output_folder, replacing
from likelyshot.data.items import Problem
from likelyshot.errors import InputError

#: To be raised when `decode` gives other pixels for the same images.
VERSION = 1
HEADER = 128  # bytes of the .npy file before the pixels


def cached(
    images: ImageSet,
    size: int,
    folder: str | Path,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Decoded:
    """Give what `decoded` gives, but with the pixels in a file in `folder`, which is made if it is not there.

    The file is named by a digest of names, classes, sizes and times of change of the images, and of how they are
    decoded. Several processes that map it share its pages; what one writes to its tensor, no other sees.
    """
    check_size(size)
    stem = _digest(images, size)
    pixels, notes = Path(folder) / f"{stem}.npy", Path(folder) / f"{stem}.json"
    found = _found(pixels, notes, images, size)
    if found is None:
        output_folder(folder)
        _write(pixels, notes, images, size, workers, progress)
        found = _found(pixels, notes, images, size)
    if found is None:
        raise InputError(f"expected the pixels just written to {pixels}, but they are gone: name another folder")
    report(found[1].values(), images)
    return without(images, torch.from_numpy(found[0]), found[1])


def _digest(images: ImageSet, size: int) -> str:
    decoders = [VERSION, PIL.__version__, features.version("libjpeg_turbo")]
    facts = [images.names, images.labels.tolist(), images.classes, images.source.stamps(images.names), size, decoders]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _found(pixels: Path, notes: Path, images: ImageSet, size: int) -> tuple[Pixels, dict[int, Problem]] | None:
    """Map what an earlier run left, if it is whole."""
    try:
        problems = {int(i): Problem(images.names[int(i)], *told) for i, told in json.loads(notes.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError, IndexError):
        return None
    mapped = _map(pixels, (len(images) - len(problems), 3, size, size))
    return None if mapped is None else (mapped, problems)


def _map(path: Path, shape: tuple[int, ...]) -> Pixels | None:
    """Map a file of exactly this shape, copied on write; nothing if it is another, or truncated."""
    try:
        with path.open("rb") as file:
            header, length = file.read(HEADER), os.fstat(file.fileno()).st_size
        if header != _header(shape) or length != HEADER + math.prod(shape):
            return None
        mapped: Pixels = np.load(path, mmap_mode="c", allow_pickle=False)
        return mapped
    except (OSError, ValueError):
        return None


def _write(
    pixels: Path,
    notes: Path,
    images: ImageSet,
    size: int,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Decode into a file beside, and put it into place when it is whole."""
    need, free = len(images) * 3 * size * size, shutil.disk_usage(pixels.parent).free
    if free < need:
        got = f"{free / 1e9:,.1f} GB are free in {pixels.parent}"
        raise InputError(f"expected {need / 1e9:,.1f} GB for the pixels, but {got}: make room, or name another folder")
    notes.unlink(missing_ok=True)
    with replacing(pixels) as temporary, temporary.open("wb") as file:
        file.seek(HEADER)

        def keep(rows: Pixels) -> None:
            file.write(rows.data)

        problems = decode(images, size, keep, workers=workers, progress=progress)
        file.seek(0)
        file.write(_header((len(images) - len(problems), 3, size, size)))
    write_document(notes, {str(i): [problem.kind, problem.detail] for i, problem in problems.items()})


def _header(shape: tuple[int, ...]) -> bytes:
    """Write the header of a .npy file of version 1.0, in a length of its own: how many images stay is known last.

    >>> _header((5, 3, 84, 84))[10:73]
    b"{'descr': '|u1', 'fortran_order': False, 'shape': (5, 3, 84, 84"
    """
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(HEADER - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()

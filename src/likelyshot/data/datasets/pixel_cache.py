"""Pixels of a data set in a file: decoded once, mapped by every run and process, and read where they are needed.

Beside the pixels, a plain .npy file (n, 3, size, size) uint8, lies a small JSON file with what could not be read; as
many rows at the end of the array are empty. It is written last: pixels without it are those of a run that was stopped.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import features

from likelyshot.data.datasets.decoding import Decoded, Pixels, check_size, decode, refuse_unreadable, without
from likelyshot.data.datasets.image_set import ImageSet
from likelyshot.data.files import output_folder, read_document, replacing, write_document
from likelyshot.data.items import Problem
from likelyshot.errors import InputError
from likelyshot.machine import Progress

#: To be raised when `decode` gives other pixels for the same images.
VERSION = 1


def cached(images: ImageSet, size: int, folder: str | Path, *, progress: Progress | None = None) -> Decoded:
    """Give what `decoded` gives, but with the pixels in a file in `folder`, which is made if it is not there.

    The file is named by a digest of names, classes, sizes and times of change of the images, and of how they are
    decoded. Several processes that map it share its pages; what one writes to its tensor, no other sees.

    Args:
        images: The data set.
        size: Side of the squares, in pixels.
        folder: Where the files are.
        progress: Called with the number of images read since the last call.
    """
    check_size(size)
    stem = _digest(images, size)
    pixels, notes = Path(folder) / f"{stem}.npy", Path(folder) / f"{stem}.json"
    stored = _read(pixels, notes, images, size)
    if stored is None:
        output_folder(folder)
        _write(pixels, notes, images, size, progress)
        stored = _read(pixels, notes, images, size)
    if stored is None:
        raise InputError(f"expected the pixels just written to {pixels}, but they are gone: choose another folder")
    mapped, problems = stored
    refuse_unreadable(problems.values(), images.skip_unreadable, len(images))
    return without(images, torch.from_numpy(mapped), problems)


def _digest(images: ImageSet, size: int) -> str:
    decoders = [VERSION, PIL.__version__, features.version("libjpeg_turbo")]
    facts = [images.names, images.labels.tolist(), images.classes, images.source.stamps(images.names), size, decoders]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(pixels: Path, notes: Path, images: ImageSet, size: int) -> tuple[Pixels, dict[int, Problem]] | None:
    """Map what an earlier run left, copied on write; nothing if it is another array, or not whole."""
    try:
        reasons = read_document(notes, dict[int, tuple[str, str]], what="notes about pixels", remedy="decode again")
        problems = {row: Problem(images.names[row], *reason) for row, reason in reasons.items()}
        mapped = np.lib.format.open_memmap(pixels, mode="c")
        fits = mapped.dtype == np.uint8 and mapped.shape == (len(images), 3, size, size)
        if not fits or pixels.stat().st_size != mapped.offset + mapped.nbytes:
            return None
    except (OSError, ValueError, IndexError):
        return None
    return mapped[: len(images) - len(problems)], problems


def _write(pixels: Path, notes: Path, images: ImageSet, size: int, progress: Progress | None) -> None:
    need, free = len(images) * 3 * size * size, shutil.disk_usage(pixels.parent).free
    if free < need:
        got = f"{free / 1e9:,.1f} GB are free in {pixels.parent}"
        raise InputError(
            f"expected {need / 1e9:,.1f} GB for the pixels, but {got}: make room, or choose another folder"
        )
    notes.unlink(missing_ok=True)
    with replacing(pixels) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=(len(images), 3, size, size))
        with temporary.open("rb+") as file:  # pages written through the map would count as memory in use
            file.seek(array.offset)

            def keep(rows: Pixels) -> None:
                file.write(rows.data)

            problems = decode(images, size, keep, progress=progress)
    write_document(notes, {row: [problem.kind, problem.detail] for row, problem in problems.items()})

"""Images with labels, class names, and where to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from likelyshot.data.datasets.layouts import by_classes, by_folders, by_tables
from likelyshot.data.datasets.sources import Source, open_source
from likelyshot.data.images import read_image
from likelyshot.data.splits import load_split
from likelyshot.errors import InputError, few

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T", bound="str | None")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """The images of a data set, or of one part of it, in the order of their classes and names."""

    source: Source
    names: tuple[str, ...]  # paths below the folder, or in the archive
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]  # label i has the i-th name
    split: str | None = None
    skip_unreadable: bool = False

    def __len__(self) -> int:
        return len(self.names)

    def read(self, i: int, *, side: int | None = None) -> Image:
        """Read an image in RGB; a large JPEG may come smaller, but its shorter side not below twice `side`."""
        return read_image(self.source.read(self.names[i]), self.names[i], side=side)


def open_images(
    path: str | Path,
    *,
    split: str | None = None,
    splits: str | Path | None = None,
    skip_unreadable: bool = False,
    flat: bool = False,
) -> ImageSet:
    """List the images of a folder or zip archive, of all classes or of one part of its split.

    `splits` says which classes belong to which part: the name of a packaged split ("cub"), a JSON file, or a folder
    of tables train.csv, val.csv and test.csv. Without it, the folders train, val and test do, if there are such.
    `skip_unreadable` leaves out images that cannot be read once their pixels are asked for; else they are errors. With
    `flat`, images that are mostly not in folders are a pile: one class, named after the folder or archive.
    """
    if flat and split is splits is None:
        source = open_source(path)
        names = source.names()
        if 2 * sum("/" not in name for name in names) > len(names):
            labels = torch.zeros(len(names), dtype=torch.int64)
            return ImageSet(source, tuple(sorted(names)), labels, (Path(path).resolve().stem,), None, skip_unreadable)
    return open_splits(path, [split], splits=splits, skip_unreadable=skip_unreadable)[split]


def open_splits(
    path: str | Path, parts: Sequence[T], *, splits: str | Path | None = None, skip_unreadable: bool = False
) -> dict[T, ImageSet]:
    """List the images of several parts of a split, as `open_images` does, but look for them only once."""
    source = open_source(path)
    names = source.names()
    if not names:
        raise InputError(f"expected images in {path}, but found none: name the folder or archive that has them")
    return {part: _image_set(source, names, part, splits, skip_unreadable) for part in parts}


def _image_set(
    source: Source, names: list[str], split: str | None, splits: str | Path | None, skip_unreadable: bool
) -> ImageSet:
    if splits is None:
        arranged = by_folders(names)
    elif Path(splits).is_dir():
        arranged = by_tables(names, Path(splits), split)
    else:
        arranged = by_classes(names, load_split(splits))
    if split is not None and split not in arranged:
        parts = ", ".join(part for part in arranged if part)
        known = f"one of {parts}" if parts else "no split, since the images have none"
        remedy = "choose another" if parts else "leave it out"
        raise InputError(f"expected {known}, but got {split!r}: {remedy}, or list the classes of each split")
    chosen = {split: arranged[split]} if split is not None else arranged
    members: dict[str, list[str]] = {}
    for classes in chosen.values():
        for name, images in classes.items():
            members.setdefault(name, []).extend(images)
    if splits is None:
        members = dict(sorted(members.items()))
    if empty := [name for name, images in members.items() if not images]:
        got = f"{len(empty)} of {len(members)} classes have none ({few(empty)})"
        raise InputError(
            f"expected images of every class of the split in {source.path}, but {got}: complete the images"
        )
    labels = torch.arange(len(members)).repeat_interleave(torch.tensor([len(images) for images in members.values()]))
    ordered = tuple(name for images in members.values() for name in sorted(images))
    return ImageSet(source, ordered, labels, tuple(members), split, skip_unreadable)

"""The pile on the table: its items with their keys, their vectors in memory, and where their files may lie."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.items import Item, Problem
from likelyshot.data.shards import Shards
from likelyshot.data.tables import FILE_COLUMN, ROW_COLUMN
from likelyshot.encoders.pretrained import Embedder
from likelyshot.own_data.answers import FORMULA, encodable
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.rows import CachePlace, Rows, Stage, gather

COLUMNS = {"image": ("path",), "text": ("name", "text"), "features": ("name", FILE_COLUMN, ROW_COLUMN)}


@dataclass(frozen=True, eq=False)
class Things:
    """The items of a pile that can be labelled: they have numbers from 0, and keys that stay the same.

    The key of an image in a folder is its path from there; that of other items is their name, with a digest of the
    text or the vector, so that labels never move to another row of a table that was changed.
    """

    rows: Rows
    vectors: NDArray[np.float32]  # (n, d)
    kind: str  # image, text or features
    root: Path | None  # the folder that was searched
    allowed: Path | None  # the folder that all files must lie in
    output: Path  # of the labels: their paths count from its folder
    source: Path  # what the pile was read from

    @property
    def items(self) -> Sequence[Item]:
        """The items, by number."""
        return self.rows.items

    @property
    def problems(self) -> list[Problem]:
        """What cannot be labelled, and why."""
        return self.rows.problems

    def __len__(self) -> int:
        return len(self.rows.items)

    @cached_property
    def keys(self) -> list[str]:
        """The key of each item."""
        counts: dict[str, int] = {}
        keys = []
        for number, item in enumerate(self.items):
            key = self._key(item, number)
            counts[key] = counts.get(key, 0) + 1
            keys.append(key if counts[key] == 1 else f"{key} ({counts[key]})")
        return keys

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each key."""
        return {key: number for number, key in enumerate(self.keys)}

    def _key(self, item: Item, number: int) -> str:
        if self.kind == "image" and item.path is not None:
            return encodable(item.path.relative_to(self.root).as_posix() if self.root else item.name)
        content = item.text.encode("utf-8", "surrogatepass") if self.kind == "text" and item.text else None
        content = self.vectors[number].tobytes() if content is None else content
        return f"{encodable(item.name)} #{hashlib.sha256(content).hexdigest()[:12]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table of labels, before the label."""
        if self.kind != "features":
            return COLUMNS[self.kind]
        extra = [
            name for name in ("path", "text") if any(getattr(item, name) is not None for item in self.items[:1000])
        ]
        return (*COLUMNS["features"], *extra)

    def cells(self, key: str) -> list[str]:
        """Give the cells of an item in the table of labels, before the label; of one that is gone, what is known."""
        number = self.numbers.get(key)
        if number is None:
            place = str(self.root / key) if self.root is not None else key
            return [self.path_cell(Path(place)) if self.kind == "image" else key, *[""] * (len(self.columns) - 1)]
        item = self.items[number]
        values = {
            "path": "" if item.path is None else self.path_cell(item.path),
            "name": encodable(item.name),
            "text": encodable(item.text or ""),
        }
        if self.kind == "features":
            file, row = self._stored(number)
            values |= {FILE_COLUMN: self.path_cell(file), ROW_COLUMN: str(row + 1)}
        return [values[column] for column in self.columns]

    def _stored(self, number: int) -> tuple[Path, int]:
        """Say which file holds the vector of an item, and in which row, from 0."""
        vectors, place = self.rows.vectors, int(self._places[number])
        return vectors.place(place) if isinstance(vectors, Shards) else (self.source, place)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """The rows of the items in what was read."""
        return self.rows.places

    def order(self, key: str) -> int:
        """Give the position of an item in the table of labels; those that are gone come last."""
        return self.numbers.get(key, len(self))

    def path_cell(self, path: Path) -> str:
        """Write a path as `classify --support` reads it: from the folder of the table, if it lies there."""
        folder, whole = os.path.abspath(self.output.parent), os.path.abspath(path)  # links stay  # noqa: PTH100
        inside = Path(whole).is_relative_to(folder)
        text = encodable(os.path.relpath(whole, folder) if inside else whole)
        return f"'{text}" if text.startswith(FORMULA) else text

    @property
    def readable(self) -> bool:
        """Whether `classify --support` can read the table where it is: its files must lie below its folder."""
        needed = [self.allowed]
        if self.kind == "features":
            vectors = self.rows.vectors
            needed = [file.path for file in vectors.files] if isinstance(vectors, Shards) else [self.source]
        folder = os.path.realpath(self.output.parent)
        return all(place is None or Path(os.path.realpath(place)).is_relative_to(folder) for place in needed)

    def file(self, number: int) -> Path | None:
        """Give the file of an item, if it has one that still lies where it may; links may have changed since."""
        path = self.items[number].path
        if path is None or self.allowed is None:
            return None
        real = Path(os.path.realpath(path))
        return real if real.is_relative_to(os.path.realpath(self.allowed)) else None


def lay_out(
    pile: Pile,
    source: Path,
    output: Path,
    encoder: Embedder | None,
    *,
    cache: CachePlace = "user",
    stage: Stage | None = None,
) -> Things:
    """Embed a pile and keep its vectors in memory.

    Args:
        pile: The pile.
        source: What it was read from: a folder, a table, an image or a features file.
        output: The table of labels.
        encoder: What embeds images and texts.
        cache: Where vectors are cached.
        stage: Called with the name and the number of steps of each stage of the work.
    """
    rows = gather(pile, encoder, cache=cache, stage=stage, what="the pile")
    vectors: NDArray[Any] = rows.in_memory().astype(np.float32, copy=False)
    allowed = pile.root or folder_of(source)
    has_files = pile.kind == "image" or (pile.kind == "features" and any(item.path for item in rows.items[:1000]))
    return Things(rows, vectors, pile.kind, pile.root, allowed if has_files else None, output, source)


def folder_of(source: Path) -> Path:
    """Give the folder that a pile lies in; it may be a pattern like "shards/*/*.npy"."""
    return next(folder for folder in source.absolute().parents if folder.is_dir())

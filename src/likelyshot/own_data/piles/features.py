"""Piles out of files of features, which may be many, and larger than memory."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.data.arrays import float_tensor, number_classes
from likelyshot.data.features import choose_split, open_features, read_labels, read_paths
from likelyshot.data.items import Item, Lazy, Problem
from likelyshot.data.shards import Shard, Shards, open_shard, parquet_rows
from likelyshot.data.tables import as_text
from likelyshot.errors import InputError
from likelyshot.own_data.piles.pile import Listed, Numbered, Pile


def read_features(path: Path, labelled: bool, folders: Sequence[Path] = ()) -> Pile:
    """Read vectors, and their labels if they are wanted; those of .npy and .safetensors stay in the file.

    Items have the paths that the file keeps, and are found again within `folders`.
    """
    parts = open_features(path, mapped=True).parts
    part = parts[choose_split(None, parts)]()
    pile = vector_pile(part.vectors)
    shard = None if labelled or path.suffix.lower() not in (".npy", ".safetensors") else open_shard(path)
    if shard is not None:
        pile = replace(pile, vectors=Shards([shard]))
    paths = read_paths(part.paths)
    if paths is not None:
        if len(paths) != len(pile.items):
            got = f"{len(pile.items)} rows and {len(paths)} paths"
            raise InputError(f"expected one path per row, but got {got}: write the file again")
        pile = replace(pile, items=Listed(paths, folders))
    if not labelled:
        return pile
    if part.labels is None:
        raise InputError(f"expected {part.expected}, but found no labels: add them")
    numbers, names = number_classes(read_labels(part.labels), part.classes)
    if len(numbers) != len(pile.items):
        got = f"{len(pile.items)} rows and {len(numbers)} labels"
        raise InputError(f"expected one label per row, but got {got}: give as many labels as rows")
    items = [replace(item, label=names[number]) for item, number in zip(pile.items, numbers, strict=True)]
    return replace(pile, items=items)


def vector_pile(values: Any) -> Pile:
    """Make a pile of vectors (n, d), in half, single or double precision."""
    if not (isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32, np.float64)):
        tensor = float_tensor(values).cpu()
        values = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()  # unknown to numpy
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"expected vectors of shape (n, d), none zero, but got {values.shape}: reshape them")
    return Pile(Numbered(len(values)), values, [], "features")


#: What a column of a table is for: the name of an item, its label, its file, its text.
Meanings = dict[str, str]


def shard_pile(
    paths: Sequence[Path],
    *,
    pattern: str,
    ignored: Sequence[str],
    meanings: Callable[[Sequence[str]], Meanings],
    locate: Callable[[str], Path | None],
) -> Pile:
    """Make a pile of the vectors of many files, which stay there; files without vectors are among the problems.

    Args:
        paths: The files, in order: .npy, .safetensors or .parquet.
        pattern: What the names of columns of numbers must match.
        ignored: Columns of numbers that are no part of a vector.
        meanings: Says which of the columns of a table means what.
        locate: Finds the file of a path in a table.
    """
    shards, problems = [], []
    for path in paths:
        found = open_shard(path, pattern, ignored)
        if found is None:
            problems.append(Problem(str(path), "no vectors", "expected an array (n, d), or a column of lists"))
        else:
            shards.append(found)
    if not shards:
        return Pile([], None, problems, "features")
    return Pile(TableItems(shards, meanings, locate), Shards(shards), problems, "features")


class TableItems(Lazy[Item]):
    """The items of many files: rows of Parquet by what their columns say, others by their number.

    Args:
        shards: The files.
        meanings: As in `shard_pile`.
        locate: As in `shard_pile`.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        meanings: Callable[[Sequence[str]], Meanings],
        locate: Callable[[str], Path | None],
    ) -> None:
        self._shards, self._locate = shards, locate
        self._starts = [0, *accumulate(shard.rows for shard in shards)]
        self._meanings = [meanings(column_names(shard.path)) if shard.columns else {} for shard in shards]
        self._paths: dict[int, Sequence[str]] = {}  # that features files keep

    def __len__(self) -> int:
        return self._starts[-1]

    def _make(self, rows: range) -> list[Item]:
        if rows.step == 1:
            return self._between(rows.start, rows.stop)
        return [item for row in rows for item in self._between(row, row + 1)]

    def names(self, part: slice) -> list[str] | None:
        """Give the names of some items, without looking for their files; None if they have texts."""
        rows = range(len(self))[part]
        if rows.step != 1 or any("text" in columns for columns in self._meanings):
            return None
        return [name for where in self._spans(rows.start, rows.stop) for name in self._cells(*where, ("name",))["name"]]

    def _between(self, start: int, stop: int) -> list[Item]:
        return [item for where in self._spans(start, stop) for item in self._of(*where)]

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Give the number of each file that has some of the rows, and which."""
        while start < stop:
            number = bisect.bisect_right(self._starts, start) - 1
            first = self._starts[number]
            last = min(stop, self._starts[number + 1])
            yield number, start - first, last - first
            start = last

    def _cells(self, number: int, first: int, last: int, wanted: Sequence[str]) -> dict[str, list[str]]:
        """Read what columns say of rows; every row has a name."""
        shard = self._shards[number]
        columns = {meaning: name for meaning, name in self._meanings[number].items() if meaning in wanted}
        cells: dict[str, list[str]] = {}
        if shard.path.suffix.lower() == ".safetensors":
            cells["name"] = cells["path"] = list(self._kept_paths(number)[first:last])
        if columns:
            table = parquet_rows(shard.path, list(dict.fromkeys(columns.values())), first, last)
            cells = {meaning: [as_text(cell) for cell in table[name].to_pylist()] for meaning, name in columns.items()}
        before = f"{shard.path.name} " if len(self._shards) > 1 else ""
        names = cells.get("name") or [""] * (last - first)
        cells["name"] = [name or f"{before}row {first + row + 1}" for row, name in enumerate(names)]
        return cells

    def _of(self, number: int, first: int, last: int) -> list[Item]:
        cells = self._cells(number, first, last, ("name", "label", "path", "text"))
        return [
            Item(
                name,
                (cells["label"][row] or None) if "label" in cells else None,
                self._locate(cells["path"][row]) if cells.get("path") else None,
                cells["text"][row] if "text" in cells else None,
            )
            for row, name in enumerate(cells["name"])
        ]

    def _kept_paths(self, number: int) -> Sequence[str]:
        """The paths of images in a features file; none if it keeps none."""
        if number not in self._paths:
            parts = open_features(self._shards[number].path, mapped=True).parts
            paths = read_paths(parts[choose_split(None, parts)]().paths)
            self._paths[number] = paths if paths is not None and len(paths) == self._shards[number].rows else []
        return self._paths[number]


def column_names(path: Path) -> list[str]:
    """Name the columns of a Parquet file."""
    from pyarrow import ArrowException, parquet

    try:
        return list(parquet.read_schema(path).names)
    except (ArrowException, OSError):  # reported when its vectors are looked for
        return []

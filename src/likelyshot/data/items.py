"""What is embedded and classified, long lists of it, and what was left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import locate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to embed and classify: an image file or a text."""

    name: str  # as shown and written: a path as the user would type it, or the row of a table
    label: str | None = None
    path: Path | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """What was left out, and why.

    Args:
        name: Name of the item.
        kind: The reason in a few words, which summaries count: "truncated image", "not an image", "empty file", ...
        detail: More on it, if anything is known.
    """

    name: str
    kind: str
    detail: str = ""


class Lazy(Sequence[T], ABC):
    """A sequence whose elements are made when they are asked for: a million of them take little memory."""

    @abstractmethod
    def _make(self, rows: range) -> list[T]:
        """Make the elements of these places, all of them in the sequence."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return self._make(range(len(self))[place])
        row = range(len(self))[place]
        return self._make(range(row, row + 1))[0]


class PackedNames(Lazy[str]):
    """Names in one array of bytes, each decoded when it is asked for.

    Args:
        packed: The names in UTF-8, each followed by a null byte, uint8, perhaps a map of a file.

    >>> names = PackedNames.of(["cat/1.png", "dog/\u00fc.png"])
    >>> len(names), names[-1], names[:1]
    (2, 'dog/\u00fc.png', ['cat/1.png'])
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        self.packed = packed
        self._ends = np.flatnonzero(packed == 0)

    @classmethod
    def of(cls, names: Iterable[str]) -> PackedNames:
        """Pack names; bytes of file names that are not UTF-8 are kept, null bytes are dropped."""
        joined = "".join(name.replace("\0", "") + "\0" for name in names)
        return cls(np.frombuffer(joined.encode("utf-8", "surrogateescape"), np.uint8))

    def __len__(self) -> int:
        return len(self._ends)

    def _make(self, rows: range) -> list[str]:
        return [self._name(row) for row in rows]

    def _name(self, row: int) -> str:
        start = int(self._ends[row - 1]) + 1 if row else 0
        return self.packed[start : self._ends[row]].tobytes().decode("utf-8", "surrogateescape")


class Numbered(Lazy[Item]):
    """The items "row 1", "row 2", ..., each made when it is asked for.

    >>> Numbered(3)[-1]
    Item(name='row 3', label=None, path=None, text=None)
    """

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def _make(self, rows: range) -> list[Item]:
        return [Item(f"row {row + 1}") for row in rows]

    def names(self, part: slice) -> list[str]:
        """Give the names of some items, without the items."""
        return [f"row {row + 1}" for row in range(self._count)[part]]


class Listed(Lazy[Item]):
    """Items of the files that a features file names, each made, and found within the folders, when it is asked for.

    >>> Listed(["cat/1.png"], [])[0]
    Item(name='cat/1.png', label=None, path=None, text=None)
    """

    def __init__(self, paths: Sequence[str], folders: Sequence[Path]) -> None:
        self._paths, self._folders = paths, folders

    def __len__(self) -> int:
        return len(self._paths)

    def _make(self, rows: range) -> list[Item]:
        return [Item(name, path=existing(name, self._folders)) for name in (self._paths[row] for row in rows)]

    def names(self, part: slice) -> list[str]:
        """Give the names of some items, without looking for their files."""
        return list(self._paths[part])


def existing(name: str, folders: Sequence[Path]) -> Path | None:
    """Find the file of a name within folders; None if there is none, or if the name leads out of them."""
    place = locate(name, folders)
    return place if isinstance(place, Path) else None


class Chosen(Lazy[Item]):
    """Some of many items, each fetched when it is asked for.

    >>> [item.name for item in Chosen(Numbered(5), np.array([1, 3]))]
    ['row 2', 'row 4']
    """

    def __init__(self, items: Sequence[Item], places: NDArray[np.intp]) -> None:
        self._items, self._places = items, places

    def __len__(self) -> int:
        return len(self._places)

    def _make(self, rows: range) -> list[Item]:
        places = self._places[np.arange(rows.start, rows.stop, rows.step)]
        if not len(places):
            return []
        first = int(places[0])
        if places[-1] - first < 4 * len(places) and (np.diff(places) > 0).all():  # close together: fetch them at once
            near = self._items[first : int(places[-1]) + 1]
            return [near[place - first] for place in places.tolist()]
        return [self._items[place] for place in places.tolist()]


def left_out(problems: Sequence[Problem]) -> str:
    """Write the counts of problems in brackets, by kind, with an example each; nothing if there are none.

    >>> left_out([Problem("a.txt", "unsupported file"), Problem("b.doc", "unsupported file")])
    " (left out: 2 x unsupported file, such as 'a.txt')"
    """
    counts = Counter(problem.kind for problem in problems)
    listed = ", ".join(f"{count} x {kind}, such as {_first(problems, kind)!r}" for kind, count in counts.items())
    return f" (left out: {listed})" if listed else ""


def _first(problems: Sequence[Problem], kind: str) -> str:
    return next(problem.name for problem in problems if problem.kind == kind)[:80]

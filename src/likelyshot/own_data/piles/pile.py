"""What was read: items, vectors, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import locate
from likelyshot.data.items import Item, Lazy, Problem
from likelyshot.data.shards import Shards


@dataclass(frozen=True, eq=False)
class Pile:
    """Items in order, their vectors if these are known already, and what was left out."""

    items: Sequence[Item]
    vectors: NDArray[Any] | Shards | None  # (n, d), perhaps in files; not looked through for NaN
    problems: list[Problem]
    kind: Literal["image", "text", "features"]
    root: Path | None = None  # the folder that was searched, if it was one


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
        return [self._item(self._paths[row]) for row in rows]

    def names(self, part: slice) -> list[str]:
        """Give the names of some items, without looking for their files."""
        return list(self._paths[part])

    def _item(self, name: str) -> Item:
        found = locate(name, self._folders)
        return Item(name, path=found if isinstance(found, Path) else None)


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


def names_and_texts(items: Sequence[Item], part: slice) -> tuple[list[str], list[str]]:
    """Give the names of some items, and their texts if they have no files."""
    names = getattr(items, "names", lambda part: None)(part)
    if names is not None:  # quick: the files of items need not be looked for
        return names, []
    some = items[part]
    return [item.name for item in some], [
        item.text or "" for item in some if item.path is None and item.text is not None
    ]


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

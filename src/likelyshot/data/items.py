"""What is embedded and classified, and what was left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

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
    """What was left out, and why."""

    name: str
    kind: str  # a few words, counted in summaries: "truncated image", "not an image", "empty file", "too large", ...
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


class Digests(Lazy[str]):
    """SHA-256 digests in one array, each given as 64 hexadecimal digits.

    Args:
        packed: Their bytes, (n, 32) uint8.

    >>> Digests(np.zeros((2, 32), np.uint8))[0][:8]
    '00000000'
    """

    def __init__(self, packed: NDArray[np.uint8]) -> None:
        self.packed = packed

    def __len__(self) -> int:
        return len(self.packed)

    def _make(self, rows: range) -> list[str]:
        return [self.packed[row].tobytes().hex() for row in rows]

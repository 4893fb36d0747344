"""What is embedded and classified, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray


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


class PackedNames(Sequence[str]):
    """Names in one array of bytes, each decoded when it is asked for: a million of them take little memory.

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

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[row] for row in range(*place.indices(len(self)))]
        row = range(len(self))[place]
        start = int(self._ends[row - 1]) + 1 if row else 0
        return self.packed[start : self._ends[row]].tobytes().decode("utf-8", "surrogateescape")

"""From items to vectors that can be used: embedded where they are images or texts, and looked through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.items import Item, Problem
from likelyshot.encoders.embed import embed
from likelyshot.encoders.pretrained import Encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress
from likelyshot.own_data.piles import Pile, duplicates
from likelyshot.own_data.scoring import scan

#: Called with what begins and how many steps it has; gives what is to be told of steps done.
Stage = Callable[[str, int], Progress]
Cache = Path | Literal["user"] | None

#: Names that a summary gives of every kind of problem.
NAMED = 3


@dataclass(frozen=True, eq=False)
class Gathered:
    """Vectors of a pile, and which of its items they belong to."""

    items: Sequence[Item]  # of the usable rows, in order
    vectors: NDArray[Any]  # (n, d), perhaps a map of a file
    usable: NDArray[np.bool_] | None  # (n,), None if all are
    problems: list[Problem]  # all that was left out, from reading on
    digests: list[str]  # of the contents of the items; none for vectors that were given
    negative: bool  # whether any usable vector has a negative number
    largest: NDArray[np.float64]  # (n,) the largest number of every vector
    encoded: int = 0  # contents that were not in the cache

    def rows(self) -> NDArray[Any]:
        """The usable vectors, in memory."""
        return np.array(self.vectors if self.usable is None else self.vectors[self.usable])


def gather(
    pile: Pile, encoder: Encoder | None, *, cache: Cache = "user", stage: Stage | None = None, what: str = "items"
) -> Gathered:
    """Embed a pile unless it has vectors, and leave out the rows that no method can use.

    >>> pile = Pile([Item("a"), Item("b")], np.array([[1.0, 2.0], [0.0, 0.0]]), [], "features")
    >>> found = gather(pile, None)
    >>> [item.name for item in found.items], found.problems
    (['a'], [Problem(name='b', kind='all zeros', detail='a vector without direction')])
    """
    items, problems, digests, encoded = pile.items, list(pile.problems), [], 0
    vectors = pile.vectors
    if vectors is None:
        if encoder is None:
            raise InputError(f"expected an encoder for {what}, but got none: name one (--encoder NAME)")
        embedded = embed(items, encoder, cache=cache, progress=begin(stage, f"embedding {what}", len(items)))
        vectors, digests, encoded = embedded.vectors, embedded.digests, embedded.encoded
        items = [items[place] for place in embedded.kept.tolist()]
        problems += embedded.problems
    found = scan(vectors, progress=begin(stage, f"reading {what}", len(vectors)))
    for rows, kind, detail in (
        (found.infinite, "not finite", "infinity or NaN in its vector"),
        (found.zeros, "all zeros", "a vector without direction"),
    ):
        problems += [Problem(items[row].name, kind, detail) for row in rows.tolist()]
    if found.usable.all():
        return Gathered(items, vectors, None, problems, digests, found.negative, found.largest, encoded)
    kept = np.flatnonzero(found.usable).tolist()
    digests = [digests[row] for row in kept] if digests else []
    items = [items[row] for row in kept]
    return Gathered(items, vectors, found.usable, problems, digests, found.negative, found.largest, encoded)


def repeated(few: Gathered, many: Gathered) -> list[tuple[str, str]]:
    """Find what is in both, as pairs of names: by content where both were embedded, else by equal vectors."""
    if few.digests and many.digests:
        pairs = [zip((item.name for item in each.items), each.digests, strict=True) for each in (few, many)]
        return duplicates(*pairs)
    found = []
    places = [
        np.arange(len(each.vectors)) if each.usable is None else np.flatnonzero(each.usable) for each in (few, many)
    ]
    alike = np.isin(many.largest[places[1]], few.largest[places[0]])  # equal vectors have equal maxima
    for row in np.flatnonzero(alike).tolist():
        vector = many.vectors[places[1][row]]
        same = (few.vectors[places[0]] == vector).all(1)
        if same.any():
            found.append((few.items[int(same.argmax())].name, many.items[row].name))
    return found


def begin(stage: Stage | None, what: str, total: int) -> Progress | None:
    """Announce a piece of work, where someone listens."""
    return None if stage is None or not total else stage(what, total)


def summary(problems: Sequence[Problem]) -> list[str]:
    """Say how many problems there are of every kind, most frequent first, with the first few names.

    >>> summary([Problem("a.jpg", "truncated image"), Problem("b.txt", "unsupported file"), Problem("c", "empty file")])
    ["1 x truncated image: 'a.jpg'", "1 x unsupported file: 'b.txt'", "1 x empty file: 'c'"]
    """
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem.name)
    lines = []
    for kind, names in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        shown = ", ".join(_short(name) for name in names[:NAMED])
        lines.append(f"{len(names):,} x {kind}: {shown}{', ...' if len(names) > NAMED else ''}")
    return lines


def _short(name: str) -> str:
    """A name on one line, printable whatever it holds."""
    return repr(name if len(name) <= 80 else f"{name[:38]} ... {name[-37:]}")

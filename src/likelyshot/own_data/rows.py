"""From items to rows of numbers: embedded where they are images or texts, checked, read in blocks, and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.archives import Member
from likelyshot.data.datasets.sources import stamp_of
from likelyshot.data.items import Chosen, Item, Problem
from likelyshot.data.shards import Shards
from likelyshot.encoders.blocks import embed_blocks, embed_on_cluster, read_blocks
from likelyshot.encoders.embed import Cache, embed
from likelyshot.encoders.pretrained import Embedder, split_precision
from likelyshot.errors import InputError
from likelyshot.functional.scores import rectify
from likelyshot.machine import CACHE_BYTES, Progress, cluster, map_blocks
from likelyshot.own_data.piles import Pile

S = TypeVar("S")
R = TypeVar("R")

#: Vectors (n, d) in memory, in a map of a file, or in files.
Vectors = NDArray[Any] | Shards

#: Called with the name of a stage of the work and its number of steps; returns what to call as steps are done.
Stage = Callable[[str, int], Progress]
#: Where vectors are cached: a folder, the user's cache folder, or nowhere.
CachePlace = Path | Literal["user"] | None

#: The folder of vectors within a folder of answers; readers of Parquet folders pass over names that begin so.
VECTORS = "_vectors"
#: Names that a summary shows for each kind of problem.
NAMED = 3
#: Blocks that a task of a cluster computes at most, so that it takes much longer than to send it; workers get several.
TOGETHER, TASKS_EACH = 64, 4

#: Vectors with a higher cosine are of the same picture, by encoder. Of EfficientNet-Lite0: among 28,680 pairs of
#: different photographs of 12 CUB classes none was above 0.89; of 60 that were cropped by 5 %, brightened by 10 % or
#: mirrored, 98 % or more were above 0.93 (`python -m benchmarks.near_duplicates`).
ALIKE = {"efficientnet_lite0": 0.93}
#: Of other encoders, of which we measured nothing: nearly equal vectors only.
ALIKE_ELSEWHERE = 0.99
#: Items that are compared with each other, in a second or two; larger piles are not searched.
MOST_COMPARED = 5_000
COMPARED_AT_ONCE = 1_000


@dataclass(frozen=True, eq=False)
class Rows:
    """The vectors of a pile, and the items that the usable ones belong to."""

    items: Sequence[Item]  # of the usable rows, in order
    vectors: Vectors  # (n, d)
    usable: NDArray[np.bool_] | None  # (n,), None if all are
    problems: list[Problem]  # everything that was left out, from reading on
    digests: NDArray[np.uint8] | None  # (n, 32) of the contents of the items; None for vectors that were given
    negative: bool  # whether any usable vector has a negative number
    largest: NDArray[np.floating[Any]]  # (n,) the largest number of each vector

    @property
    def places(self) -> NDArray[np.intp]:
        """The positions of the usable vectors."""
        return np.arange(len(self.vectors)) if self.usable is None else np.flatnonzero(self.usable)

    def in_memory(self) -> NDArray[Any]:
        """Copy the usable vectors into memory."""
        return np.array(self.vectors[:] if self.usable is None else self.vectors[self.usable])


def gather(
    pile: Pile,
    encoder: Embedder | None,
    *,
    cache: CachePlace | Cache = "user",
    stage: Stage | None = None,
    what: str = "items",
    keep: Path | None = None,
) -> Rows:
    """Embed a pile unless it has vectors already, and leave out the rows that no method can use.

    On a cluster, vectors are kept in the folder `keep` as they are made, so that a driver started again goes on.

    >>> pile = Pile([Item("a"), Item("b")], np.array([[1.0, 2.0], [0.0, 0.0]]), [], "features")
    >>> rows = gather(pile, None)
    >>> [item.name for item in rows.items], rows.problems
    (['a'], [Problem(name='b', kind='all zeros', detail='a vector without direction')])
    """
    items, vectors, problems = pile.items, pile.vectors, list(pile.problems)
    digests: NDArray[np.uint8] | None = None
    if vectors is None:
        if encoder is None:
            raise InputError(f"expected an encoder for {what}, but got none: name one (--encoder NAME)")
        progress = begin(stage, f"embedding {what}", len(items))
        if cluster() is None:
            embedded = embed(items, encoder, cache=cache, progress=progress)
        elif keep is None:
            embedded = embed_on_cluster(items, encoder, progress)
        else:
            identity = pile_digest(items, encoder)
            embed_blocks(items, encoder, keep, encoder=encoder.name, identity=identity, progress=progress)
            embedded = read_blocks(keep).embedded()
        vectors, digests = embedded.vectors, embedded.digests
        items = items if len(embedded.positions) == len(items) else Chosen(items, embedded.positions)
        problems += embedded.problems
    checked = scan(vectors, progress=begin(stage, f"reading {what}", len(vectors)))
    for rows, kind, detail in (
        (checked.infinite, "not finite", "infinity or NaN in its vector"),
        (checked.zeros, "all zeros", "a vector without direction"),
    ):
        problems += [Problem(items[row].name, kind, detail) for row in rows.tolist()]
    usable = None if checked.usable.all() else checked.usable
    if usable is not None:
        places = np.flatnonzero(usable)
        digests = None if digests is None else digests[places]
        items = Chosen(items, places)
    return Rows(items, vectors, usable, problems, digests, checked.negative, checked.largest)


def pile_digest(items: Sequence[Item], encoder: Embedder) -> str:
    """Name what the vectors of a pile follow from, without reading files: their names, sizes and times of change."""
    sha = hashlib.sha256(encoder.digest.encode())
    for item in items:
        place = item.archive if isinstance(item, Member) else item.path
        stamp = () if place is None else stamp_of(place)
        sha.update(repr((item.name, item.text, stamp)).encode("utf-8", "surrogatepass"))
    return sha.hexdigest()


class Scan(NamedTuple):
    """What a look at every number of a pile shows."""

    usable: NDArray[np.bool_]  # (n,): finite, and not all zeros
    infinite: NDArray[np.intp]  # rows with infinity or NaN
    zeros: NDArray[np.intp]  # rows of zeros only
    negative: bool  # whether any usable row has a negative number
    largest: NDArray[np.floating[Any]]  # (n,) the largest number of each row


def scan(vectors: Vectors, *, progress: Progress | None = None) -> Scan:
    """Find the rows that no method can score: those that are not finite, and zeros, which have no direction.

    Shapes: vectors (n, d), perhaps a memory map, read in one pass.

    >>> result = scan(np.array([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0]]))
    >>> result.usable.tolist(), result.infinite.tolist(), result.zeros.tolist(), result.negative
    ([True, False, False], [1], [2], False)
    """
    precision = np.promote_types(vectors.dtype, np.float32)
    low, high = np.zeros(len(vectors), precision), np.zeros(len(vectors), precision)
    done = 0
    for least, most in map_rows(_extremes, None, vectors):
        part = slice(done, done + len(least))
        low[part], high[part] = least, most
        done = part.stop
        if progress is not None:
            progress(len(least))
    finite = np.isfinite(low) & np.isfinite(high)
    zero = (low == 0) & (high == 0)
    usable = finite & ~zero
    return Scan(usable, np.flatnonzero(~finite), np.flatnonzero(zero), bool((low[usable] < 0).any()), high)


def _extremes(shared: None, block: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = as_tensor(block)
    return rows.amin(1).numpy(), rows.amax(1).numpy()


def block_rows(dim: int) -> int:
    """Count the rows of `dim` numbers that stay in cache: larger temporaries cost several times as much."""
    return max(1, CACHE_BYTES // (4 * dim))


def block_count(vectors: Vectors, usable: NDArray[np.bool_] | None = None) -> int:
    """Count the blocks of `blocks`."""
    count = len(vectors) if usable is None else int(usable.sum())
    return -(-count // block_rows(vectors.shape[1]))


def blocks(
    vectors: Vectors, usable: NDArray[np.bool_] | None = None, numbers: Iterable[int] | None = None
) -> Iterator[NDArray[Any]]:
    """Go through the usable rows of (n, d) vectors, which may be in files, by blocks that stay in cache.

    All blocks but the last have the same number of rows, whatever the `usable` (n,) leave out. With `numbers`, only
    these blocks are read.

    >>> [block.tolist() for block in blocks(np.arange(3).reshape(3, 1), np.array([True, False, True]))]
    [[[0], [2]]]
    """
    numbers = range(block_count(vectors, usable)) if numbers is None else numbers
    return (vectors[rows] for rows in _row_sets(vectors.shape[1], usable, numbers))


def _row_sets(dim: int, usable: NDArray[np.bool_] | None, numbers: Iterable[int]) -> Iterator[slice | NDArray[np.intp]]:
    size = block_rows(dim)
    places = None if usable is None else np.flatnonzero(usable)
    for number in numbers:
        part = slice(number * size, (number + 1) * size)
        yield part if places is None else places[part]


def map_rows(
    function: Callable[[S, NDArray[Any]], R],
    shared: S,
    vectors: Vectors,
    usable: NDArray[np.bool_] | None = None,
    numbers: Iterable[int] | None = None,
) -> Generator[R, None, None]:
    """Call a module-level function with what is shared and with each of the `blocks`; yield the results in order.

    On a cluster, workers read the rows of files themselves and are sent other rows.

    Args:
        function: Called as function(shared, rows).
        shared: The same for all blocks.
        vectors: (n, d).
        usable: (n,), as in `blocks`.
        numbers: As in `blocks`.

    >>> list(map_rows(np.add, 1, np.zeros((1, 2))))
    [array([[1., 1.]])]
    """
    numbers = list(range(block_count(vectors, usable)) if numbers is None else numbers)
    joined = cluster()
    if joined is None:
        yield from map_blocks(function, shared, blocks(vectors, usable, numbers))
        return
    rows = _row_sets(vectors.shape[1], usable, numbers)
    if isinstance(vectors, Shards) and not vectors.local:
        together = min(TOGETHER, max(1, len(numbers) // (TASKS_EACH * joined.workers)))
        groups = iter(lambda: list(islice(rows, together)), [])
        for results in map_blocks(_read_and_call, (function, shared, vectors), groups):
            yield from results
    else:
        yield from map_blocks(function, shared, (np.asarray(vectors[part]) for part in rows))


def _read_and_call(task: tuple[Callable[[S, NDArray[Any]], R], S, Shards], rows: Sequence[Any]) -> list[R]:
    function, shared, vectors = task
    return [function(shared, vectors[part]) for part in rows]


def as_tensor(block: NDArray[Any], rectified: bool = False) -> Tensor:
    """Copy rows of half, single or double precision into memory, in float32 at least, rectified if asked.

    >>> as_tensor(np.array([[1, -2]], dtype=np.float16), rectified=True)
    tensor([[1., 0., 0., 2.]])
    """
    tensor = torch.from_numpy(np.array(block, dtype=np.promote_types(block.dtype, np.float32)))
    return rectify(tensor) if rectified else tensor


def repeated(few: Rows, many: Rows) -> list[tuple[str, str]]:
    """Find what is in both, as pairs of names: by content where both were embedded, else by equal vectors."""
    if few.digests is not None and many.digests is not None:
        first: dict[bytes, int] = {}
        for row, digest in enumerate(few.digests):
            first.setdefault(digest.tobytes(), row)
        same = ((first.get(digest.tobytes()), row) for row, digest in enumerate(many.digests))
        return [(few.items[known].name, many.items[row].name) for known, row in same if known is not None]
    same_names = []
    alike = np.isin(many.largest[many.places], few.largest[few.places])  # equal vectors have equal maxima
    for row in np.flatnonzero(alike).tolist():
        same = (few.vectors[few.places] == many.vectors[many.places[row]]).all(1)
        if same.any():
            same_names.append((few.items[int(same.argmax())].name, many.items[row].name))
    return same_names


class Near(NamedTuple):
    """Two items that look the same: one of the pile, and an earlier one of the pile or a labelled example."""

    name: str
    other: str
    cosine: float
    labelled: bool  # whether the other one is a labelled example


def near_duplicates(pile: Rows, labelled: Rows | None, encoder: str) -> list[Near]:
    """Find the items of a pile that look like a labelled example, or else like an earlier item.

    Vectors that were not embedded here are not compared, and neither are piles of more than 5,000 items.

    Args:
        pile: The items, embedded.
        labelled: The labelled examples, if they are known.
        encoder: What embedded both.
    """
    if pile.digests is None or len(pile.items) > MOST_COMPARED:
        return []
    least = ALIKE.get(split_precision(encoder)[0], ALIKE_ELSEWHERE)
    vectors = _directions(pile)
    near: dict[int, Near] = {}
    if labelled is not None and labelled.digests is not None:
        for row, other, cosine in _alike(vectors, _directions(labelled), least):
            if (pile.digests[row] != labelled.digests[other]).any():  # those that are equal are told apart from these
                near[row] = Near(pile.items[row].name, labelled.items[other].name, cosine, True)
    for row, other, cosine in _alike(vectors, vectors, least, earlier=True):
        near.setdefault(row, Near(pile.items[row].name, pile.items[other].name, cosine, False))
    return [near[row] for row in sorted(near)]


def _directions(rows: Rows) -> NDArray[np.float32]:
    vectors = rows.in_memory().astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _alike(
    some: NDArray[np.float32], others: NDArray[np.float32], least: float, *, earlier: bool = False
) -> list[tuple[int, int, float]]:
    """Give (row, most similar other row, cosine) of the rows above `least`; only earlier ones count if asked."""
    pairs = []
    for start in range(0, len(some), COMPARED_AT_ONCE):
        block = some[start : start + COMPARED_AT_ONCE] @ others[: start + COMPARED_AT_ONCE if earlier else None].T
        if earlier:
            block[np.triu_indices(len(block), start, block.shape[1])] = -1.0
        best = block.argmax(1)
        cosines = block[np.arange(len(block)), best]
        pairs += [
            (start + row, int(best[row]), float(cosines[row])) for row in np.flatnonzero(cosines > least).tolist()
        ]
    return pairs


def describe_near(near: Sequence[Near]) -> list[str]:
    """Say in a sentence each how many items look like another one, with an example.

    >>> describe_near([Near("b.jpg", "a.jpg", 0.97, False)])
    ["1 item looks nearly the same as another one of the pile: 'b.jpg' and 'a.jpg'."]
    """
    sentences = []
    for labelled, what in ((True, "a labelled example"), (False, "another one of the pile")):
        some = [pair for pair in near if pair.labelled == labelled]
        if some:
            count = "1 item looks" if len(some) == 1 else f"{len(some):,} items look"
            before_names = ":" if len(some) == 1 else ", such as"
            sentences.append(f"{count} nearly the same as {what}{before_names} {some[0].name!r} and {some[0].other!r}.")
    return sentences


def begin(stage: Stage | None, what: str, total: int) -> Progress | None:
    """Announce a stage of the work, if anyone listens."""
    return None if stage is None or not total else stage(what, total)


def summary(problems: Sequence[Problem]) -> list[str]:
    """Count the problems of each kind, most frequent first, with the first few names.

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
    """Show a name on one line, printable whatever it holds."""
    return repr(name if len(name) <= 80 else f"{name[:38]} ... {name[-37:]}")

"""Items that show nearly the same: copies that were cropped, brightened or mirrored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.own_data.rows import Rows

#: Vectors with a higher cosine are of the same picture, by encoder. Of EfficientNet-Lite0: among 28,680 pairs of
#: different photographs of 12 CUB classes none was above 0.89; of 60 that were cropped by 5 %, brightened by 10 % or
#: mirrored, 98 % or more were above 0.93 (`python -m benchmarks.near_duplicates`).
ALIKE = {"efficientnet_lite0": 0.93}
#: Of other encoders, of which we measured nothing: nearly equal vectors only.
ALIKE_ELSEWHERE = 0.99
#: Items that are compared with each other, in a second or two; larger piles are not searched.
MOST = 5_000
BLOCK = 1_000


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
    if pile.digests is None or len(pile.items) > MOST:
        return []
    least = ALIKE.get(encoder, ALIKE_ELSEWHERE)
    vectors = _directions(pile)
    found: dict[int, Near] = {}
    if labelled is not None and labelled.digests is not None:
        for row, other, cosine in _alike(vectors, _directions(labelled), least):
            if pile.digests[row] != labelled.digests[other]:  # those that are equal are told apart from these
                found[row] = Near(pile.items[row].name, labelled.items[other].name, cosine, True)
    for row, other, cosine in _alike(vectors, vectors, least, earlier=True):
        found.setdefault(row, Near(pile.items[row].name, pile.items[other].name, cosine, False))
    return [found[row] for row in sorted(found)]


def _directions(rows: Rows) -> NDArray[np.float32]:
    vectors = rows.in_memory().astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _alike(
    some: NDArray[np.float32], others: NDArray[np.float32], least: float, *, earlier: bool = False
) -> list[tuple[int, int, float]]:
    """Give (row, most similar other row, cosine) of the rows above `least`; only earlier ones count if asked."""
    pairs = []
    for start in range(0, len(some), BLOCK):
        block = some[start : start + BLOCK] @ others[: start + BLOCK if earlier else None].T
        if earlier:
            block[np.triu_indices(len(block), start, block.shape[1])] = -1.0
        best = block.argmax(1)
        cosines = block[np.arange(len(block)), best]
        pairs += [
            (start + row, int(best[row]), float(cosines[row])) for row in np.flatnonzero(cosines > least).tolist()
        ]
    return pairs


def describe(found: Sequence[Near]) -> list[str]:
    """Say in a sentence each how many items look like another one, with an example.

    >>> describe([Near("b.jpg", "a.jpg", 0.97, False)])
    ["1 item looks nearly the same as another one of the pile: 'b.jpg' and 'a.jpg'."]
    """
    sentences = []
    for labelled, what in ((True, "a labelled example"), (False, "another one of the pile")):
        some = [near for near in found if near.labelled == labelled]
        if some:
            count = "1 item looks" if len(some) == 1 else f"{len(some):,} items look"
            such = ":" if len(some) == 1 else ", such as"
            sentences.append(f"{count} nearly the same as {what}{such} {some[0].name!r} and {some[0].other!r}.")
    return sentences

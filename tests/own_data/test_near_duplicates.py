"""Items that look the same: found by naive loops too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from likelyshot.data.items import Digests, Item
from likelyshot.own_data import near_duplicates as near
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.rows import Rows, gather


def rows(vectors, prefix: str) -> Rows:
    items = [Item(f"{prefix}{place}") for place in range(len(vectors))]
    gathered = gather(Pile(items, np.asarray(vectors), [], "features"), None)
    packed = [list(item.name.encode().ljust(32)) for item in items]
    return dataclasses.replace(gathered, digests=Digests(np.array(packed, np.uint8)))


def naive(pile, labelled, least):
    def cosine(a, b):
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    found = []
    for place, vector in enumerate(pile):
        known = [(cosine(vector, other), f"labelled {i}") for i, other in enumerate(labelled)]
        before = [(cosine(vector, other), f"pile {i}") for i, other in enumerate(pile[:place])]
        best = next((max(some) for some in (known, before) if some and max(some)[0] > least), None)
        if best:
            found.append((f"pile {place}", best[1], pytest.approx(best[0], abs=1e-5)))
    return found


@pytest.mark.parametrize("block", [1, 3, 7, 1000])
def test_blocks_find_what_loops_find(monkeypatch, block):
    monkeypatch.setattr(near, "BLOCK", block)
    monkeypatch.setattr(near, "ALIKE_ELSEWHERE", 0.9)
    chance = np.random.default_rng(0)
    labelled, pile = chance.random((5, 3)), chance.random((23, 3))
    found = near.near_duplicates(rows(pile, "pile "), rows(labelled, "labelled "), "mine")
    assert [(one.name, one.other, one.cosine) for one in found] == naive(pile, labelled, 0.9)
    assert {one.labelled for one in found} == {True, False}
    assert all(one.labelled == one.other.startswith("labelled") for one in found)


def test_different_vectors_are_not_alike_and_equal_files_are_told_elsewhere():
    pile, labelled = rows(np.eye(4), "a"), rows(np.eye(4), "a")
    assert near.near_duplicates(pile, None, "mine") == []
    assert near.near_duplicates(pile, labelled, "mine") == []
    assert len(near.near_duplicates(pile, rows(np.eye(4), "b"), "mine")) == 4


def test_large_piles_and_given_vectors_are_not_searched(monkeypatch):
    pile = rows(np.ones((5, 2)), "a")
    assert len(near.near_duplicates(pile, None, "mine")) == 4
    assert near.near_duplicates(dataclasses.replace(pile, digests=None), None, "mine") == []
    monkeypatch.setattr(near, "MOST", 4)
    assert near.near_duplicates(pile, None, "mine") == []


def test_sentences():
    found = [near.Near("b", "a", 1.0, False), near.Near("c", "a", 1.0, False), near.Near("d", "x", 1.0, True)]
    assert near.describe(found) == [
        "1 item looks nearly the same as a labelled example: 'd' and 'x'.",
        "2 items look nearly the same as another one of the pile, such as 'b' and 'a'.",
    ]
    assert near.describe([]) == []

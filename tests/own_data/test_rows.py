"""Items that are the same or look the same: found by naive loops too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from likelyshot.data.items import Item
from likelyshot.own_data import rows as module
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.rows import Rows, gather, near_duplicates, repeated


def rows(vectors, prefix: str) -> Rows:
    items = [Item(f"{prefix}{place}") for place in range(len(vectors))]
    gathered = gather(Pile(items, np.asarray(vectors), [], "features"), None)
    packed = [list(item.name.encode().ljust(32)) for item in items]
    return dataclasses.replace(gathered, digests=np.array(packed, np.uint8))


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
    monkeypatch.setattr(module, "COMPARED_AT_ONCE", block)
    monkeypatch.setattr(module, "ALIKE_ELSEWHERE", 0.9)
    chance = np.random.default_rng(0)
    labelled, pile = chance.random((5, 3)), chance.random((23, 3))
    found = near_duplicates(rows(pile, "pile "), rows(labelled, "labelled "), "mine")
    assert [(one.name, one.other, one.cosine) for one in found] == naive(pile, labelled, 0.9)
    assert {one.labelled for one in found} == {True, False}
    assert all(one.labelled == one.other.startswith("labelled") for one in found)


def test_different_vectors_are_not_alike_and_equal_files_are_told_elsewhere():
    pile, labelled = rows(np.eye(4), "a"), rows(np.eye(4), "a")
    assert near_duplicates(pile, None, "mine") == []
    assert near_duplicates(pile, labelled, "mine") == []
    assert len(near_duplicates(pile, rows(np.eye(4), "b"), "mine")) == 4


def test_large_piles_and_given_vectors_are_not_searched(monkeypatch):
    pile = rows(np.ones((5, 2)), "a")
    assert len(near_duplicates(pile, None, "mine")) == 4
    assert near_duplicates(dataclasses.replace(pile, digests=None), None, "mine") == []
    monkeypatch.setattr(module, "MOST_COMPARED", 4)
    assert near_duplicates(pile, None, "mine") == []


def test_sentences():
    found = [module.Near("b", "a", 1.0, False), module.Near("c", "a", 1.0, False), module.Near("d", "x", 1.0, True)]
    assert module.describe_near(found) == [
        "1 item looks nearly the same as a labelled example: 'd' and 'x'.",
        "2 items look nearly the same as another one of the pile, such as 'b' and 'a'.",
    ]
    assert module.describe_near([]) == []


@given(st.lists(st.sampled_from("abcdef")), st.lists(st.sampled_from("abcdef")))
def test_duplicates_are_what_two_loops_find(support, query):
    first, second = (
        [(f"{side}{i}", key) for i, key in enumerate(keys)] for side, keys in (("s", support), ("q", query))
    )
    expected = []
    for name, digest in second:
        same = [other for other, its in first if its == digest]
        expected += [(same[0], name)] if same else []

    def with_digests(pairs) -> Rows:
        digests = np.array([list(key.encode() * 32) for _, key in pairs], np.uint8).reshape(-1, 32)
        return Rows([Item(name) for name, _ in pairs], np.ones((len(pairs), 2)), None, [], digests, False, np.ones(0))

    assert repeated(with_digests(first), with_digests(second)) == expected

"""Rounds classify what is open, in blocks where the pile is large, and say honestly what more labels would bring."""

from __future__ import annotations

import numpy as np
import pytest

from likelyshot.labelling import rounds
from likelyshot.labelling.journal import Measured
from likelyshot.labelling.rounds import Known, few, growth, learn
from likelyshot.labelling.selection import groups, hardest_pair, strangest, teach_most, varied
from likelyshot.own_data.answers import Answers


def pile(count=300, classes=3, dim=30, seed=0):
    chance = np.random.default_rng(seed)
    centres = chance.exponential(1.0, (classes, dim)) ** 2
    truth = chance.integers(0, classes, count)
    vectors = (centres[truth] * chance.gamma(6.0, 1 / 6, (count, dim))).astype(np.float32)
    return vectors, [f"class {k}" for k in truth]


def round_of(vectors, truth, each=2, **settings):
    rows = [r for name in sorted(set(truth)) for r in [i for i, true in enumerate(truth) if true == name][:each]]
    known = Known(vectors[rows], [truth[r] for r in rows], [""] * len(rows), rows, settings.pop("refused", {}))
    left = np.setdiff1d(np.arange(len(truth)), rows)
    return learn(vectors, left, known, labelled=len(rows), **settings)


def right(found, truth):
    return np.mean([truth[n] == guess for n, guess in zip(found.open, found.answers.predicted, strict=True)])


@pytest.mark.parametrize("method", [None, "likelihood_mixture", "baseline_pp"])
def test_blocks_answer_like_the_whole_in_the_order_of_the_items(monkeypatch, method):
    vectors, truth = pile()
    whole = round_of(vectors, truth, method=method)
    monkeypatch.setattr(rounds, "BLOCK", 60)
    blocks = round_of(vectors, truth, method=method)
    assert blocks.open.tolist() == whole.open.tolist()
    assert right(whole, truth) > 0.95
    assert right(blocks, truth) > 0.95
    assert 0.8 < blocks.accuracy <= 1


def test_a_class_that_was_refused_has_no_probability():
    vectors, truth = pile()
    number = 250
    found = round_of(vectors, truth, refused={number: truth[number], 251: "unknown"})
    place = found.open.tolist().index(number)
    values = found.answers.probabilities[place]
    assert values[list(found.answers.classes).index(truth[number])] == 0
    assert values.sum() == pytest.approx(1)


def test_many_examples_are_thinned_evenly():
    labels = ["a"] * 1000 + ["b"] * 50 + ["c"] * 3
    rows = few(labels, most=120)
    counts = [sum(labels[row] == name for row in rows) for name in "abc"]
    assert counts == [67, 50, 3]
    assert rows == sorted(set(rows))


def test_growth_is_told_only_where_it_can_be():
    rising = [Measured(n, 1 - 0.8 * n**-0.4) for n in (20, 40, 60, 80, 100)]
    found = growth(rising)
    assert found.points == pytest.approx(2)
    wanted = 1 - rising[-1].accuracy - 0.02
    assert found.labels == pytest.approx((wanted / 0.8) ** (-1 / 0.4) - 100, abs=1)
    assert growth(rising[:3]).labels is None
    assert growth([Measured(n, 0.7) for n in (20, 40, 60, 80)]).labels is None
    up_and_down = [Measured(n, a) for n, a in ((20, 0.5), (40, 0.8), (60, 0.4), (80, 0.85), (100, 0.6))]
    assert growth(up_and_down).labels is None
    slow = [Measured(n, 1 - 0.5 * n**-0.03) for n in (20, 40, 60, 80)]
    assert "three times" in growth(slow).why
    assert growth([]).labels is None


def answers(p, reject=None, novelty=None):
    p = np.array(p, dtype=float)
    reject = np.zeros(len(p), bool) if reject is None else np.array(reject)
    return Answers([""] * len(p), [f"k{i}" for i in range(p.shape[1])], p, reject, np.array(novelty or [0.0] * len(p)))


def test_groups_are_of_one_class_sure_enough_and_not_rejected():
    chance = np.random.default_rng(0)
    p = chance.dirichlet([0.1] * 4, 400)
    reject = chance.random(400) < 0.1
    one = answers(p, reject)
    found = groups(one, 3, size=12)
    assert 0 < len(found) <= 3
    for group in found:
        assert 4 <= len(group.items) <= 12
        assert all(one.best[row] == group.place for row in group.items)
        assert not reject[group.items].any()
        assert (1 - one.probability[group.items]).sum() <= 1.0 + 1e-9
    assert len({group.place for group in found}) == len(found)
    assert groups(answers([[0.5, 0.5]]), 3) == []


def test_the_hardest_pair_is_that_of_most_undecided_items():
    p = [[0.5, 0.45, 0.05]] * 3 + [[0.05, 0.48, 0.47], [0.9, 0.05, 0.05]]
    pair = hardest_pair(answers(p), 2)
    assert (pair.one, pair.other, len(pair.items)) == (0, 1, 2)
    assert hardest_pair(answers([[0.9, 0.1]]), 2) is None
    assert hardest_pair(answers(np.empty((0, 2))), 2) is None


def test_the_strangest_are_rejected_ones():
    found = strangest(answers([[1.0, 0.0]] * 4, [True, False, True, True], [1.0, 9.0, 3.0, 2.0]), 2)
    assert found == [2, 3]


def test_a_varied_screen_covers_small_classes():
    chance = np.random.default_rng(0)
    centres = chance.exponential(1.0, (8, 20))
    truth = np.repeat(np.arange(8), [400, 100, 40, 20, 10, 10, 10, 10])
    vectors = centres[truth] * chance.gamma(20.0, 1 / 20, (600, 20))
    found = varied(vectors, 16)
    assert len(found) == len(set(found)) == 16
    assert len(set(truth[found].tolist())) == 8
    assert sorted(varied(vectors[:3], 16)) == [0, 1, 2]
    assert varied(vectors[:0], 16) == []
    assert len(varied(np.ones((5, 2)), 3)) == 3


def test_what_was_seen_comes_last():
    vectors = np.repeat(np.eye(4), 10, axis=0) + 0.01 * np.random.default_rng(0).random((40, 4))
    assert {row // 10 for row in varied(vectors, 3, known=vectors[:10])} == {1, 2, 3}


def test_items_that_teach_differ_from_each_other():
    chance = np.random.default_rng(0)
    vectors = np.concatenate([np.tile([1.0, 1.0, 0.0], (30, 1)), np.tile([0.0, 1.0, 1.0], (30, 1))])
    vectors += 0.01 * chance.random((60, 3))
    found = teach_most(vectors, answers([[0.5, 0.5]] * 60), 2)
    assert {row < 30 for row in found} == {True, False}
    assert teach_most(vectors[:2], answers([[0.5, 0.5]] * 2), 5) == [0, 1]

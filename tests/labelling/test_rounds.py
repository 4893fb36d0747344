"""Rounds classify what is open, in blocks where the pile is large, and say honestly what more labels would bring."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from likelyshot.confidence.held_out import HeldOut
from likelyshot.labelling import rounds, selection
from likelyshot.labelling.journal import Guess, Measured
from likelyshot.labelling.rounds import Known, expected_right, few, growth, learn, learn_in_parts, page_temperature
from likelyshot.labelling.selection import GROUP, groups, most_common_pair, next_screen, strangest, teach_most, varied
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
    return learn(vectors, left, known, **settings)


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


def test_of_a_large_pile_a_part_is_answered_first_and_the_rest_unless_somebody_clicks(monkeypatch):
    monkeypatch.setattr(rounds, "BLOCK", 60)
    monkeypatch.setattr(rounds, "PART", 100)
    vectors, truth = pile()
    rows = [truth.index(name) for name in sorted(set(truth))]
    known = Known(vectors[rows], [truth[row] for row in rows], [""] * 3, rows, {})
    left = np.setdiff1d(np.arange(300), rows)
    first, whole = learn_in_parts(vectors, left, known)
    assert (first.whole, whole.whole) == (False, True)
    assert 100 <= len(first.open) <= 120
    assert whole.open.tolist() == left.tolist()
    assert set(first.open.tolist()) <= set(left.tolist())
    of_part = np.searchsorted(whole.open, first.open)
    assert np.allclose(whole.answers.probabilities[of_part], first.answers.probabilities)
    assert abs(first.accuracy - whole.accuracy) < 0.1  # both of the whole pile
    assert right(first, truth) > 0.9
    assert [found.whole for found in learn_in_parts(vectors, left, known, stop=lambda: True)] == [False]


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
    assert growth(rising, left=found.labels) == found
    assert "more than there are items left" in growth(rising, left=found.labels - 1).why
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
    found = groups(one, 3, [3, 5, 3, 2], least=1e-12)
    assert 0 < len(found) <= 3
    for group in found:
        assert 4 <= len(group.items) <= GROUP
        assert all(one.best[row] == group.place for row in group.items)
        assert not reject[group.items].any()
        assert (1 - one.probability[group.items]).sum() <= 0.5 + 1e-9
    assert len({group.place for group in found}) == len(found)
    assert 3 not in {group.place for group in found}  # with two examples, a whole group may be of another class
    assert groups(answers([[0.5, 0.5]]), 3, [9, 9]) == []


def test_the_pair_is_that_of_most_items():
    p = [[0.5, 0.45, 0.05]] * 3 + [[0.05, 0.48, 0.47], [0.9, 0.05, 0.05]]
    assert most_common_pair(answers(p), [0, 2, 3]) == [0, 2]
    assert most_common_pair(answers([[0.6, 0.4]]), [0]) == []  # two classes are always the pair
    assert most_common_pair(answers(p), []) == []


def test_a_group_is_shown_if_a_click_on_it_corrects_as_much_as_one_on_a_single_item():
    vectors = np.random.default_rng(0).random((16, 3))
    sure = [[0.97, 0.02, 0.01]] * 10  # 0.3 wrong: 1.3 clicks, of which 0.23 correct a label
    for unsure, examples, kinds in (
        ([0.5, 0.4, 0.1], 5, ["pair"]),
        ([0.85, 0.1, 0.05], 5, ["pair", "group"]),
        ([0.85, 0.1, 0.05], 2, ["pair"]),  # with two examples, a whole group may be of another class
        (None, 1, ["group"]),  # nothing is unsure
    ):
        p = [*sure, *([unsure] * 6 if unsure else [])]
        sections = next_screen(vectors, np.arange(len(p)), answers(p), [examples] * 3)
        assert [section.kind for section in sections] == kinds
        for section in sections:
            expected = (("k0",), list(range(10))) if section.kind == "group" else (("k0", "k1"), list(range(10, 16)))
            assert (section.classes, sorted(section.items)) == expected


def test_strange_items_are_shown_apart_and_every_item_once():
    vectors = np.random.default_rng(0).random((20, 3))
    p = [[0.4, 0.3, 0.3]] * 10 + [[0.98, 0.01, 0.01]] * 10
    reject = [False] * 9 + [True] + [False] * 8 + [True] * 2
    sections = next_screen(vectors, np.arange(20), answers(p, reject, list(range(20))), [3] * 3)
    shown = [place for section in sections for place in section.items]
    assert len(shown) == len(set(shown))
    assert {18, 19} <= set(next(section.items for section in sections if section.kind == "strange"))
    reject[18:] = [False] * 2  # of items of known classes, about as many are rejected
    sections = next_screen(vectors, np.arange(20), answers(p, reject, list(range(20))), [3] * 3)
    assert not any(place >= 10 for section in sections if section.kind == "strange" for place in section.items)
    assert next_screen(vectors[:0], np.arange(0), answers(np.empty((0, 3))), [3] * 3) == []


def test_labelled_items_that_are_hard_do_not_make_probabilities_low():
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(10)
    scores = torch.randn(40, 4, generator=chance, dtype=torch.float64)  # held out, they are guessed at random
    hard = HeldOut("mll", 0.07, scores, labels, torch.arange(40), gap=100.0)
    assert hard.temperature() > 7
    assert page_temperature(hard) == pytest.approx(0.75 * 7)
    easy = HeldOut("mll", 0.07, scores + 9 * one_hot(labels, 4), labels, torch.arange(40), gap=100.0)
    assert page_temperature(easy) < 0.75 * 7
    none = HeldOut("mll", 0.07, scores[:0], labels[:0], labels[:0], gap=100.0)
    assert page_temperature(none) == pytest.approx(7)


def test_the_number_of_right_answers_learns_from_the_last_guesses():
    p = np.full(100, 0.8)
    plain = expected_right(p)
    assert plain.number == pytest.approx(80)
    assert plain.low < 70 < 90 < plain.high
    better = expected_right(p, [Guess(0.8, True)] * 50)
    worse = expected_right(p, [Guess(0.8, False)] * 50)
    assert worse.number < 60 < plain.number < better.number
    assert better.high - better.low < plain.high - plain.low
    again = expected_right(p, [Guess(0.8, False)] * 1000 + [Guess(0.8, True)] * 50)
    assert again == better  # what was guessed long ago was by a worse model
    nearly = expected_right(np.full(100, 0.995))
    assert nearly.number < 100
    assert nearly.high == 100  # half a wrong answer is expected, and none at all is no surprise
    sure = expected_right(np.array([1.0, 0.0]), [Guess(1.0, False), Guess(0.0, True)] * 50)
    assert np.isfinite(sure).all()


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


def greedy(vectors, p, count, known):
    """Facility location by plain loops."""

    def centred(x):
        x = x / np.linalg.norm(x, axis=1, keepdims=True) - (vectors / np.linalg.norm(vectors, axis=1)[:, None]).mean(0)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    own, wrong, chosen = centred(vectors), 1 - p.max(1), []
    labelled = list(centred(known))

    def total(more):
        return sum(u * max([0.0, *(float(x @ y) for y in more)]) for x, u in zip(own, wrong, strict=True))

    while len(chosen) < count:
        totals = {i: total([*labelled, *own[chosen], own[i]]) for i in range(len(own)) if i not in chosen}
        chosen.append(max(totals, key=totals.__getitem__))
    return chosen


def test_what_teaches_most_is_the_greedy_choice_of_facility_location():
    chance = np.random.default_rng(0)
    vectors, known = chance.exponential(1.0, (30, 6)), chance.exponential(1.0, (3, 6))
    p = chance.dirichlet([0.5] * 3, 30)
    assert teach_most(vectors, answers(p), 6, known=known) == greedy(vectors, p, 6, known)
    order = chance.permutation(30)  # where the items are in the pile does not matter
    assert [order[i] for i in teach_most(vectors, answers(p[order]), 6, rows=order, known=known)] == greedy(
        vectors, p, 6, known
    )


def test_items_that_teach_cover_large_kinds_first_and_none_that_is_labelled():
    chance = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [30, 20, 10])
    vectors = np.eye(3)[truth] + 0.01 * chance.random((60, 3))
    unsure = answers([[0.5, 0.5]] * 60)
    assert truth[teach_most(vectors, unsure, 3)].tolist() == [0, 1, 2]
    assert truth[teach_most(vectors, unsure, 2, known=vectors[:1])].tolist() == [1, 2]
    sure = answers([[0.5, 0.5]] * 50 + [[1.0, 0.0]] * 10)
    assert 2 not in truth[teach_most(vectors, sure, 2)]
    assert teach_most(vectors[:2], answers([[0.5, 0.5]] * 2), 5) == [0, 1]


def test_of_many_items_a_sample_stands_for_the_surer_ones(monkeypatch):
    chance = np.random.default_rng(0)
    monkeypatch.setattr(selection, "POOL", 30)
    truth = np.repeat([0, 1], [40, 400])
    vectors = np.eye(2)[truth] + 0.01 * chance.random((440, 2))
    p = np.where(truth == 0, 0.5, 0.8)[:, None] * [1, -1] + [0, 1]
    assert truth[teach_most(vectors, answers(p), 1)].tolist() == [1]  # 400 x 0.2 is more than 40 x 0.5

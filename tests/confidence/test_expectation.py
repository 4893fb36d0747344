"""What is expected of a method: counts by hand, coverage by simulation, labels that are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from likelyshot import InputError
from likelyshot.confidence.expectation import expect, expectation_of, wilson
from likelyshot.confidence.temperature import Held
from likelyshot.methods import METHODS

EUCLIDEAN, NAMES = METHODS["euclidean"], ["ant", "bee", "cow"]


def draw(seed: int, shots: int, apart: float, queries: int = 0, ways: int = 3, dim: int = 8):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(ways, dim)) * apart
    labels, truth = np.repeat(np.arange(ways), shots), rng.integers(ways, size=queries)
    items = [torch.tensor(centres[y] + rng.normal(size=(len(y), dim))) for y in (labels, truth)]
    return items[0], torch.tensor(labels), items[1], torch.tensor(truth)


def held(scores, labels, rows=None) -> Held:
    rows = range(len(labels)) if rows is None else rows
    return Held(torch.tensor(scores).double(), torch.tensor(labels), torch.tensor(list(rows)), gap=1.0)


def test_counts_by_hand():
    scores = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    found = expectation_of(held(scores, [0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 2]), NAMES)
    assert found.examples == 5
    assert found.accuracy == pytest.approx(0.6)
    assert found.confusion.tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert found.single == ("cow",)
    assert [(pair.one, pair.other, pair.share) for pair in found.hard_pairs] == [("ant", "bee", pytest.approx(0.4))]
    said = " ".join(found.words())
    assert "5 labelled examples" in said
    assert "60 %" in said
    assert "One example only" in said
    assert "Taken for another: ant for bee (1 of 2), bee for ant (1 of 3)." in said
    assert "Hard to tell apart: ant and bee (40 %" in said


def test_an_example_that_recurs_counts_once():
    scores = [[1, 0], [0, 1], [0, 1], [0, 1]]
    found = expectation_of(held(scores, [0, 0, 1, 1], rows=[0, 0, 1, 1]), torch.tensor([0, 1]), NAMES[:2])
    assert found.examples == 2
    assert found.accuracy == pytest.approx(0.75)
    assert found.confusion.tolist() == [[0.5, 0.5], [0, 1]]


@pytest.mark.parametrize("n", [1, 7, 40])
def test_the_interval_is_wilson_s(n):
    for right in range(n + 1):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        assert wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-4)
    assert wilson(math.nan, 0) == (0.0, 1.0)


@pytest.mark.parametrize("apart", [0.4, 0.8])
def test_the_interval_covers_what_comes(apart):
    covered, tasks = 0, 100
    for seed in range(tasks):
        support, labels, query, truth = draw(seed, 6, apart, queries=1500)
        method = lambda *inputs, n_ways: EUCLIDEAN(*inputs, n_ways=n_ways, normalise=False)  # noqa: E731
        low, high = expect(method, support, labels, NAMES).interval
        real = float((method(support, labels, query, n_ways=3).argmax(-1) == truth).double().mean())
        covered += low <= real <= high
    assert covered >= 0.92 * tasks  # 95 % nominal, less the sampling of 100 tasks


def test_a_wrong_label_is_found_and_right_ones_are_left_alone():
    found, accused = 0, 0
    for seed in range(20):
        support, labels, _, _ = draw(seed, 6, 3.0)
        accused += len(expect(EUCLIDEAN, support, labels, NAMES).doubtful)
        wrong = labels.clone()
        wrong[2] = 1
        doubtful = expect(EUCLIDEAN, support, wrong, NAMES).doubtful
        found += any((doubt.row, doubt.label, doubt.better) == (2, "bee", "ant") for doubt in doubtful)
    assert found >= 17
    assert accused <= 3  # of 360


def test_it_says_which_label_to_check():
    support, labels, _, _ = draw(1, 8, 4.0)
    labels[0] = 2
    found = expect(EUCLIDEAN, support, labels, NAMES)
    names = [f"photo {row}.jpg" for row in range(len(labels))]
    assert any("photo 0.jpg: it says cow, the others say ant" in line for line in found.words(names))
    assert any("example 1: it says cow" in line for line in found.words())
    assert [doubt.odds for doubt in found.doubtful] == sorted((d.odds for d in found.doubtful), reverse=True)


def test_classes_that_are_the_same_are_called_hard():
    support, labels, _, _ = draw(2, 10, 4.0, ways=3)
    labels[labels == 1] = 0  # a class, split at random into two
    labels[:20:2] = 1
    pairs = expect(EUCLIDEAN, support, labels, NAMES).hard_pairs
    assert ("ant", "bee") in {(pair.one, pair.other) for pair in pairs}


def test_one_example_each_is_said_and_no_error():
    support, labels, query, _ = (x.abs() for x in draw(0, 1, 2.0, queries=5))
    for name in ("euclidean", "mll_transductive"):
        found = expect(METHODS[name], support, labels, NAMES, query=query)
        assert found.examples == 0
        assert math.isnan(found.accuracy)
        assert found.interval == (0.0, 1.0)
        assert found.doubtful == found.hard_pairs == ()
        assert "no telling the accuracy" in found.words()[0]


def test_the_seed_decides_and_transductive_methods_take_the_pile():
    support, labels, query, _ = draw(0, 4, 1.0, queries=20)
    support, query = support.abs(), query.abs()
    method = METHODS["mll_transductive"]
    one, same = (expect(method, support, labels, NAMES, query=query, seed=5) for _ in range(2))
    assert torch.equal(one.confusion, same.confusion)
    assert one.examples == 12


def test_bad_input():
    with pytest.raises(InputError, match="a name for each of 3 classes"):
        expectation_of(held([[0, 0, 0]], [0]), torch.tensor([0]), NAMES[:2])

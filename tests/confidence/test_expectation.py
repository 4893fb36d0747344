"""What is expected of a method: counts by hand, coverage by simulation, labels that are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from likelyshot import InputError
from likelyshot.confidence.held_out import HeldOut, expect, expectation_from, wilson
from likelyshot.methods import METHODS

EUCLIDEAN, NAMES = METHODS["euclidean"], ["ant", "bee", "cow"]


def draw(seed: int, shots: int, apart: float, queries: int = 0, ways: int = 3, dim: int = 8):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(ways, dim)) * apart
    labels, truth = np.repeat(np.arange(ways), shots), rng.integers(ways, size=queries)
    items = [torch.tensor(centres[y] + rng.normal(size=(len(y), dim))) for y in (labels, truth)]
    return items[0], torch.tensor(labels), items[1], torch.tensor(truth)


def held(scores, labels, rows=None) -> HeldOut:
    rows = range(len(labels)) if rows is None else rows
    return HeldOut("mll", 0.07, torch.tensor(scores).double(), torch.tensor(labels), torch.tensor(list(rows)), gap=1.0)


def test_counts_by_hand():
    scores = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]
    result = expectation_from(held(scores, [0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 2]), NAMES)
    assert result.examples == 5
    wrong = (1 - 0.6 / 2) + (1 - 0.6 / 3)  # an error in a class of 2, and one in a class of 3; 0.6 were right
    assert result.accuracy == pytest.approx(1 - wrong / 5)
    assert result.confusion.tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]
    assert result.single == ("cow",)
    assert [(pair.one, pair.other, pair.share) for pair in result.hard_pairs] == [("ant", "bee", pytest.approx(0.4))]
    accuracy, single, confused = result.summary()
    assert accuracy.startswith("Expected accuracy of mll: 70 % (95 % interval")
    assert accuracy.endswith("measured on 5 labelled examples that were held out.")
    assert single == "Classes with one example are not part of that figure: cow."
    assert confused == "Mistakes on held-out examples: ant taken for bee (1 of 2), bee taken for ant (1 of 3)."
    assert result.advice()[:1] == ["Hard to tell apart: ant and bee (40 % of their examples look more like the other)."]


def test_an_example_that_recurs_counts_once():
    scores = [[1, 0], [0, 1], [0, 1], [0, 1]]
    result = expectation_from(held(scores, [0, 0, 1, 1], rows=[0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), NAMES[:2])
    assert result.examples == 2
    assert result.accuracy == pytest.approx(1 - 0.25 * (1 - 0.75 / 2))
    assert result.confusion.tolist() == [[0.5, 0.5], [0, 1]]


@pytest.mark.parametrize("n", [1, 7, 40])
def test_the_interval_is_wilson_s(n):
    for right in range(n + 1):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        assert wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-4)
    assert wilson(math.nan, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("apart", "shots"), [(0.4, 6), (0.8, 6), (0.8, 2)])
def test_the_interval_covers_what_comes(apart, shots):
    covered, bias, tasks = 0, [], 100
    for seed in range(tasks):
        support, labels, query, truth = draw(seed, shots, apart, queries=1500)
        method = lambda *inputs, n_ways: EUCLIDEAN(*inputs, n_ways=n_ways, normalise=False)  # noqa: E731
        result = expect(method, support, labels, NAMES)
        real = float((method(support, labels, query, n_ways=3).argmax(-1) == truth).double().mean())
        covered += result.interval[0] <= real <= result.interval[1]
        bias.append(result.accuracy - real)
    assert covered >= 0.92 * tasks  # 95 % nominal, less the sampling of 100 tasks
    assert abs(np.mean(bias)) < 0.05


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
    result = expect(EUCLIDEAN, support, labels, NAMES)
    names = [f"photo {row}.jpg" for row in range(len(labels))]
    assert any("photo 0.jpg: it is cow, but the other examples suggest ant" in line for line in result.advice(names))
    assert any("example 1: it is cow" in line for line in result.advice())
    assert [doubt.odds for doubt in result.doubtful] == sorted((d.odds for d in result.doubtful), reverse=True)


def test_classes_that_are_the_same_are_called_hard():
    support, labels, _, _ = draw(2, 10, 4.0, ways=3)
    labels[labels == 1] = 0  # a class, split at random into two
    labels[:20:2] = 1
    pairs = expect(EUCLIDEAN, support, labels, NAMES).hard_pairs
    assert ("ant", "bee") in {(pair.one, pair.other) for pair in pairs}


def test_one_example_each_is_said_and_no_error():
    support, labels, query, _ = (x.abs() for x in draw(0, 1, 2.0, queries=5))
    for name in ("euclidean", "mll_transductive"):
        result = expect(METHODS[name], support, labels, NAMES, query=query)
        assert result.examples == 0
        assert math.isnan(result.accuracy)
        assert result.interval == (0.0, 1.0)
        assert result.doubtful == result.hard_pairs == ()
        assert "the accuracy cannot be estimated" in result.summary()[0]


def test_the_seed_decides_and_transductive_methods_take_the_pile():
    support, labels, query, _ = draw(0, 4, 1.0, queries=20)
    support, query = support.abs(), query.abs()
    method = METHODS["mll_transductive"]
    one, same = (expect(method, support, labels, NAMES, query=query, seed=5) for _ in range(2))
    assert torch.equal(one.confusion, same.confusion)
    assert one.examples == 12
    assert one.summary()[0].startswith("Expected accuracy of mll_transductive on this pile: ")


def test_a_method_that_assumes_balance_is_not_flattered_on_an_imbalanced_pile():
    method, with_pile, alone, real, covered = METHODS["pt_map"], [], [], [], 0
    for seed in range(10):
        support, labels, query, truth = draw(seed, 5, 4.0, queries=400)
        support, query = support.abs(), query.abs()
        rows = torch.cat([(truth == way).nonzero()[:count].flatten() for way, count in enumerate((60, 30, 10))])
        result = expect(method, support, labels, NAMES, query=query[rows])
        scores = method(support, labels, query[rows], n_ways=3)
        real.append(float((scores.argmax(-1) == truth[rows]).double().mean()))
        with_pile.append(result.accuracy)
        alone.append(expect(method, support, labels, NAMES).accuracy)
        covered += result.interval[0] <= real[-1] <= result.interval[1]
    assert np.mean(with_pile) == pytest.approx(np.mean(real), abs=0.12)
    assert np.mean(alone) > np.mean(real) + 0.15  # without the pile, folds have as many examples of each class
    assert covered >= 9


def test_results_are_on_the_device_of_the_scores():
    """Under another default device, nothing is made there."""
    scores = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [9, 0, 0]]
    with torch.device("cpu"):
        given, labels = held(scores, [0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 2])
        wanted = expectation_from(given, labels, NAMES)
    with torch.device("meta"):
        result = expectation_from(given, labels, NAMES)
    assert torch.equal(result.confusion, wanted.confusion)
    assert result.hard_pairs == wanted.hard_pairs
    assert result.doubtful == wanted.doubtful != ()


def test_bad_input():
    with pytest.raises(InputError, match="a name for each of 3 classes"):
        expectation_from(held([[0, 0, 0]], [0]), torch.tensor([0]), NAMES[:2])

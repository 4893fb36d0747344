"""Novelty scores against naive loops, and thresholds whose rate of false rejections is simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot import InputError
from likelyshot.confidence.novelty import SHARE, conformal_quantile, learn_novelty


def draw(seed: int = 0, shots: tuple[int, ...] = (4, 2, 1), pile: int = 30, dim: int = 6):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(shots), dim)) * 3
    labels = np.repeat(np.arange(len(shots)), shots)
    support = centres[labels] + rng.normal(size=(len(labels), dim))
    items = centres[rng.integers(len(shots), size=pile)] + rng.normal(size=(pile, dim))
    return torch.tensor(support), torch.tensor(labels), torch.tensor(items)


def naive(support, labels, query, pile, *, without: int | None = None):
    """Score by loops; `without` leaves an example out of its class, but not out of background and variance."""
    ways = int(labels.max()) + 1
    classes = [support[labels == way] for way in range(ways)]
    means = [rows.mean(0) for rows in classes]
    within = sum(float((row - mean).square().sum()) for rows, mean in zip(classes, means, strict=True) for row in rows)
    variance = within / max(len(labels) - ways, 1)
    members = [[] for _ in range(ways)]
    for item in pile:
        members[min(range(ways), key=lambda way: float((item - means[way]).square().sum()))].append(item)
    total, weight = sum(means), float(ways)
    for items in members:
        each = min(1.0, (SHARE * (len(pile) - len(items)) / (ways - 1) + 1) / max(len(items), 1))
        total, weight = total + each * sum(items), weight + each * len(items)
    background = total / weight
    scores = []
    for item in query:
        distances = []
        for way in range(ways):
            rows = [i for i in range(len(labels)) if labels[i] == way and i != without]
            mean = support[rows].mean(0) if rows else means[way]
            distances.append(float((item - mean).square().sum()) - variance / max(len(rows), 1))
        scores.append(min(distances) - (float((item - background).square().sum()) if len(pile) else 0.0))
    return scores


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shots", [(1, 1, 1), (4, 2, 1), (5, 5)])
@pytest.mark.parametrize("size", [0, 30])
def test_scores_and_held_out_scores_are_the_naive_loops(seed, shots, size):
    support, labels, pile = draw(seed, shots)
    novelty = learn_novelty(support, labels, len(shots), pile=pile[:size], normalise=False)
    assert np.allclose(novelty.score(pile), naive(support, labels, pile, pile[:size]), rtol=1e-9)
    several = [i for i in range(len(labels)) if int((labels == labels[i]).sum()) > 1]
    expected = [naive(support, labels, support[i : i + 1], pile[:size], without=i)[0] for i in several]
    assert np.allclose(novelty.held_out, expected, rtol=1e-9)


def test_no_pile_is_an_empty_pile():
    support, labels, pile = draw()
    one, other = (learn_novelty(support, labels, 3, pile=given) for given in (None, pile[:0]))
    assert torch.equal(one.score(pile), other.score(pile))
    assert one.background is None


def test_normalised_features_have_no_length():
    support, labels, pile = draw()
    one = learn_novelty(support, labels, 3, pile=pile)
    other = learn_novelty(support * 7, labels, 3, pile=pile * 0.1)
    assert torch.allclose(one.score(pile), other.score(pile * 3))
    assert one.score(pile.float()).dtype == torch.float64


def test_strange_things_score_higher():
    support, labels, pile = draw(shots=(5, 5, 5))
    strange = torch.tensor(np.random.default_rng(9).normal(size=(20, 6)) * 3 + 8)
    novelty = learn_novelty(support, labels, 3, pile=torch.cat([pile, strange]), normalise=False)
    assert novelty.score(strange).min() > novelty.score(pile).median()
    assert (novelty.score(strange) > novelty.threshold(0.1)).double().mean() > 0.9


def test_a_pile_full_of_one_class_does_not_make_it_the_background():
    support, labels, _ = draw(shots=(5, 5, 5))
    one = support[labels == 0].mean(0)
    novelty = learn_novelty(support, labels, 3, pile=one.expand(1000, -1), normalise=False)
    assert novelty.score(one.unsqueeze(0)) < novelty.score(-2 * one.unsqueeze(0))
    prototypes = torch.stack([support[labels == way].mean(0) for way in range(3)])
    even = learn_novelty(support, labels, 3, pile=prototypes.repeat(10, 1), normalise=False)
    assert torch.allclose(even.background, prototypes.mean(0))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.floats(0, 0.99))
def test_the_quantile_by_counting(m, rate):
    scores = torch.randperm(m, generator=torch.Generator().manual_seed(m)).double()
    found = conformal_quantile(scores, rate)
    if math.isinf(found):
        assert rate * (m + 1) < 1 + 1e-6
    else:  # of m + 1 equally likely places, those above
        above = int((scores > found).sum()) + 1
        assert above / (m + 1) <= rate + 1e-6
        assert rate < (above + 1) / (m + 1) + 1e-6


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_known_things_are_rejected_at_about_the_rate(rate):
    rejected = []
    for seed in range(60):
        support, labels, items = draw(seed, shots=(8, 8, 8, 8), pile=200)
        novelty = learn_novelty(support, labels, 4, pile=items[:100], normalise=False)
        rejected.append(float((novelty.score(items[100:]) > novelty.threshold(rate)).double().mean()))
    assert np.mean(rejected) < 1.3 * rate + 0.01
    assert np.mean(rejected) > 0.4 * rate


def test_where_examples_are_too_few_the_pile_decides():
    support, labels, pile = draw(shots=(1, 1, 1), pile=99)
    novelty = learn_novelty(support, labels, 3, pile=pile)
    scores = novelty.score(pile)
    assert not novelty.guaranteed(0.9)
    assert int((scores > novelty.threshold(0.1, scores)).sum()) == 9
    assert novelty.threshold(0.1) == math.inf
    assert novelty.threshold(0.1, scores[:0]) == math.inf
    for size, rejected in ((19, 0), (20, 1), (39, 1), (40, 2)):  # the 5 % that are promised, of small piles too
        assert int((scores[:size] > novelty.threshold(0.05, scores[:size])).sum()) == rejected
    several = learn_novelty(*draw()[:2], 3)  # six held out
    assert several.guaranteed(0.15)
    assert not several.guaranteed(0.14)
    assert several.threshold(0.0) == math.inf


def test_bad_input():
    support, labels, _ = draw()
    with pytest.raises(InputError, match="one label for each row"):
        learn_novelty(support, labels[:-1], 3)
    for ways in (2, 4):
        with pytest.raises(InputError, match="expected labels from 0 to"):
            learn_novelty(support, labels, ways)
    for rate in (-0.1, 1.0, math.nan):
        with pytest.raises(InputError, match="the rejection rate must be"):
            learn_novelty(support, labels, 3).threshold(rate)

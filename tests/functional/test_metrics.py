"""Metrics, temperatures and calibration errors against naive loops and SciPy's optimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from likelyshot import InputError
from likelyshot.functional.scores import (
    calibration_error,
    class_confusion,
    confusion_counts,
    decide,
    fit_temperature,
    probabilities,
    reliability_counts,
)


@pytest.fixture
def drawn():
    generator = torch.Generator().manual_seed(0)
    classes = torch.stack([torch.randperm(7, generator=generator)[:3] for _ in range(20)])  # (t, k)
    truth = torch.randint(3, (20, 11), generator=generator)
    predicted = torch.randint(3, (20, 11), generator=generator)
    return classes, truth, predicted


def test_confusion_by_class_is_that_of_a_loop(drawn):
    classes, truth, predicted = drawn
    taken, could = np.zeros((7, 7), int), np.zeros((7, 7), int)
    for task, ways in enumerate(classes.tolist()):
        for a, b in zip(truth[task].tolist(), predicted[task].tolist(), strict=True):
            taken[ways[a], ways[b]] += 1
            for way in ways:
                could[ways[a], way] += 1
    found = class_confusion(confusion_counts(predicted, truth, 3), classes, 7)
    assert np.array_equal(found[0].numpy(), taken)
    assert np.array_equal(found[1].numpy(), could)


@given(st.integers(0, 1000), st.floats(0.01, 100), st.integers(1, 20))
def test_reliability_is_that_of_a_loop(seed, temperature, bins):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 6, 3, generator=generator, dtype=torch.float64) * 3
    labels = torch.randint(3, (4, 6), generator=generator)
    expected = np.zeros((3, bins))
    for row, label in zip(scores.view(-1, 3), labels.view(-1), strict=True):
        probability = (row / temperature).softmax(-1)
        top, guess = float(probability.max()), int(probability.argmax())
        place = max(math.ceil(top * bins), 1) - 1
        expected[:, place] += [1, top, guess == label]
    predicted, top = decide(scores, temperature)
    assert torch.equal(predicted, scores.argmax(-1))
    found = reliability_counts(top.flatten(), (predicted == labels).flatten(), bins).numpy()
    assert found.sum(1) == pytest.approx(expected.sum(1))  # a probability on the edge of a bin may fall either way
    assert np.abs(found[0] - expected[0]).sum() <= 2


def test_huge_scores_are_sure():
    predicted, top = decide(torch.tensor([[3e38, -3e38]]), 1e-3)
    assert (predicted.item(), top.item()) == (0, 1)


def draw(seed: int, n: int = 60, k: int = 4, scale: float = 30.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores whose softmax is too sure, with labels drawn from softmax(scores / scale)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 2
    labels = (logits + rng.gumbel(size=(n, k))).argmax(-1)  # category i with probability softmax_i
    return torch.tensor(logits * scale), torch.tensor(labels)


def loss(temperature, scores, labels, weights=None, default=None, spread=1.0):
    rows = log_softmax(scores.numpy() / temperature, -1)[np.arange(len(labels)), labels.numpy()]
    total = -(rows if weights is None else rows * weights.numpy()).sum()
    return total + (0 if default is None else (math.log(temperature / default) / spread) ** 2 / 2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("prior", [{}, {"default": 5.0, "spread": 0.3}, {"default": 200.0, "spread": 0.5}])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_temperature_is_the_minimum(seed, prior, weighted):
    scores, labels = draw(seed)
    weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)) if weighted else None
    found = fit_temperature(scores, labels, weights=weights, **prior)
    best = minimize_scalar(lambda x: loss(math.exp(x), scores, labels, weights, **prior), bounds=(-3, 9))
    assert math.log(found) == pytest.approx(best.x, abs=1e-3)
    assert loss(found, scores, labels, weights, **prior) <= best.fun + 1e-9


def test_it_finds_the_temperature_that_made_the_labels():
    scores, labels = draw(0, n=20_000)
    assert fit_temperature(scores, labels) == pytest.approx(30, rel=0.05)


@settings(max_examples=15, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(-1e6, 1e6))
def test_the_unit_and_the_origin_of_the_scores_do_not_matter(unit, shift):
    scores, labels = draw(1)
    expected = fit_temperature(scores, labels)
    assert fit_temperature(scores * unit, labels) == pytest.approx(expected * unit, rel=1e-6)
    assert fit_temperature(scores + shift, labels) == pytest.approx(expected, rel=1e-5)


def test_the_prior_holds_where_examples_say_nothing_or_too_much():
    nothing = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    assert fit_temperature(*nothing, default=7.0) == pytest.approx(7.0)
    equal = torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64)
    assert fit_temperature(*equal, default=7.0) == 7.0
    assert fit_temperature(*equal) == 1.0
    right = 50 * torch.eye(3), torch.arange(3)  # every label is the highest: alone, T would go to zero
    assert fit_temperature(*right) < 5
    assert 5 < fit_temperature(*right, default=10.0, spread=0.2) < 10
    few, many = ({"scores": s, "labels": y} for s, y in (draw(2, n=3), draw(2, n=300)))
    assert abs(math.log(fit_temperature(**few, default=5.0, spread=0.3) / 5)) < abs(
        math.log(fit_temperature(**many, default=5.0, spread=0.3) / 5)
    )


def test_scores_of_any_size_give_finite_probabilities():
    for dtype in (torch.float32, torch.float64):
        huge = torch.finfo(dtype).max
        p = probabilities(torch.tensor([[huge, -huge, 0], [huge, huge, huge], [0, 1e-3, 0]], dtype=dtype), 1e-3)
        assert p.dtype == torch.float64
        assert p.isfinite().all()
        assert torch.allclose(p.sum(-1), torch.ones(3, dtype=torch.float64))


def test_probabilities_are_the_softmax():
    scores, _ = draw(3)
    assert np.allclose(probabilities(scores, 12.0).numpy(), softmax(scores.numpy() / 12, -1), rtol=1e-12)


@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("seed", range(3))
def test_calibration_error_is_the_naive_loop(seed, bins):
    scores, labels = draw(seed, n=500)
    p = softmax(scores.numpy() / 20, -1)
    p[:4] = [[1, 0, 0, 0], [0.25] * 4, [0.6, 0.4, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]]  # edges of bins
    expected = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [i for i in range(len(p)) if low < p[i].max() <= high]
        sure = sum(p[i].max() for i in inside)
        right = sum(p[i].argmax() == labels[i].item() for i in inside)
        expected += abs(sure - right) / len(p)
    assert calibration_error(torch.tensor(p), labels, bins) == pytest.approx(expected, abs=1e-12)


def test_right_temperatures_have_little_error_and_wrong_ones_much():
    scores, labels = draw(5, n=20_000)
    errors = [calibration_error(probabilities(scores, t), labels) for t in (1.0, 30.0, 300.0)]
    assert errors[1] < 0.01
    assert min(errors[0], errors[2]) > 0.1


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_nonsense_temperature_is_refused(temperature):
    with pytest.raises(InputError, match="temperature must be a positive finite number"):
        probabilities(torch.zeros(2, 2), temperature)


def test_bad_input():
    with pytest.raises(InputError, match="one label for each row"):
        fit_temperature(torch.zeros(3, 2), torch.zeros(2))
    with pytest.raises(InputError, match="at least one scored example"):
        fit_temperature(torch.zeros(0, 2), torch.zeros(0))
    with pytest.raises(InputError, match="bins must be 1 or more"):
        calibration_error(torch.ones(1, 2), torch.zeros(1), bins=0)
    with pytest.raises(InputError, match="at least one example"):
        calibration_error(torch.ones(0, 2), torch.zeros(0))

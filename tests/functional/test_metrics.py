from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likelyshot.functional.metrics import class_confusion, confusion_counts, decide, reliability_counts


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

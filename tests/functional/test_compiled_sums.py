from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot.functional.compiled_sums import compiled_sums, sum_by_class
from likelyshot.methods.mll_transductive import ClassSums, mll_transductive

pytest.importorskip("numba")


def naive(query, rates):
    total, count = np.zeros(rates.shape), np.zeros(rates.shape[:2])
    for t, queries in enumerate(query.astype(float)):
        for f in queries:
            y = int(np.argmax([np.log(rate).sum() - rate @ f for rate in rates[t].astype(float)]))
            count[t, y] += 1
            total[t, y] += [(1 - math.exp(-rate * x)) * x for rate, x in zip(rates[t, y].astype(float), f, strict=True)]
    return total, count


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 9), st.integers(1, 4), st.sampled_from([1, 7, 16, 33])
)
def test_equals_loops(seed, tasks, queries, ways, dim):
    draw = np.random.default_rng(seed)
    query = (draw.random((tasks, queries, dim)) ** 2 * (draw.random((tasks, queries, dim)) > 0.2)).astype(np.float32)
    rates = np.exp(draw.uniform(-2, 5, (tasks, ways, dim))).astype(np.float32)
    total, count = np.empty_like(rates), np.empty((tasks, ways), np.float32)
    compiled_sums()(query, rates, np.log(rates).sum(-1), total, count)
    expected, counted = naive(query, rates)
    np.testing.assert_array_equal(count, counted)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)


def test_is_what_python_computes():
    draw = np.random.default_rng(0)
    query, rates = draw.random((2, 5, 6), np.float32), 1 + 9 * draw.random((2, 3, 6), np.float32)
    results = [(np.empty_like(rates), np.empty((2, 3), np.float32)) for _ in range(2)]
    for loop, (total, count) in zip((compiled_sums(), sum_by_class), results, strict=True):
        loop(query, rates, np.log(rates).sum(-1), total, count)
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_huge_and_tiny_features_stay_finite(scale):
    query = torch.full((1, 2, 3), scale)
    total, count = ClassSums(query, 2)(torch.tensor([[[1e-12] * 3, [1e12] * 3]]))
    assert total.isfinite().all()
    assert count.sum() == 2


def test_gives_what_operations_of_torch_give(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.rand(4, n, 64, generator=generator) ** 3 for n in (10, 40))
    inputs = support, torch.arange(5).repeat(2), query
    scores = mll_transductive(*inputs, n_ways=5)
    monkeypatch.setattr(sys.modules[ClassSums.__module__], "compiled_sums", lambda: None)
    torch.testing.assert_close(scores, mll_transductive(*inputs, n_ways=5), rtol=1e-5, atol=1e-3)


def test_of_tied_classes_the_first_takes_the_query():
    rates = torch.tensor([[[2.0, 3.0], [2.0, 3.0]]])
    _, count = ClassSums(torch.rand(1, 6, 2), 2)(rates)
    assert count.flatten().tolist() == [6, 0]

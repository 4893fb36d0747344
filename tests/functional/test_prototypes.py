from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from likelyshot.functional.prototypes import class_means, shrunk_means


def drawn(seed, shots):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((n,), k) for k, n in enumerate(shots)])
    return torch.rand(len(labels), 6, generator=generator, dtype=torch.float64), labels


@given(st.integers(0, 99), st.lists(st.integers(1, 5), min_size=2, max_size=5), st.floats(0, 10))
def test_examples_of_the_average_class_join_every_class(seed, shots, shrinkage):
    support, labels = drawn(seed, shots)
    means = [support[labels == k].mean(0) for k in range(len(shots))]
    common = sum(means) / len(means)
    expected = [(n * mean + shrinkage * common) / (n + shrinkage) for n, mean in zip(shots, means, strict=True)]
    assert torch.allclose(shrunk_means(support, labels, len(shots), shrinkage), torch.stack(expected))


def test_none_are_the_class_means_and_batches_are_loops():
    support, labels = drawn(0, [1, 3, 2])
    assert torch.equal(shrunk_means(support, labels, 3, 0.0), class_means(support, labels, 3))
    both = torch.stack([support, support.flip(0)])
    assert torch.allclose(shrunk_means(both, labels, 3, 2.0)[1], shrunk_means(both[1], labels, 3, 2.0))


@pytest.mark.parametrize("shrinkage", [0.0, 1.0])
def test_a_class_without_support_is_finite(shrinkage):
    support, labels = drawn(0, [2, 2])
    found = shrunk_means(support, labels, 3, shrinkage)
    assert found.isfinite().all()
    assert torch.allclose(found[2], shrinkage * class_means(support, labels, 2).mean(0))

"""Unit vectors, class means and scores against SciPy and loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from likelyshot.functional.scores import (
    class_means,
    confusion_counts,
    cosines,
    exponential_rates,
    l2_normalise,
    rectify,
    shrunk_means,
    squared_distances,
    task_metrics,
)


@settings(deadline=None, max_examples=40)
@given(exponent=st.integers(-150, 150), seed=st.integers(0, 99))
def test_unit_length_at_any_scale(exponent, seed):
    x = torch.rand(3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10.0**exponent
    torch.testing.assert_close(l2_normalise(x).norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_rectify_loses_nothing():
    x = torch.randn(4, 6)
    split = rectify(x)
    assert (split >= 0).all()
    assert torch.equal(split[..., :6] - split[..., 6:], x)


def test_distances_do_not_cancel_far_from_the_origin():
    x = torch.rand(5, 3, dtype=torch.float32)
    y = torch.rand(4, 3, dtype=torch.float32)
    far = squared_distances(x + 1000, y + 1000)
    torch.testing.assert_close(
        far, torch.tensor(cdist(x + 1000, y + 1000, "sqeuclidean")).float(), atol=1e-4, rtol=1e-3
    )


def test_cosine_with_a_zero_vector_is_zero():
    assert cosines(torch.zeros(1, 3), torch.rand(2, 3)).tolist() == [[0, 0]]


def test_rates_are_clipped_means():
    means = torch.tensor([0.0, 1e-3, 0.025, 0.5])
    assert exponential_rates(means, 40.0).tolist() == pytest.approx([40, 40, 40, 2])


def test_class_means_against_a_loop():
    x, labels = torch.rand(2, 7, 3), torch.tensor([[0, 1, 1, 2, 0, 0, 1], [2, 2, 2, 2, 2, 2, 2]])
    means = class_means(x, labels, 4)
    for t in range(2):
        for k in range(4):
            mine = x[t, labels[t] == k]
            torch.testing.assert_close(means[t, k], mine.mean(0) if len(mine) else torch.zeros(3))


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_task_metrics_equal_those_of_scikit_learn(data):
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    queries, ways = data.draw(st.integers(1, 12)), data.draw(st.integers(2, 5))
    classes = st.lists(st.integers(0, ways - 1), min_size=queries, max_size=queries)
    truth, guess = data.draw(classes), data.draw(classes)
    found = task_metrics(confusion_counts(torch.tensor([guess]), torch.tensor([truth]), ways))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = (
            accuracy_score(truth, guess),
            balanced_accuracy_score(truth, guess),
            f1_score(truth, guess, average="macro", zero_division=0),
        )
    assert [x.item() for x in found] == pytest.approx(expected)


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

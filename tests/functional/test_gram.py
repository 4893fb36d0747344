from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from likelyshot.errors import InputError
from likelyshot.functional.gram import (
    class_shares,
    discounted_directions,
    discounted_products,
    estimate_shares,
    join,
    mean_weights,
    move_to_means,
    nearest_neighbours,
    scatter_within,
    softly_discounted_products,
    squared_distances_to_means,
)
from likelyshot.functional.scores import one_hot


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_distances_equal_those_between_the_vectors(batch):
    samples, weights = normal(*batch, 9, 20), normal(*batch, 4, 9, seed=1)
    means = weights @ samples
    expected = (means.unsqueeze(-2) - samples.unsqueeze(-3)).square().sum(-1)
    gram = samples @ samples.transpose(-1, -2)
    kept = gram.clone()
    torch.testing.assert_close(squared_distances_to_means(gram, weights), expected)
    assert torch.equal(gram, kept)


def test_means_of_equal_samples_are_at_distance_zero_and_never_below():
    samples = normal(1, 5).expand(30, 5)
    distances = squared_distances_to_means(samples @ samples.T, normal(40, 30, seed=1).softmax(-1))
    assert (distances >= 0).all()
    torch.testing.assert_close(distances, torch.zeros_like(distances), rtol=0, atol=1e-12)


def test_weights_sum_to_one_unless_there_are_none():
    weights = torch.tensor([[2.0, 6.0], [0.0, 0.0], [1e-30, 0.0]])
    assert mean_weights(weights).tolist() == [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]]


def test_one_support_and_its_labels_are_shared_by_many_query_sets():
    support, query = normal(3, 5), normal(2, 4, 5, seed=1)
    samples, weights = join(support, torch.tensor([0, 2, 2]), query, n_ways=3)
    assert samples.shape == (2, 7, 5)
    assert weights.shape == (2, 3, 7)
    assert torch.equal(samples[1], torch.cat([support, query[1]]))
    assert weights[1].tolist() == [[1, 0, 0, 0, 0, 0, 0], [0] * 7, [0, 1, 1, 0, 0, 0, 0]]
    weights[0, 1, 5] = 1  # its own memory, not a view that tasks share
    assert weights[1, 1, 5] == 0


def test_labels_may_differ_between_tasks_that_share_their_samples():
    labels = torch.tensor([[0, 1], [1, 0]])
    samples, weights = join(normal(2, 5), labels, normal(1, 5, seed=1), n_ways=2)
    assert samples.shape == (2, 3, 5)
    assert weights.tolist() == [[[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [1, 0, 0]]]


def test_an_empty_class_stays():
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 2.0]])
    known, p = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    moved = move_to_means(weights, known, p, 0.2)
    torch.testing.assert_close(moved, torch.tensor([[0.45, 0.45, 0.1], [0.0, 0.0, 2.0]]))


def points(seed, n=12, dim=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.rand(n, dim, generator=generator, dtype=dtype) - 0.5, dim=-1)


@pytest.mark.parametrize("k", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("seed", range(4))
def test_neighbours_are_those_of_scikit_learn(seed, k):
    x = points(seed)
    expected = np.zeros((12, 12))
    if k:
        indices = NearestNeighbors(n_neighbors=k).fit(x.numpy()).kneighbors(return_distance=False)  # without itself
        np.put_along_axis(expected, indices, 1, axis=1)
    assert torch.equal(nearest_neighbours(x @ x.T, k), torch.tensor(expected))


def test_vectors_of_other_lengths_are_told_apart_by_distance_and_not_by_angle():
    x = torch.tensor([[0.0, 0.0], [0.3, 0.0], [0.0, 1.0], [1.0, 0.1]])
    assert nearest_neighbours(x @ x.T, 1).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_share_places_and_keep_no_order(dtype):
    x = points(0, n=9, dtype=dtype)[[0, 0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8]]
    near = nearest_neighbours(x @ x.T, 2)
    assert near[0, 1:4].tolist() == pytest.approx([2 / 3] * 3)
    assert near[0, [0, *range(4, 13)]].tolist() == [0] * 10
    assert near[5, 6] == 1  # its one twin, and another place for somebody else
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(nearest_neighbours(x[order] @ x[order].T, 2), near[order][:, order])


@pytest.mark.parametrize("k", [1, 2, 3, 30])
def test_rows_sum_to_k_or_to_all_the_others(k):
    for x in (points(1), points(1)[[0] * 12], torch.zeros(12, 6, dtype=torch.float64), points(1)[:1], points(1)[:2]):
        near = nearest_neighbours(x @ x.T, k)
        torch.testing.assert_close(near.sum(-1), torch.full((len(x),), float(min(k, len(x) - 1)), dtype=x.dtype))
        assert not near.diagonal().any()


def test_the_inner_products_are_unchanged_and_batches_are_loops():
    x = torch.stack([points(2), points(3)])
    gram = x @ x.transpose(-1, -2)
    copy = gram.clone()
    near = nearest_neighbours(gram, 3)
    assert torch.equal(gram, copy)
    assert torch.equal(near[1], nearest_neighbours(gram[1], 3))


@pytest.mark.parametrize(("rows", "dim"), [(9, 5), (6, 20)])
def test_discounting_equals_the_inverse_of_the_scatter(rows, dim):
    y, labels, prior = normal(rows, dim), torch.arange(rows) % 3, 0.7
    scatter = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(rows):
        deviation = y[i] - y[labels == labels[i]].mean(0)
        scatter += torch.outer(deviation, deviation)
    w = discounted_directions(y, one_hot(labels, 3, y.dtype).mT, prior)
    expected = torch.linalg.inv(scatter / prior + torch.eye(dim, dtype=torch.float64))
    assert len(w) == min(rows, dim)
    torch.testing.assert_close(torch.eye(dim, dtype=torch.float64) - w.T @ w, expected)


def test_single_examples_have_no_scatter():
    y = normal(3, 4)
    assert not discounted_directions(y, torch.eye(3, dtype=torch.float64), 0.5).any()


def test_tasks_do_not_mix():
    y, known = normal(8, 5).view(2, 4, 5), one_hot(torch.tensor([0, 0, 1, 1]), 2, torch.float64).mT
    both = discounted_directions(y, known, 0.5)
    torch.testing.assert_close(both[1], discounted_directions(y[1], known, 0.5))


def test_inner_products_in_the_metric_are_those_of_the_coordinates():
    y, known = normal(24, 9).view(2, 12, 9), one_hot(torch.tensor([0, 0, 1, 1, 1, 3]), 4, torch.float64).mT
    w = discounted_directions(y[:, :6], known, 0.25)
    metric = torch.eye(9, dtype=torch.float64) - w.mT @ w
    torch.testing.assert_close(discounted_products(y @ y.mT, known, 0.25), y @ metric @ y.mT)


@pytest.mark.parametrize("dim", [5, 20])
def test_soft_weights_give_the_metric_of_their_scatter(dim):
    y, prior = normal(24, dim).view(2, 12, dim), torch.tensor([0.25, 2.0], dtype=torch.float64).view(2, 1, 1)
    weights = torch.rand(2, 3, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights[:, 2] = 0  # a class without samples
    scatter = torch.zeros(2, dim, dim, dtype=torch.float64)
    for task in range(2):
        for k in range(2):
            mean = weights[task, k] @ y[task] / weights[task, k].sum()
            for n in range(12):
                deviation = y[task, n] - mean
                scatter[task] += weights[task, k, n] * torch.outer(deviation, deviation)
    torch.testing.assert_close(scatter_within(y, weights), scatter)
    metric = torch.linalg.inv(scatter / prior + torch.eye(dim, dtype=torch.float64))
    torch.testing.assert_close(softly_discounted_products(y @ y.mT, weights, prior), y @ metric @ y.mT)


def test_weights_of_labelled_samples_discount_as_their_labels_do():
    y, known = normal(24, 9).view(2, 12, 9), one_hot(torch.tensor([0, 0, 1, 1, 1, 3]), 4, torch.float64).mT
    weights = torch.cat([known, torch.zeros(4, 6, dtype=torch.float64)], -1).expand(2, -1, -1)
    gram = y @ y.mT
    torch.testing.assert_close(softly_discounted_products(gram, weights, 0.25), discounted_products(gram, known, 0.25))


def test_shares_are_scaled_to_sum_one_even_when_huge_or_tiny():
    for unit in (1e-300, 1.0, 1e300):
        shares = class_shares(torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 1.0]], dtype=torch.float64) * unit, 3)
        torch.testing.assert_close(shares, torch.tensor([[0.25, 0.25, 0.5], [0, 0, 1]], dtype=torch.float64))
    assert class_shares("uniform", 4).tolist() == class_shares("estimated", 4).tolist() == [0.25] * 4
    torch.testing.assert_close(class_shares(torch.tensor([3, 1]), 2), torch.tensor([0.75, 0.25], dtype=torch.float64))


@pytest.mark.parametrize(
    "bad",
    [
        "balanced",
        None,
        [[1.0], [1.0, 2.0]],
        [10**400, 1, 1],
        torch.ones(4),
        torch.tensor(1.0),
        torch.tensor([1.0, -1.0, 1.0]),
        torch.tensor([1.0, float("nan"), 1.0]),
        torch.tensor([1.0, float("inf"), 1.0]),
        torch.zeros(3),
        torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
    ],
    ids=str,
)
def test_shares_without_meaning_are_refused(bad):
    with pytest.raises(InputError, match="marginals must be"):
        class_shares(bad, 3)


def test_the_estimate_of_shares_is_the_maximum_of_the_posterior():
    """Against a search over two classes of log prior + sum of counts * log share."""
    p = torch.tensor([[0.9, 0.8, 0.1, 0.5], [0.1, 0.2, 0.9, 0.5]], dtype=torch.float64)
    grid = torch.linspace(0.001, 0.999, 99_801, dtype=torch.float64)
    posterior = (1 + p[0].sum()) * grid.log() + (1 + p[1].sum()) * (1 - grid).log()
    torch.testing.assert_close(estimate_shares(p)[0], grid[posterior.argmax()], rtol=0, atol=2e-5)
    torch.testing.assert_close(estimate_shares(p).sum(), torch.tensor(1.0, dtype=torch.float64))

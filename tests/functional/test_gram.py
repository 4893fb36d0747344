from __future__ import annotations

import pytest
import torch

from likelyshot.functional.gram import join, mean_weights, move_to_means, squared_distances_to_means


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

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from likelyshot.functional.neighbours import nearest_neighbours


def points(seed, n=12, dim=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.rand(n, dim, generator=generator, dtype=dtype) - 0.5, dim=-1)


@pytest.mark.parametrize("k", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("seed", range(4))
def test_are_those_of_scikit_learn(seed, k):
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

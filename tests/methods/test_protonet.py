from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.protonet import protonet


def sample(seed, labels, queries=30, dim=8):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.as_tensor(labels)
    scales = torch.rand(dim, generator=generator, dtype=torch.float64) * 10
    return (
        scales * torch.randn(len(labels), dim, generator=generator, dtype=torch.float64),
        labels,
        scales * torch.randn(queries, dim, generator=generator, dtype=torch.float64),
    )


@pytest.mark.parametrize(
    "labels", [range(4), [*range(4)] * 5, [0, 0, 0, 1, 2, 2, 3]], ids=["1-shot", "5-shot", "unequal"]
)
@pytest.mark.parametrize("seed", range(3))
def test_is_the_squared_distance_to_the_centroid_of_raw_features(seed, labels):
    support, labels, query = sample(seed, list(labels))
    scores = protonet(support, labels, query, n_ways=4)
    centroids = [support[labels == k].numpy().mean(0) for k in range(4)]
    expected = [[-sum((a - b) ** 2 for a, b in zip(q, c, strict=True)) for c in centroids] for q in query.tolist()]
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)


def test_lengths_matter_unlike_to_euclidean():
    support, query = torch.tensor([[1.0, 0.1], [9.0, 7.0]]), torch.tensor([[9.0, 0.9]])
    labels = torch.tensor([0, 1])
    assert protonet(support, labels, query, n_ways=2).argmax() == 1
    assert euclidean(support, labels, query, n_ways=2).argmax() == 0


def test_squares_beyond_the_largest_number_stay_finite_and_the_nearest_still_wins():
    support = torch.tensor([[1e200, 0.0], [1e150, 0.0]], dtype=torch.float64)
    scores = protonet(support, torch.tensor([0, 1]), support, n_ways=2)
    assert scores.isfinite().all()
    assert scores.argmax(-1).tolist() == [0, 1]
    assert scores[0, 0] == 0


def test_gradients_are_right():
    support, labels, query = sample(2, [0, 1, 1], queries=2, dim=3)
    assert torch.autograd.gradcheck(
        lambda s, q: protonet(s, labels, q, n_ways=2), (support.requires_grad_(), query.requires_grad_())
    )

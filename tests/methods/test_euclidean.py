from __future__ import annotations

import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.preprocessing import normalize

from likelyshot.methods.euclidean import euclidean


@pytest.mark.parametrize("normalise", [True, False])
def test_equals_the_distances_of_scipy(normalise):
    generator = torch.Generator().manual_seed(0)
    support, query = torch.randn(9, 7, generator=generator), torch.randn(5, 7, generator=generator)
    labels = torch.arange(9) % 3
    s, q = (normalize(x) if normalise else x.numpy() for x in (support, query))
    prototypes = [s[labels.numpy() == k].mean(0) for k in range(3)]
    expected = torch.tensor(-cdist(q, prototypes, "sqeuclidean"), dtype=torch.float32)
    torch.testing.assert_close(
        euclidean(support, labels, query, n_ways=3, normalise=normalise), expected, atol=1e-5, rtol=1e-5
    )


def test_huge_raw_features_give_no_nan():
    support, query = torch.tensor([[1e30, 0.0], [0.0, 1e30]]), torch.tensor([[1e30, 1e29], [1e30, 0.0]])
    scores = euclidean(support, torch.tensor([0, 1]), query, n_ways=2, normalise=False)
    assert not scores.isnan().any()
    assert scores[1, 0] == 0

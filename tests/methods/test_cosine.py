from __future__ import annotations

import torch
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import normalize

from likelyshot.methods.cosine import cosine
from likelyshot.methods.euclidean import euclidean


def test_equals_the_cosines_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    support, query = torch.randn(9, 7, generator=generator), torch.randn(5, 7, generator=generator)
    labels = torch.arange(9) % 3
    for normalise in (True, False):
        s = normalize(support) if normalise else support.numpy()
        prototypes = [s[labels.numpy() == k].mean(0) for k in range(3)]
        expected = torch.tensor(cosine_similarity(query.numpy(), prototypes), dtype=torch.float32)
        scores = cosine(support, labels, query, n_ways=3, normalise=normalise)
        torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-5)


def test_at_one_shot_on_unit_vectors_euclidean_is_two_cosine_minus_two():
    generator = torch.Generator().manual_seed(1)
    inputs = (torch.rand(5, 9, generator=generator), torch.arange(5), torch.rand(8, 9, generator=generator))
    torch.testing.assert_close(euclidean(*inputs, n_ways=5), 2 * cosine(*inputs, n_ways=5) - 2, atol=1e-5, rtol=1e-4)

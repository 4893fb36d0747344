from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine as cosine_distance

from likelyshot.methods.matching import matching


def sample(seed, labels, queries=20, dim=8):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.as_tensor(labels)
    support = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return support * 3, labels, torch.randn(queries, dim, generator=generator, dtype=torch.float64)


def oracle(support, labels, query, ways):
    """Equation 1 of the paper: y = sum_i a(q, x_i) y_i, a = softmax of the cosines."""
    scores = np.full((len(query), ways), math.log(np.finfo(np.float64).tiny))
    for q, f in enumerate(query.numpy()):
        kernel = [math.exp(1 - cosine_distance(f, x)) for x in support.numpy()]
        for k in set(labels.tolist()):
            scores[q, k] = math.log(sum(kernel[i] for i in range(len(labels)) if labels[i] == k) / sum(kernel))
    return scores


@pytest.mark.parametrize(
    "labels",
    [range(4), [*range(4)] * 5, [0, 0, 0, 1, 2, 2, 3], [0, 3, 3, 1]],
    ids=["1-shot", "5-shot", "unequal", "an empty class"],
)
@pytest.mark.parametrize("seed", range(3))
def test_is_the_log_of_the_attention(seed, labels):
    support, labels, query = sample(seed, list(labels))
    scores = matching(support, labels, query, n_ways=4)
    np.testing.assert_allclose(scores, oracle(support, labels, query, 4), rtol=1e-9)


def test_the_softmax_of_the_scores_is_the_attention():
    support, labels, query = sample(0, [0, 1, 1, 2])
    scores = matching(support, labels, query, n_ways=3)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(scores.softmax(-1), scores.exp())


def test_by_hand():
    support = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    scores = matching(support, torch.tensor([0, 1, 1]), torch.tensor([[5.0, 0.0]], dtype=torch.float64), n_ways=2)
    total = math.e + 1 + 1 / math.e
    assert scores[0].tolist() == pytest.approx([math.log(math.e / total), math.log((1 + 1 / math.e) / total)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_absent_class_is_last_and_finite(dtype):
    support, labels, query = sample(1, [0, 0, 2])
    scores = matching(support.to(dtype), labels, query.to(dtype), n_ways=3)
    assert scores.dtype == dtype
    assert scores.isfinite().all()
    assert (scores[:, 1] < -80).all()


def test_opposite_and_duplicated_vectors_at_twenty_ways_and_fifty_shots():
    support, labels, _ = sample(2, list(range(20)) * 50)
    scores = matching(support, labels, torch.cat([-support[:1], support[:1], support[:1]]), n_ways=20)
    assert torch.equal(scores[1], scores[2])
    np.testing.assert_allclose(scores[:1], oracle(support, labels, -support[:1], 20), rtol=1e-9)


def test_gradients_are_right_and_finite_with_an_absent_class():
    support, labels, query = sample(3, [0, 2, 2], queries=2, dim=3)
    assert torch.autograd.gradcheck(
        lambda s, q: matching(s, labels, q, n_ways=3), (support.requires_grad_(), query.requires_grad_())
    )

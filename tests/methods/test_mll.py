from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive


def sample(seed=0, shots=3, ways=4, queries=9, dim=20):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(ways).repeat_interleave(shots)
    support = torch.rand(ways * shots, dim, generator=generator, dtype=torch.float64) ** 3
    query = torch.rand(queries, dim, generator=generator, dtype=torch.float64) ** 3
    return support, labels, query


def oracle(support, labels, query, ways, lambda_max, normalise):
    """Equations 3 to 6 with loops and SciPy's exponential distribution."""
    support, query = support.numpy(), query.numpy()
    if normalise:
        support = support / np.linalg.norm(support, axis=1, keepdims=True)
        query = query / np.linalg.norm(query, axis=1, keepdims=True)
    scores = np.zeros((len(query), ways))
    for k in range(ways):
        mine = support[labels.numpy() == k]
        for q, x in enumerate(query):
            for i in range(support.shape[1]):
                mean = mine[:, i].sum() / len(mine)
                rate = min(1 / mean, lambda_max) if mean > 0 else lambda_max
                scores[q, k] += stats.expon.logpdf(x[i], scale=1 / rate)
    return torch.tensor(scores)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("lambda_max", [3.0, 40.0])
def test_equals_the_log_likelihood_of_scipy(lambda_max, normalise):
    support, labels, query = sample()
    scores = mll(support, labels, query, n_ways=4, lambda_max=lambda_max, normalise=normalise)
    torch.testing.assert_close(scores, oracle(support, labels, query, 4, lambda_max, normalise))


def test_unequal_shots():
    support, labels, query = sample()
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    scores = mll(support, labels, query, n_ways=4)
    torch.testing.assert_close(scores, oracle(support, labels, query, 4, 40.0, True))


def test_defaults_are_the_papers_for_short_vectors():
    support, labels, query = sample()
    assert torch.equal(
        mll(support, labels, query, n_ways=4),
        mll(support, labels, query, n_ways=4, lambda_max=40.0, normalise=True),
    )


@pytest.mark.parametrize("method", [mll, mll_transductive])
def test_the_bound_of_the_rates_follows_long_vectors(method):
    support, labels, query = sample(dim=2_000)
    unit = support / support.norm(dim=1, keepdim=True)
    bound = float(1.5 / unit.mean())
    assert bound > 80
    expected = method(support, labels, query, n_ways=4, lambda_max=bound)
    torch.testing.assert_close(method(support, labels, query, n_ways=4), expected)
    assert not torch.allclose(method(support, labels, query, n_ways=4, lambda_max=40.0), expected)
    both = method(support.expand(3, -1, -1) * torch.tensor([1.0, 7.0, 0.1])[:, None, None], labels, query, n_ways=4)
    torch.testing.assert_close(both, expected.expand(3, -1, -1))  # each task has its own


def test_features_that_are_all_zero_have_the_papers_bound():
    zeros, labels, query = torch.zeros(4, 6), torch.arange(2).repeat(2), torch.rand(3, 6)
    scores = mll(zeros, labels, query, n_ways=2)
    assert torch.equal(scores, mll(zeros, labels, query, n_ways=2, lambda_max=40.0))


def test_gradients_are_finite_where_prototypes_are_zero():
    support, labels, query = sample()
    support[:, :5] = 0
    support.requires_grad_()
    loss = torch.nn.functional.cross_entropy(mll(support, labels, query, n_ways=4), torch.zeros(9, dtype=torch.long))
    loss.backward()
    assert support.grad is not None
    assert support.grad.isfinite().all()
    assert support.grad.abs().sum() > 0


def test_shrinkage_adds_examples_of_the_average_class():
    support, labels, query = sample()
    unit = support / support.norm(dim=1, keepdim=True)
    average = torch.stack([unit[labels == k].mean(0) for k in range(4)]).mean(0)
    more = torch.cat([unit, average.repeat(8, 1)])  # two for every class
    expected = mll(
        more,
        torch.cat([labels, torch.arange(4).repeat(2)]),
        query / query.norm(dim=1, keepdim=True),
        n_ways=4,
        normalise=False,
    )
    torch.testing.assert_close(mll(support, labels, query, n_ways=4, shrinkage=2.0), expected)

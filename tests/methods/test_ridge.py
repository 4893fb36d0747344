from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import Ridge

from likelyshot.functional.scores import l2_normalise, one_hot
from likelyshot.methods.ridge import ridge
from made_tasks import RAGGED, ragged


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
@pytest.mark.parametrize("dim", [3, 40])
@pytest.mark.parametrize("lam", [0.01, 0.5, 50.0])
def test_is_the_ridge_regression_of_scikit_learn(shots, queries, dim, lam):
    support, labels, query = ragged(0, shots, queries, dim)
    x, f, y = l2_normalise(support), l2_normalise(query), one_hot(labels, len(shots), torch.float64)
    model = Ridge(alpha=lam, fit_intercept=False, solver="svd").fit(x.numpy(), y.numpy())
    scores = ridge(support, labels, query, n_ways=len(shots), lam=lam)
    torch.testing.assert_close(scores, torch.from_numpy(f.numpy() @ model.coef_.T), rtol=1e-9, atol=1e-12)


def test_with_a_large_penalty_it_sums_the_inner_products():
    support, labels, query = ragged(1)
    scores = ridge(support, labels, query, n_ways=4, lam=1e9)
    sums = l2_normalise(query) @ l2_normalise(support).T @ one_hot(labels, 4, torch.float64)
    torch.testing.assert_close(scores * 1e9, sums, rtol=1e-6, atol=1e-9)


def test_labels_of_many_tasks_on_one_support():
    support, labels, query = ragged(2, (1, 1, 1), (2, 2, 2))
    other = torch.stack([labels, labels.flip(0), labels.roll(1)])  # as many tasks as examples and classes
    together = ridge(support, other, query, n_ways=3)
    for scores, one in zip(together, other, strict=True):
        torch.testing.assert_close(scores, ridge(support, one, query, n_ways=3))


def test_single_precision_keeps_its_digits_with_a_small_penalty():
    support, labels, query = ragged(3)
    exact = ridge(support.float().double(), labels, query.float().double(), n_ways=4, lam=1e-6)
    torch.testing.assert_close(
        ridge(support.float(), labels, query.float(), n_ways=4, lam=1e-6).double(), exact, rtol=1e-2, atol=1e-3
    )

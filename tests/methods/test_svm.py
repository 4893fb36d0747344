from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from likelyshot.functional.scores import l2_normalise
from likelyshot.methods.svm import svm
from made_tasks import RAGGED, ragged


@pytest.mark.parametrize(("shots", "queries"), [row for row in RAGGED if 0 not in row[0] and len(row[0]) > 2])
@pytest.mark.parametrize("c", [0.1, 10.0])
def test_is_liblinear(shots, queries, c):
    support, labels, query = ragged(0, shots, queries, dim=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn 1.8 renames the parameter
        model = LinearSVC(multi_class="crammer_singer", C=c, fit_intercept=False, tol=1e-12, max_iter=10**6)
        model.fit(l2_normalise(support).numpy(), labels.numpy())
    scores = svm(support, labels, query, n_ways=len(shots), c=c)
    np.testing.assert_allclose(scores, l2_normalise(query).numpy() @ model.coef_.T, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dim", [5, 40])
@pytest.mark.parametrize("c", [0.3, 10.0])
def test_gradients_follow_from_the_optimum(dim, c):
    """Of 12 examples with 5 features, inner products have no inverse, and still the scores are unique."""
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.rand(n, dim, generator=generator, dtype=torch.float64) for n in (12, 3))
    labels = torch.arange(12) % 4
    assert torch.autograd.gradcheck(
        lambda s, q: svm(s, labels, q, n_ways=4, c=c),
        (support.requires_grad_(), query.requires_grad_()),
        fast_mode=True,  # in a random direction: every entry on its own takes a thousand solutions
    )


def test_orthogonal_examples_have_equal_margins():
    scores = svm(torch.eye(4, 6), torch.arange(4), torch.eye(4, 6), n_ways=4)
    torch.testing.assert_close(scores, torch.eye(4) - 0.25)


def test_a_class_without_support_is_a_wrong_class():
    support, labels, _ = ragged(1, (2, 0, 3, 1), (3, 3, 3, 3))
    scores = svm(support, labels, support, n_ways=4)
    own = scores.gather(1, labels[:, None])
    others = scores.scatter(1, labels[:, None], -torch.inf).amax(1, keepdim=True)
    torch.testing.assert_close((own - others).clamp_max(1.0), torch.ones_like(own), rtol=0, atol=1e-9)

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lasso_path

from likelyshot.functional.lasso_path import huber_regression, lasso_leaving_times


def draw(seed, n, d, k, p):
    """An orthonormal basis of the first p principal components, and labels of which a quarter is wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    x = (rng.random((k, d)) ** 2)[y] * rng.random((n, d))
    wrong = rng.random(n) < 0.25
    y[wrong] = rng.integers(k, size=wrong.sum())
    basis = np.linalg.svd(x - x.mean(0), full_matrices=False)[0][:, :p]
    return basis, np.eye(k)[y]


def times_of(basis, y):
    return lasso_leaving_times(torch.tensor(basis)[None], torch.tensor(y)[None])[0].numpy()


def path_of(basis, y):
    """For every sample the last of scikit-learn's penalties at which it is zero, and its residual there."""
    rest = np.eye(len(y)) - basis @ basis.T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        penalties, gammas, _ = lasso_path(rest, rest @ y, tol=1e-9, max_iter=5000)
    zero = (gammas == 0).all(0)  # (n, penalties)
    zero[:, 0] = True
    last = zero.shape[1] - 1 - zero[:, ::-1].argmax(1)
    residuals = np.array([np.linalg.norm(rest[i] @ (y - gammas[:, :, j].T)) for i, j in enumerate(last)])
    return last, residuals / (penalties[last] * len(y))  # scikit-learn divides the squares by n


@pytest.mark.parametrize(
    ("n", "d", "k", "p"), [(30, 40, 5, 5), (30, 40, 3, 5), (24, 40, 2, 3), (24, 40, 8, 2), (14, 9, 3, 5)]
)
@pytest.mark.parametrize("seed", range(2))
def test_the_zeros_are_those_of_scikit_learns_path(seed, n, d, k, p):
    basis, y = draw(seed, n, d, k, p)
    last, share = path_of(basis, y)
    assert len(set(last)) > 3
    np.testing.assert_allclose(times_of(basis, y), last + 1 - share, atol=1e-3)


@pytest.mark.parametrize("penalty", [0.05, 0.4, 0.8, 2.0])
def test_the_regression_minimises_hubers_loss(penalty):
    basis, y = draw(3, 25, 30, 3, 4)

    def loss(flat):
        r = np.linalg.norm(y - basis @ flat.reshape(4, 3), axis=1)
        return np.where(r <= penalty, r**2 / 2, penalty * r - penalty**2 / 2).sum()

    start = torch.tensor(basis.T @ y)[None]
    fitted = huber_regression(
        torch.tensor(basis)[None], torch.tensor(y)[None], torch.full((1, 1, 1), penalty, dtype=torch.float64), start
    )
    best = minimize(loss, np.zeros(12), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(fitted[0].numpy().ravel(), best.x, atol=1e-5)
    assert loss(fitted[0].numpy().ravel()) <= best.fun + 1e-12


def test_the_sample_of_another_class_leaves_first_and_those_that_stay_are_zero_to_the_end():
    basis = np.full((5, 1), 5**-0.5)
    times = times_of(basis, np.eye(2)[[0, 0, 1, 0, 0]])
    assert times.argmin() == 2
    np.testing.assert_allclose(times[[0, 1, 3, 4]], 100 - 1 / 4)  # four residuals that balance one of length lambda
    np.testing.assert_allclose(times[2], 0, atol=1e-12)


def test_labels_of_one_class_leave_together():
    basis, _ = draw(4, 10, 12, 2, 3)
    np.testing.assert_allclose(times_of(basis, np.eye(2)[[0] * 10]), 0, atol=1e-9)


def test_a_zero_column_of_the_basis_changes_nothing():
    basis, y = draw(5, 20, 30, 3, 3)
    wider = np.concatenate([basis, np.zeros((20, 2))], axis=1)
    np.testing.assert_allclose(times_of(wider, y), times_of(basis, y), atol=1e-9)


def test_a_basis_that_explains_everything_keeps_all_at_zero():
    times = times_of(np.eye(4), np.eye(4))
    assert np.isfinite(times).all()
    np.testing.assert_allclose(times, 100)


def test_every_task_converges_by_itself():
    tasks = [draw(seed, 30, 40, 4, 5) for seed in range(4)]
    basis, y = (torch.tensor(np.stack(part)) for part in zip(*tasks, strict=True))
    together = lasso_leaving_times(basis, y)
    for i in range(4):
        alone = lasso_leaving_times(basis[i : i + 1], y[i : i + 1])[0]
        torch.testing.assert_close(together[i], alone, rtol=1e-9, atol=1e-9)

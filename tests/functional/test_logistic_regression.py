from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from likelyshot.functional.logistic_regression import held_out_logits, kernel_logistic, logistic_logits


def draw(seed, n, d, k, scale=1.0):
    rng = np.random.default_rng(seed)
    centres = rng.random((k, d)) ** 2
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    x = rng.random((n, d)) * centres[y]
    return scale * x / np.linalg.norm(x, axis=1, keepdims=True), y


def fit(x, y, k, penalty, used=None):
    targets = torch.tensor(np.eye(k)[y])
    if used is not None:
        targets = targets * torch.tensor(used, dtype=torch.float64).unsqueeze(-1)
    return logistic_logits(torch.tensor(x).unsqueeze(0), targets.unsqueeze(0), penalty)[0].numpy()


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky"])
@pytest.mark.parametrize(("n", "d", "k"), [(5, 16, 5), (30, 16, 5), (30, 60, 3), (40, 8, 12)])
@pytest.mark.parametrize("penalty", [0.1, 2.0])
def test_equals_scikit_learn(n, d, k, penalty, solver):
    x, y = draw(n + d, n, d, k)
    model = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=100_000, solver=solver).fit(x, y)
    np.testing.assert_allclose(fit(x, y, k, penalty), model.decision_function(x), atol=2e-6)


def test_two_classes_equal_scikit_learns_single_weight_vector_of_half_the_penalty():
    x, y = draw(0, 20, 6, 2)  # w and -w cost ||w||^2 together, their difference 2 w alone costs 4 ||w||^2 / 2
    margin = LogisticRegression(C=20, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y)
    np.testing.assert_allclose(fit(x, y, 2, 0.1)[:, 1] * 2, margin.decision_function(x), atol=1e-8)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_the_gradient_vanishes_at_any_scale_of_the_features(scale):
    x, y = draw(1, 25, 10, 4, scale)
    logits = fit(x, y, 4, 0.1)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    error = np.eye(4)[y] - p
    np.testing.assert_allclose(error.sum(0), 0, atol=1e-9)  # the intercept
    weights = x.T @ error / 0.1  # where the gradient is zero
    reached = x @ weights
    np.testing.assert_allclose(logits - logits[:1], reached - reached[:1], atol=1e-6)


def test_steps_that_overshoot_are_halved():
    generator = torch.Generator().manual_seed(7)
    x = 10 * torch.randn(12, 4, generator=generator, dtype=torch.float64).numpy()
    y = torch.randint(3, (12,), generator=generator).numpy()
    model = LogisticRegression(C=1000, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y)
    np.testing.assert_allclose(fit(x, y, 3, 1e-3), model.decision_function(x), rtol=1e-5, atol=1e-5)


def test_samples_without_a_target_are_scored_but_not_fitted():
    x, y = draw(2, 30, 10, 3)
    used = np.arange(30) < 12
    assert set(y[:12]) == {0, 1, 2}
    np.testing.assert_allclose(fit(x, y, 3, 0.1, used)[:12], fit(x[:12], y[:12], 3, 0.1), atol=1e-9)
    model = LogisticRegression(C=10, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x[:12], y[:12])
    np.testing.assert_allclose(fit(x, y, 3, 0.1, used), model.decision_function(x), atol=1e-7)


def test_a_class_without_targets_comes_one_below_the_lowest_and_leaves_the_others_alone():
    x, y = draw(3, 20, 10, 3)
    with_gap = fit(x, np.array([0, 2, 3])[y], 4, 0.1)
    np.testing.assert_allclose(with_gap[:, [0, 2, 3]], fit(x, y, 3, 0.1), atol=1e-10)
    np.testing.assert_allclose(with_gap[:, 1], with_gap[:, [0, 2, 3]].min(1) - 1)


def test_one_class_alone_is_certain():
    x, _ = draw(4, 6, 5, 2)
    np.testing.assert_allclose(fit(x, np.ones(6, dtype=int), 3, 0.1), [[-1, 0, -1]] * 6)


def test_equal_and_zero_samples_give_the_class_frequencies():
    logits = fit(np.zeros((4, 3)), np.array([0, 0, 0, 1]), 2, 0.1)
    np.testing.assert_allclose(logits, [[np.log(3) / 2, -np.log(3) / 2]] * 4, atol=1e-9)


def test_every_task_converges_by_itself():
    tasks = [draw(seed, 30, 12, 4, scale) for seed, scale in enumerate([1e-3, 1.0, 30.0])]
    x = torch.tensor(np.stack([x for x, _ in tasks]))
    targets = torch.tensor(np.stack([np.eye(4)[y] for _, y in tasks]))
    together = logistic_logits(x, targets, 0.1)
    for i in range(3):
        alone = logistic_logits(x[i : i + 1], targets[i : i + 1], 0.1)[0]
        torch.testing.assert_close(together[i], alone, rtol=1e-9, atol=1e-9)


def test_far_too_weak_a_penalty_still_ends_in_finite_logits_of_the_right_classes():
    x, y = draw(5, 20, 40, 4)
    logits = fit(x, y, 4, 1e-8)
    assert np.isfinite(logits).all()
    assert (logits.argmax(1) == y).all()


def unit_samples(seed, shots, dim=12):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    centres = torch.randn(len(shots), dim, generator=generator, dtype=torch.float64)
    x = centres[labels] + torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    counts = torch.tensor(shots, dtype=torch.float64)[labels]
    return x / x.norm(dim=-1, keepdim=True), labels, (counts.mean() / counts).unsqueeze(0)


def without_intercept(x, labels, weights, penalty):
    model = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(x.numpy(), labels.numpy(), sample_weight=weights[0].numpy())
    return torch.from_numpy(model.coef_ - model.coef_.mean(0))


@pytest.mark.parametrize("shots", [[5, 5, 5], [2, 7, 3, 1], [10] * 6])
def test_coefficients_of_samples_are_those_of_scikit_learn(shots):
    x, labels, weights = unit_samples(0, shots)
    known = torch.eye(len(shots), dtype=torch.float64)[labels].mT
    expected = without_intercept(x, labels, weights, 0.1)
    exact = kernel_logistic(x @ x.mT, known, weights, 0.1, steps=400) @ x
    torch.testing.assert_close(exact, expected, rtol=1e-4, atol=1e-4)
    few = kernel_logistic(x @ x.mT, known, weights, 0.1) @ x
    assert (few - expected).norm() < 0.05 * expected.norm()


def test_a_class_without_samples_takes_no_part():
    x, labels, weights = unit_samples(1, [4, 4])
    known = torch.eye(2, dtype=torch.float64)[labels].mT
    with_empty = torch.cat([known[:1], torch.zeros(1, 8, dtype=torch.float64), known[1:]])
    coefficients = kernel_logistic(x @ x.mT, with_empty, weights, 0.1)
    assert not coefficients[1].any()
    torch.testing.assert_close(coefficients[::2], kernel_logistic(x @ x.mT, known, weights, 0.1))
    logits = coefficients @ x @ x.mT
    held_out = held_out_logits(x @ x.mT, logits, with_empty, weights, 0.1)
    torch.testing.assert_close(
        held_out[::2], held_out_logits(x @ x.mT, logits[::2], known, weights, 0.1), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("shots", [[5, 5, 5], [3, 6, 4, 2]])
def test_logits_without_a_sample_are_about_those_of_a_fit_without_it(shots):
    x, labels, weights = unit_samples(2, shots)
    known = torch.eye(len(shots), dtype=torch.float64)[labels].mT
    gram = x @ x.mT
    logits = kernel_logistic(gram, known, weights, 0.1, steps=400) @ gram
    held_out = held_out_logits(gram, logits, known, weights, 0.1)
    expected = torch.empty_like(held_out)
    for i in range(len(x)):
        rest = torch.arange(len(x)) != i
        expected[:, i] = without_intercept(x[rest], labels[rest], weights[:, rest], 0.1) @ x[i]
    held_out = held_out - held_out.mean(0)
    assert (held_out - expected).norm() < 0.05 * expected.norm()
    assert (logits - expected).norm() > 0.15 * expected.norm()


def test_a_batch_of_tasks_is_fitted_as_each_alone():
    both = [unit_samples(seed, [3, 4, 2]) for seed in (3, 4)]
    known = torch.eye(3, dtype=torch.float64)[both[0][1]].mT
    gram = torch.stack([x @ x.mT for x, _, _ in both])
    weights = both[0][2]
    coefficients = kernel_logistic(gram, known.expand(2, -1, -1), weights, 0.1)
    held_out = held_out_logits(gram, coefficients @ gram, known.expand(2, -1, -1), weights, 0.1)
    for task in range(2):
        own = kernel_logistic(gram[task], known, weights, 0.1)
        torch.testing.assert_close(coefficients[task], own)
        torch.testing.assert_close(held_out[task], held_out_logits(gram[task], own @ gram[task], known, weights, 0.1))


def test_many_classes_are_worked_on_in_parts(monkeypatch):
    x, labels, weights = unit_samples(5, [3, 4, 2])
    known = torch.eye(3, dtype=torch.float64)[labels].mT
    gram = x @ x.mT
    logits = kernel_logistic(gram, known, weights, 0.1) @ gram
    whole = held_out_logits(gram, logits, known, weights, 0.1)
    monkeypatch.setattr("likelyshot.functional.logistic_regression.LARGEST_AT_ONCE", 1)
    torch.testing.assert_close(held_out_logits(gram, logits, known, weights, 0.1), whole)

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, lasso_path
from sklearn.preprocessing import normalize

from likelyshot.errors import InputError
from likelyshot.methods.lr_ici import lr_ici


def sample(seed, labels, counts, dim=24, noise=1.0):
    """A task with the given support labels and numbers of queries per class, in mixed order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(labels)
    truth = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    truth = truth[torch.randperm(len(truth), generator=generator)]
    centres = torch.rand(len(counts), dim, generator=generator, dtype=torch.float64) ** 2

    def noisy(rows):
        return centres[rows] + noise * torch.rand(len(rows), dim, generator=generator, dtype=torch.float64) ** 2

    return noisy(labels), labels, noisy(truth), truth


def path(x, y):
    """Solve scikit-learn's grid of penalties, without the lower half if no parameter is zero any more before it."""
    grid = np.linalg.norm(x.T @ y, axis=1).max() / len(x) * np.logspace(0, -3, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in (grid[:45], grid):
            gammas = lasso_path(x, y, alphas=part, tol=1e-8, max_iter=3000)[1]
            if gammas[:, :, -1].any(0).all():
                break
    return gammas


def oracle(support, labels, query, ways, penalty=0.1, dims=5, per_round=5):
    """The paper's procedure for one task, with scikit-learn: returns the scores and the number of rounds."""
    support, labels, query = normalize(support.numpy()), labels.numpy(), normalize(query.numpy())
    everything, s = np.concatenate([support, query]), len(support)
    x = PCA(dims).fit_transform(everything)
    rest = np.eye(len(x)) - x @ np.linalg.inv(x.T @ x) @ x.T

    def logits(rows, y):
        model = LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
        present = model.fit(everything[rows], y).classes_
        scores = np.full((len(query), ways), np.nan)
        scores[:, present] = model.decision_function(query)
        scores[:, np.setdiff1d(range(ways), present)] = scores[:, present].min(1, keepdims=True) - 1
        return scores

    scores, chosen, rounds = logits(np.arange(s), labels), list(range(s)), 0
    while len(chosen) < len(everything):
        rounds += 1
        y = np.concatenate([labels, scores.argmax(1)])
        target = np.eye(ways)[y]
        gammas = path(rest, rest @ target)
        new = []
        for j in reversed(range(gammas.shape[-1])):  # from the smallest penalty up, as the authors select
            slack = np.linalg.norm(rest @ (target - gammas[:, :, j].T), axis=1)
            for i in np.argsort(slack):
                is_zero = j == 0 or not gammas[:, i, j].any()
                if is_zero and i not in chosen + new and np.sum(y[new] == y[i]) < per_round:
                    new.append(i)
        chosen += new
        scores = logits(chosen, y[chosen])
    return torch.tensor(scores), rounds


TASKS = {
    "one shot": ([0, 1, 2, 3, 4], [5, 5, 5, 5, 5]),
    "imbalanced queries": ([0, 1, 2], [16, 6, 0]),
    "five shots": ([0, 1, 2] * 5, [5, 9, 2]),
    "unequal shots": ([0, 1, 1, 2, 2, 2, 2, 3], [7, 2, 6, 3]),
    "a class without support": ([0, 2, 3, 3], [7, 2, 9, 7]),
}


@pytest.mark.parametrize("name", TASKS)
def test_equals_the_procedure_in_scikit_learn(name):
    ways = len(TASKS[name][1])
    support, labels, query, _ = sample(1, *TASKS[name])
    expected, rounds = oracle(support, labels, query, ways, per_round=3)
    assert rounds > 1
    scores = lr_ici(support, labels, query, n_ways=ways, per_round=3)
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("changed", [{"penalty": 1.0}, {"dims": 2}, {"per_round": 4}])
def test_equals_the_procedure_with_other_parameters(changed):
    support, labels, query, _ = sample(5, *TASKS["one shot"], noise=1.5)
    expected, _ = oracle(support, labels, query, 5, **changed)
    torch.testing.assert_close(lr_ici(support, labels, query, n_ways=5, **changed), expected, rtol=1e-6, atol=1e-6)
    default = lr_ici(support, labels, query, n_ways=5)
    assert not torch.allclose(default, expected, atol=1e-4)


def test_without_normalising_it_is_the_same_on_features_that_are_normalised():
    support, labels, query, _ = sample(6, *TASKS["one shot"])
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (support, query)]
    again = lr_ici(unit[0], labels, unit[1], n_ways=5, normalise=False)
    torch.testing.assert_close(again, lr_ici(support, labels, query, n_ways=5))
    raw = lr_ici(support, labels, query, n_ways=5, normalise=False)
    assert not torch.allclose(raw, again, atol=1e-3)


def test_beats_logistic_regression_on_the_support_alone():
    gained = 0
    for seed in range(5):
        support, labels, query, truth = sample(seed, [0, 1, 2], [15, 15, 15], noise=2.0)
        model = LogisticRegression(C=10).fit(normalize(support.numpy()), labels.numpy())
        alone = (model.predict(normalize(query.numpy())) == truth.numpy()).sum()
        gained += (lr_ici(support, labels, query, n_ways=3).argmax(-1) == truth).sum() - alone
    assert gained > 5


def test_a_single_query_joins_the_class_it_is_predicted_to_be_in():
    support, labels, query, _ = sample(7, [0, 1, 2, 3, 4, 5], [1, 0, 0, 0, 0, 0])
    x, y = normalize(np.concatenate([support, query])), labels.numpy()
    model = LogisticRegression(C=10, tol=1e-12, solver="newton-cholesky").fit(x[:-1], y)
    model.fit(x, np.append(y, model.predict(x[-1:])))
    expected = torch.tensor(model.decision_function(x[-1:]))
    torch.testing.assert_close(lr_ici(support, labels, query, n_ways=6), expected, rtol=1e-6, atol=1e-6)


def test_a_class_without_support_is_never_predicted_and_comes_one_below():
    support, labels, query, _ = sample(8, [0, 2, 2], [5, 5, 5])
    scores = lr_ici(support, labels, query, n_ways=3)
    torch.testing.assert_close(scores[:, 1], scores[:, [0, 2]].amin(-1) - 1)


def test_queries_equal_to_the_support_are_recognised():
    support, labels, _, _ = sample(10, [0, 1, 2, 3, 3], [1, 1, 1, 1])
    scores = lr_ici(support, labels, support.repeat(3, 1), n_ways=4)
    assert torch.equal(scores.argmax(-1), labels.repeat(3))


@pytest.mark.parametrize("value", [0.0, 1e-300, 1.0, 1e200])
def test_a_task_of_equal_vectors_stays_finite(value):
    support, query = torch.full((4, 6), value, dtype=torch.float64), torch.full((7, 6), value, dtype=torch.float64)
    scores = lr_ici(support, torch.tensor([0, 1, 1, 2]), query, n_ways=3)
    torch.testing.assert_close(scores, scores[:1].expand(7, -1))
    assert (scores.argmax(-1) == 1).all()  # nothing to go by but the frequencies


def test_tasks_of_a_batch_that_end_in_different_rounds_are_those_alone():
    tasks = [sample(seed, [0, 1, 2], counts) for seed, counts in enumerate([[5, 5, 5], [15, 0, 0], [1, 2, 12]])]
    support, labels, query = (torch.stack([task[i] for task in tasks]) for i in range(3))
    together = lr_ici(support, labels, query, n_ways=3, dims=2)
    for i in range(3):
        alone = lr_ici(support[i], labels[i], query[i], n_ways=3, dims=2)
        torch.testing.assert_close(together[i], alone, rtol=1e-9, atol=1e-9)


def test_features_whose_squares_overflow_are_refused():
    support, labels, query, _ = sample(0, [0, 1], [2, 2])
    with pytest.raises(InputError, match="too large"):
        lr_ici(support * 1e200, labels, query * 1e200, n_ways=2, normalise=False)

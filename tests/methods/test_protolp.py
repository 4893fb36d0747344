from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.methods.protolp import protolp
from made_tasks import skewed


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def scale(kernel, sizes, known):
    """Scalings of all rows to 1 and columns to the sizes, the support set back to its labels after each."""
    shots = len(known)
    whole = np.concatenate([known, kernel])
    for _ in range(20_000):
        whole = whole / whole.sum(1, keepdims=True)
        whole[:shots] = known
        if np.abs(whole.sum(0) - sizes).max() < 1e-12:
            break
        whole = whole * (sizes / whole.sum(0))
        whole[:shots] = known
    return (whole / whole.sum(1, keepdims=True))[shots:]


def oracle(support, labels, query, ways, shares, dim=40, lam=10.0, gamma=1.0, beta=0.6, eta=0.2, iterations=20):
    """The released algorithm in coordinates of a singular value decomposition, with loops; shares None: mixture."""
    known = np.eye(ways)[labels.numpy()]
    x = unit((np.concatenate([support.numpy(), query.numpy()]) + 1e-6) ** 0.5)
    x = x @ np.linalg.svd(x)[2][:dim].T
    x = unit(x - x.mean(0))
    support, query = x[: len(known)], x[len(known) :]
    counts = known.sum(0)
    mu = unit(known.T @ support / counts[:, None])
    pi = np.full(ways, 1 / ways)
    for step in range(iterations + 1):
        cost = np.array([[((f - m) ** 2).sum() for m in mu] for f in query])
        if shares is None:
            z = pi * np.exp(-lam * cost)
            z = z / z.sum(1, keepdims=True)
            pi = (z.sum(0) + 1) / (len(query) + ways)
        else:
            z = scale(np.exp(-lam * cost), len(query) * shares + counts, known)
        if step == iterations:
            return torch.tensor(np.log(z))
        whole = np.concatenate([known, z])
        graph = sum(np.outer(row, row) for row in whole)
        laplacian = np.eye(ways) - graph / whole.sum(0)[:, None]
        if shares is not None and np.ptp(shares) + np.ptp(counts) == 0:  # as released, where the classes are equal
            laplacian = np.eye(ways) - whole.T @ (whole / whole.sum(0))
        a = np.linalg.inv(known.T @ known + gamma * laplacian) @ known.T @ known
        p = z @ a
        if shares is not None:
            p = scale(p, len(query) * shares + counts, known)
        mass = np.concatenate([known, beta * p + (1 - beta) * z])
        mu = mu + eta * (mass.T @ x / mass.sum(0)[:, None] - mu)
    raise AssertionError


TASKS = {
    "1-shot": {"shots": 1},
    "5-shot": {"shots": 5, "queries": 40},
    "unequal shots": {"shots": [1, 3, 2, 6]},
    "a class without queries": {"absent": 2},
}


@pytest.mark.parametrize(
    ("task", "marginals"),
    [*((task, "estimated") for task in TASKS), ("unequal shots", "uniform"), ("a class without queries", "given")],
)
def test_equals_the_algorithm(task, marginals):
    given = np.array([0.4, 0.3, 0.2, 0.1])
    drawn = [skewed(seed, **TASKS[task]) for seed in range(2)]
    scores = protolp(
        torch.stack([x[0] for x in drawn]),
        drawn[0][1],
        torch.stack([x[2] for x in drawn]),
        n_ways=4,
        marginals=torch.tensor(3 * given) if marginals == "given" else marginals,
        tolerance=1e-11,
    )
    shares = {"uniform": np.full(4, 0.25), "estimated": None, "given": given}[marginals]
    for i in range(2):
        torch.testing.assert_close(scores[i], oracle(*drawn[i], 4, shares), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("marginals", ["uniform", "estimated"])
@pytest.mark.parametrize(
    "other",
    [{"dim": 20}, {"lam": 3.0}, {"gamma": 5.0}, {"beta": 0.0}, {"beta": 1.0}, {"eta": 1.0}, {"iterations": 0}],
    ids=str,
)
def test_the_parameters_do_what_they_say(other, marginals):
    task, few = skewed(5), {"iterations": 5}
    scores = protolp(*task, n_ways=4, marginals=marginals, tolerance=1e-11, **few | other)
    shares = np.full(4, 0.25) if marginals == "uniform" else None
    torch.testing.assert_close(scores, oracle(*task, 4, shares, **few | other), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(scores, protolp(*task, n_ways=4, marginals=marginals, tolerance=1e-11, **few), atol=1e-4)


def test_without_a_laplacian_labels_do_not_spread():
    """gamma = 0 makes A the identity, p = z, and so beta without effect."""
    task = skewed(6)
    one = protolp(*task, n_ways=4, gamma=0.0, beta=0.1)
    torch.testing.assert_close(one, protolp(*task, n_ways=4, gamma=0.0, beta=0.9))
    assert not torch.allclose(protolp(*task, n_ways=4, beta=0.1), protolp(*task, n_ways=4, beta=0.9))


def test_permutations_of_a_task_cut_to_few_dimensions():
    support, labels, query = skewed(7, queries=50)
    scores = protolp(support, labels, query, n_ways=4, dim=10)
    turned = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    again = protolp(support.flip(0), labels.flip(0), query[turned], n_ways=4, dim=10)
    torch.testing.assert_close(again, scores[turned], rtol=1e-8, atol=1e-8)

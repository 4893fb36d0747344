from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.paddle import paddle

LABELS = {
    "one shot": [0, 1, 2, 3],
    "five shots": [0, 1, 2, 3] * 5,
    "unequal shots": [0, 0, 0, 1, 2, 2, 3, 0, 0],
    "a class without support": [0, 0, 1, 3],
}


def sample(seed, labels, queries=30, dim=16, noise=0.35, ways=4):
    """Gaussian classes, and queries of which class 0 holds most and the last class none."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(labels)
    centres = torch.randn(ways, dim, generator=generator, dtype=torch.float64)
    truth = torch.randint(ways - 1, (queries,), generator=generator)
    truth[: queries // 2] = 0

    def noisy(rows):
        return centres[rows] + noise * torch.randn(len(rows), dim, generator=generator, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


def variance(support, labels, query):
    everything = np.array([row / np.linalg.norm(row) for row in [*support.numpy(), *query.numpy()]])
    return np.mean(np.sum((everything - everything.mean(0)) ** 2, 1))


def oracle(support, labels, query, ways, lam=75.0, tau=70.0, iterations=100):
    """The three updates, one query and one class at a time, on the vectors themselves."""
    tau = tau / variance(support, labels, query)
    support, query = ([row / np.linalg.norm(row) for row in x.numpy()] for x in (support, query))
    w = [
        np.mean([x for x, y in zip(support, labels, strict=True) if y == k] or [0 * support[0]], 0) for k in range(ways)
    ]
    v = np.zeros(ways)

    def scores():
        return np.array(
            [[-tau / 2 * np.sum((z - w[k]) ** 2) + lam / len(query) * v[k] for k in range(ways)] for z in query]
        )

    for _ in range(iterations):
        odds = np.exp(scores() - scores().max(1, keepdims=True))
        u = odds / odds.sum(1, keepdims=True)
        for k in range(ways):
            v[k] = math.log(u[:, k].mean() + 1e-6) + 1
            own = [x for x, y in zip(support, labels, strict=True) if y == k]
            total = sum(own) + sum(u[q, k] * z for q, z in enumerate(query))
            w[k] = total / (len(own) + u[:, k].sum())
    return torch.tensor(scores())


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("params", [{"iterations": 1}, {"iterations": 12}, {"lam": 20.0, "tau": 25.0, "iterations": 8}])
def test_equals_the_updates_in_a_batch(labels, params):
    tasks = [sample(seed, labels, noise=0.8) for seed in range(3)]
    support, query = (torch.stack([task[i] for task in tasks]) for i in (0, 2))
    scores = paddle(support, tasks[0][1], query, n_ways=4, **params)
    for task, got in zip(tasks, scores, strict=True):
        torch.testing.assert_close(got, oracle(*task, 4, **params), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(2))
def test_equals_all_hundred_updates(seed):
    task = sample(seed, LABELS["five shots"], queries=10, noise=0.6)
    torch.testing.assert_close(paddle(*task, n_ways=4), oracle(*task, 4), rtol=1e-8, atol=1e-8)


def test_no_iterations_are_the_nearest_prototype():
    task = sample(0, LABELS["unequal shots"])
    scores = paddle(*task, n_ways=4, iterations=0, tau=2.0)
    torch.testing.assert_close(scores * variance(*task), euclidean(*task, n_ways=4))


def test_one_update_by_hand():
    """Along an axis: support at 0 and 1, one query at 0, of variance 2/9: u = (1, e^-1) / (1 + e^-1)."""
    support, query = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0]]).double()
    e = math.exp(-1.0)
    u0, u1 = 1 / (1 + e), e / (1 + e)
    expected = [math.log(u0 + 1e-6) + 1, -((1 / (1 + u1)) ** 2) + math.log(u1 + 1e-6) + 1]
    scores = paddle(support, torch.tensor([0, 1]), query, n_ways=2, lam=1.0, tau=4 / 9, iterations=1, normalise=False)
    torch.testing.assert_close(scores, torch.tensor([expected]).double())


def test_stopping_at_a_fixed_point_changes_nothing():
    """Tasks apart and noisy ones together: the easy ones are at rest long before the others."""
    easy, hard = sample(0, LABELS["one shot"], noise=0.01), sample(1, LABELS["one shot"], noise=2.0)
    support, query = torch.stack([easy[0], hard[0]]), torch.stack([easy[2], hard[2]])
    together = paddle(support, easy[1], query, n_ways=4)
    for task, got in zip((easy, hard), together, strict=True):
        torch.testing.assert_close(got, paddle(*task, n_ways=4), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        paddle(*easy, n_ways=4), paddle(*easy, n_ways=4, iterations=1000), rtol=1e-12, atol=1e-12
    )


def test_the_prior_favours_the_class_with_most_queries():
    support = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    query = torch.tensor([[1.0, 0.05]] * 20 + [[0.98, 1.0]])
    labels = torch.tensor([0, 1])
    assert paddle(support, labels, query, n_ways=2, lam=0.0, tau=0.5, iterations=1)[-1].argmax() == 1
    assert paddle(support, labels, query, n_ways=2, lam=75.0, tau=0.5, iterations=1)[-1].argmax() == 0


def test_a_class_that_empties_stays_finite():
    support, labels, query = sample(2, LABELS["one shot"], noise=0.01)
    scores = paddle(support, labels, query[:15], n_ways=4, lam=1e6, tau=1e3)
    assert scores.isfinite().all()
    assert scores.argmax(-1).tolist() == [0] * 15
    absent = paddle(support[:2], labels[:2], query, n_ways=20, tau=1e4)
    assert absent.isfinite().all()


def test_a_part_that_all_vectors_share_does_not_matter():
    support, labels, query = sample(3, LABELS["one shot"], noise=0.3)
    shared = 5 * torch.ones(16, dtype=torch.float64)
    scores = paddle(support, labels, query, n_ways=4, normalise=False)
    moved = paddle(support + shared, labels, query + shared, n_ways=4, normalise=False)
    torch.testing.assert_close(moved, scores, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(paddle(7 * support, labels, 7 * query, n_ways=4, normalise=False), scores)

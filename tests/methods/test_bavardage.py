from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, log_softmax, softmax

from likelyshot.errors import InputError
from likelyshot.functional.covariance import within_class_covariance
from likelyshot.methods.bavardage import bavardage

DIM = 24
LABELS = {
    "one shot": [0, 1, 2, 3],
    "five shots": [0, 1, 2, 3] * 5,
    "unequal shots": [0, 0, 0, 1, 2, 2, 3, 0, 0],
    "a class without support": [0, 0, 1, 3],
}


def generator(seed):
    return torch.Generator().manual_seed(seed)


def base(dim=DIM):
    """Base classes of 60 images, with more spread in some directions than in others."""
    labels = torch.arange(600) % 10
    centres = torch.randn(10, dim, generator=generator(98), dtype=torch.float64)
    spread = torch.logspace(-1, 0.3, dim, dtype=torch.float64)
    noise = spread * torch.randn(600, dim, generator=generator(99), dtype=torch.float64)
    return centres[labels] + 0.3 * noise + 1, labels, spread


VECTORS, BASE_LABELS, SPREAD = base()
STATISTICS = {"base_mean": VECTORS.mean(0), "base_within": within_class_covariance(VECTORS, BASE_LABELS)}


def sample(seed, labels, queries=11, noise=0.5, ways=4):
    """Gaussian classes spread as the base; class 0 holds most of the queries and the last class none."""
    draws = generator(seed)
    labels = torch.tensor(labels)
    centres = torch.randn(ways, DIM, generator=draws, dtype=torch.float64)
    truth = torch.randint(ways - 1, (queries,), generator=draws)
    truth[: queries // 2] = 0

    def noisy(rows):
        return centres[rows] + 1 + noise * SPREAD * torch.randn(len(rows), DIM, generator=draws, dtype=torch.float64)

    return noisy(labels), labels, noisy(truth)


def sums_of_squares():
    """The within-class sums of squares of CL2N base features, averaged over the classes, by loops."""
    x = (VECTORS - VECTORS.mean(0)).numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    total = np.zeros((DIM, DIM))
    for k in range(10):
        own = x[BASE_LABELS.numpy() == k]
        total += sum(np.outer(row - own.mean(0), row - own.mean(0)) for row in own) / 10
    return total


def oracle(
    support, labels, query, ways, t_km=10.0, km_iterations=5, t_vb=None, iterations=5, clip=5.0, alpha=2.0, beta=10.0
):
    """Every step on vectors: singular vectors, explicit inverses, and the QR projection that the method leaves out."""
    x = torch.cat([support, query]).numpy() - VECTORS.mean(0).numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    s = len(labels)
    r = np.zeros((len(x), ways))
    r[np.arange(s), labels.numpy()] = 1

    def distances(points, means):
        return np.array([[np.sum((point - mean) ** 2) for mean in means] for point in points])

    for _ in range(km_iterations):
        means = [r[:, k] @ x / max(r[:, k].sum(), 1e-300) for k in range(ways)]
        r[s:] = softmax(-t_km * distances(x[s:], means), axis=1)

    u, size, _ = np.linalg.svd(x.T, full_matrices=False)
    u = u[:, size > 1e-5 * size[0]]
    restricted = np.linalg.inv(u.T @ np.linalg.inv(sums_of_squares() + 1e-6 * np.eye(DIM)) @ u)
    spread, axes = np.linalg.eigh(restricted)
    y = x @ u @ axes * np.minimum(spread**-0.5, clip)

    for _ in range(iterations):
        beta_k = beta + r.sum(0)
        centroids = r.T @ y / beta_k[:, None]
        directions, _ = np.linalg.qr((centroids[1:] - centroids[0]).T)
        assert directions.shape[1] == ways - 1
        alpha_k = alpha + r[s:].sum(0)
        prior = digamma(alpha_k) - digamma(alpha_k.sum())
        precision = max(4, 2048 / support.shape[1]) if t_vb is None else t_vb
        log_r = (
            prior - precision / 2 * distances(y[s:] @ directions, centroids @ directions) - (ways - 1) / (2 * beta_k)
        )
        r[s:] = softmax(log_r, axis=1)
    return torch.tensor(log_softmax(log_r, axis=1))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"t_km": 3.0, "km_iterations": 2, "t_vb": 0.5, "iterations": 3},
        {"clip": 1.5, "alpha": 0.7, "beta": 3.0, "iterations": 1},
    ],
    ids=str,
)
def test_equals_the_steps_in_a_batch(labels, params):
    tasks = [sample(seed, labels) for seed in range(3)]
    support, query = (torch.stack([task[i] for task in tasks]) for i in (0, 2))
    scores = bavardage(support, tasks[0][1], query, n_ways=4, **STATISTICS, **params)
    for task, got in zip(tasks, scores, strict=True):
        torch.testing.assert_close(got, oracle(*task, 4, **params), rtol=1e-7, atol=1e-7)


def test_more_samples_than_features_and_duplicated_samples_span_no_more_than_they_do():
    support, labels, query = sample(3, LABELS["one shot"], queries=40)
    torch.testing.assert_close(
        bavardage(support, labels, query, n_ways=4, **STATISTICS), oracle(support, labels, query, 4)
    )
    twice = torch.cat([query[:6], query[:6], support[:1]])
    scores = bavardage(support, labels, twice, n_ways=4, **STATISTICS)
    torch.testing.assert_close(scores, oracle(support, labels, twice, 4), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(scores[:6], scores[6:12])


def test_samples_equal_up_to_rounding_add_no_direction():
    support, labels, query = sample(11, LABELS["one shot"], queries=6)
    noise = 1e-9 * torch.randn(6, DIM, generator=generator(12), dtype=torch.float64)
    exact = bavardage(support, labels, torch.cat([query, query]), n_ways=4, **STATISTICS)
    rounded = bavardage(support, labels, torch.cat([query, query + noise]), n_ways=4, **STATISTICS)
    torch.testing.assert_close(rounded, exact, rtol=1e-6, atol=1e-6)


def test_scores_are_log_probabilities():
    task = sample(4, LABELS["five shots"])
    total = bavardage(*task, n_ways=4, **STATISTICS).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_one_round_by_hand():
    """Two orthogonal support vectors, each with one query upon it, and S = I after the ridge: y = x."""
    support, labels = torch.eye(2, dtype=torch.float64), torch.tensor([0, 1])
    within = torch.eye(2, dtype=torch.float64) * (1 - 1e-6) / 60
    statistics = {"base_mean": torch.zeros(2), "base_within": within}
    scores = bavardage(support, labels, support, n_ways=2, km_iterations=1, iterations=1, t_vb=1.0, **statistics)
    far = 1 / (1 + math.exp(20))  # responsibility of the other class: softmax(0, -t_km 2)
    mean = np.array([2 - far, far]) / 12  # one support and 1 - far + far queries, beta = 10 more
    gap = -0.5 * (np.sum((np.array([1, 0]) - mean) ** 2) - np.sum((np.array([0, 1]) - mean) ** 2))
    torch.testing.assert_close((scores[:, 0] - scores[:, 1]), torch.tensor([gap, -gap], dtype=torch.float64))


def test_directions_in_which_base_classes_spread_count_less():
    """A query as near to one class along the steady axis as to the other along the unsteady one."""
    support = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    query = torch.tensor([[0.7, 0.7, 1.0]])
    for order in (slice(None), [1, 0, 2]):
        within = torch.diag(torch.tensor([0.0005, 0.05, 0.001])[order])
        scores = bavardage(
            support, torch.tensor([0, 1]), query, n_ways=2, base_mean=torch.zeros(3), base_within=within, beta=0.1
        )
        near = int(scores[0].argmax())
        assert near == (0 if order == slice(None) else 1)


def test_permutations_permute_the_scores_of_a_rank_deficient_task():
    support, labels, query = sample(5, LABELS["unequal shots"], queries=40)
    query[7] = query[3]
    classes, rows, order = torch.tensor([2, 0, 3, 1]), torch.arange(9).flip(0), torch.arange(40).roll(11)
    scores = bavardage(support, labels, query, n_ways=4, **STATISTICS)
    again = bavardage(support[rows], classes[labels][rows], query[order], n_ways=4, **STATISTICS)
    torch.testing.assert_close(again[:, classes], scores[order], rtol=1e-8, atol=1e-8)


def test_nothing_but_the_base_mean_and_no_spread_stay_finite():
    """All samples at the base mean are zero vectors; a base without spread scales by the clip everywhere."""
    support, labels, query = sample(7, LABELS["one shot"])
    same = STATISTICS["base_mean"].expand(4, -1)
    assert bavardage(same, labels, same, n_ways=4, **STATISTICS).isfinite().all()
    rigid = {"base_mean": STATISTICS["base_mean"], "base_within": torch.zeros(DIM, DIM)}
    scores = bavardage(support, labels, query, n_ways=4, **rigid)
    uniform = bavardage(
        support, labels, query, n_ways=4, **(rigid | {"base_within": torch.eye(DIM).double() * (1 / 25 - 1e-6) / 60})
    )
    torch.testing.assert_close(scores, uniform)


@pytest.mark.parametrize(
    ("within", "message"),
    [
        (torch.eye(DIM - 1), r"expected base_within as a tensor of shape \(24, 24\), got \(23, 23\): make"),
        (torch.ones(DIM), r"expected base_within as a tensor of shape \(24, 24\), got \(24,\): make"),
        (-torch.eye(DIM), "positive semi-definite, and it is not: make"),
        (torch.full((DIM, DIM), math.nan), "positive semi-definite, and it is not: make"),
    ],
    ids=["another dimension", "a vector", "negative", "no numbers"],
)
def test_statistics_that_are_no_covariance_are_refused(within, message):
    with pytest.raises(InputError, match=message):
        bavardage(*sample(0, LABELS["one shot"]), n_ways=4, base_mean=STATISTICS["base_mean"], base_within=within)

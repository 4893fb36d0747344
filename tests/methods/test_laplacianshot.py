from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax, xlogy
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from likelyshot.functional.gram import nearest_neighbours
from likelyshot.methods.laplacianshot import laplacianshot
from likelyshot.methods.simpleshot import simpleshot
from made_tasks import signed

MEAN = torch.full((8,), 0.3, dtype=torch.float64)


def oracle(support, labels, query, ways, lam=0.7, k=3, iterations=20, tolerance=1e-6, rectified=False):
    """Algorithm 1 for one task, with the graph of scikit-learn; also the energies it passed through."""
    support, labels, query = normalize(support - MEAN), labels.numpy(), normalize(query - MEAN)
    means = [support[labels == c].mean(0) if (labels == c).any() else np.zeros(query.shape[1]) for c in range(ways)]
    if rectified:
        query = query + support.mean(0) - query.mean(0)
        means = rectify([*support, *query], means)
    a = np.array([[((q - m) ** 2).sum() for m in means] for q in query])
    near = np.zeros((len(query), len(query)))
    if min(k, len(query)) > 1:
        graph = NearestNeighbors(n_neighbors=min(k, len(query)) - 1).fit(query)
        near = graph.kneighbors_graph().toarray()  # a query is no neighbour of itself
    y, energies = softmax(-a, axis=1), []
    for i in range(iterations):
        y = softmax(-a + lam * near @ y, axis=1)
        energies.append((xlogy(y, y) + a * y - lam * y * (near @ y)).sum())
        if i > 1 and abs(energies[-1] - energies[-2]) <= tolerance * abs(energies[-2]):
            break
    return np.log(y), energies


def rectify(samples, means):
    """Prototypes from the samples nearest to each by cosine, sample by sample."""
    members = [[] for _ in means]
    for x in samples:
        cosines = [x @ m / np.linalg.norm(x) / np.linalg.norm(m) if m.any() else 0.0 for m in means]
        best = int(np.argmax(cosines))
        members[best].append(softmax(10 * np.array(cosines))[best] * x)
    return [np.mean(mine, 0) if mine else mean for mine, mean in zip(members, means, strict=True)]


TASKS = {
    "1-shot": range(4),
    "5-shot": [*range(4)] * 5,
    "unequal shots": [0, 0, 0, 1, 2, 2, 3],
    "an empty class": [0, 3, 3, 1],
}


@pytest.mark.parametrize("labels", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize(
    "params",
    [{}, {"lam": 1.5}, {"neighbours": 6}, {"iterations": 2}, {"tolerance": 1e-2}, {"rectified": True}],
    ids=str,
)
def test_a_batch_equals_the_algorithm_task_by_task(labels, params):
    tasks = [signed(seed, list(labels)) for seed in range(6)]
    support, labels, query = (torch.stack(parts) for parts in zip(*tasks, strict=True))
    scores = laplacianshot(support, labels, query, n_ways=4, base_mean=MEAN, **params)
    renamed = {"k" if key == "neighbours" else key: value for key, value in params.items()}
    for i, task in enumerate(tasks):
        np.testing.assert_allclose(scores[i], oracle(*task, 4, **renamed)[0], rtol=1e-9, atol=1e-9)


def test_every_task_stops_on_its_own():
    tasks = [signed(seed, [0, 1, 2, 3]) for seed in range(6)]
    lengths = {len(oracle(*task, 4, tolerance=1e-4)[1]) for task in tasks}
    assert len(lengths) > 1
    assert max(lengths) < 20
    support, labels, query = (torch.stack(parts) for parts in zip(*tasks, strict=True))
    scores = laplacianshot(support, labels, query, n_ways=4, base_mean=MEAN, tolerance=1e-4)
    for i, task in enumerate(tasks):
        np.testing.assert_allclose(scores[i], oracle(*task, 4, tolerance=1e-4)[0], rtol=1e-9)


def test_by_hand():
    """Two queries that are each other's neighbour, of which the second lies between the classes."""
    support = torch.eye(2, 3, dtype=torch.float64)
    query = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], dtype=torch.float64)
    mean, labels = torch.zeros(3, dtype=torch.float64), torch.tensor([0, 1])
    scores = laplacianshot(support, labels, query, n_ways=2, base_mean=mean, neighbours=2, lam=2.0, iterations=1)
    first, second = 1 / (1 + np.exp(-2)), 0.5  # Y_0 of the first class: a = (0, 2) and equal costs
    after = [2.0 + 2 * (2 * second - 1), 2 * (2 * first - 1)]  # log odds of the first class
    np.testing.assert_allclose((scores[:, 0] - scores[:, 1]), after)


@pytest.mark.parametrize("off", [{"iterations": 0}, {"lam": 0.0}, {"neighbours": 1}], ids=str)
def test_without_neighbours_it_is_simpleshot(off):
    task = signed(0, [0, 1, 2, 3, 3])
    scores = laplacianshot(*task, n_ways=4, base_mean=MEAN, **off)
    torch.testing.assert_close(scores, simpleshot(*task, n_ways=4, base_mean=MEAN).log_softmax(-1))


def test_scores_are_log_probabilities_and_the_energy_falls():
    task = signed(1, [0, 1, 2, 3])
    scores = laplacianshot(*task, n_ways=4, base_mean=MEAN)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(20, dtype=torch.float64))
    _, energies = oracle(*task, 4)
    assert energies[-1] < energies[0]


def test_the_graph_is_not_symmetrised():
    x = torch.tensor([[0.0], [0.1], [0.3]])
    near = nearest_neighbours(x @ x.T, 1)
    assert near[2, 1] == 1
    assert near[1, 2] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicated_queries_have_equal_scores_in_any_order(dtype):
    support, labels, query = signed(2, [0, 1, 2, 3])
    query = query[[0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, *range(3, 20)]]
    support, query, mean = support.to(dtype), query.to(dtype), MEAN.to(dtype)
    scores = laplacianshot(support, labels, query, n_ways=4, base_mean=mean)
    close = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 1e-12}
    torch.testing.assert_close(scores[:5], scores[:1].expand(5, 4), **close)
    torch.testing.assert_close(scores[5:9], scores[5:6].expand(4, 4), **close)
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(0))
    again = laplacianshot(support, labels, query[order], n_ways=4, base_mean=mean)
    torch.testing.assert_close(again, scores[order], **close)


def test_identical_queries_queries_equal_to_support_one_query_and_two():
    support, labels, query = signed(3, [0, 1, 2, 3])
    for queries in (
        query[:1].expand(30, 8),
        support,
        torch.cat([support] * 3),
        MEAN.expand(4, 8),
        query[:1],
        query[:2],
    ):
        scores = laplacianshot(support, labels, queries, n_ways=4, base_mean=MEAN)
        assert scores.shape == (len(queries), 4)
        assert scores.isfinite().all()
    np.testing.assert_allclose(
        laplacianshot(support, labels, query[:2], n_ways=4, base_mean=MEAN), oracle(support, labels, query[:2], 4)[0]
    )

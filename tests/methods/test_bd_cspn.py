from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine as cosine_distance
from scipy.special import softmax
from sklearn.preprocessing import normalize

from likelyshot.methods.bd_cspn import bd_cspn
from likelyshot.methods.simpleshot import simpleshot
from made_tasks import signed

MEAN = torch.full((8,), 0.3, dtype=torch.float64)


def oracle(support, labels, query, ways, tau=10.0):
    """One task, sample by sample."""
    support, labels, query = normalize(support - MEAN), labels.numpy(), normalize(query - MEAN)
    means = [support[labels == c].mean(0) if (labels == c).any() else np.zeros(8) for c in range(ways)]
    everything = [*support, *(query + support.mean(0) - query.mean(0))]
    members = [[] for _ in range(ways)]
    for x in everything:
        cosines = [1 - cosine_distance(x, m) if m.any() else 0.0 for m in means]
        best = int(np.argmax(cosines))
        members[best].append((softmax(tau * np.array(cosines))[best], x))
    rectified = [
        sum(w * x for w, x in mine) / sum(w for w, _ in mine) if mine else mean
        for mine, mean in zip(members, means, strict=True)
    ]
    return [[-((q - p) ** 2).sum() for p in rectified] for q in query], [len(mine) for mine in members]


TASKS = {
    "1-shot": range(4),
    "5-shot": [*range(4)] * 5,
    "unequal shots": [0, 0, 0, 1, 2, 2, 3],
    "an empty class": [0, 3, 3, 1],
}


@pytest.mark.parametrize("labels", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("params", [{}, {"tau": 0.0}, {"tau": 50.0}], ids=str)
def test_a_batch_equals_the_definition_task_by_task(labels, params):
    tasks = [signed(seed, list(labels)) for seed in range(6)]
    support, labels, query = (torch.stack(parts) for parts in zip(*tasks, strict=True))
    scores = bd_cspn(support, labels, query, n_ways=4, base_mean=MEAN, **params)
    for i, task in enumerate(tasks):
        np.testing.assert_allclose(scores[i], oracle(*task, 4, **params)[0], rtol=1e-9, atol=1e-9)


def test_by_hand():
    """One query per class, each at its own support: nothing is shifted and no prototype moves."""
    support = torch.eye(2, dtype=torch.float64)
    zero, labels = torch.zeros(2, dtype=torch.float64), torch.tensor([0, 1])
    scores = bd_cspn(support, labels, 7 * support, n_ways=2, base_mean=zero)
    torch.testing.assert_close(scores, torch.tensor([[0.0, -2.0], [-2.0, 0.0]], dtype=torch.float64))


def test_a_pseudo_class_without_a_sample_keeps_its_prototype():
    """Both samples of class 1 look like others, so that it has no member at all."""
    support = torch.tensor([[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [1.0, 0.05, 0], [0.05, 1.0, 0.0]], dtype=torch.float64)
    labels, zero = torch.tensor([0, 2, 1, 1]), torch.zeros(3, dtype=torch.float64)
    query = support[:2].repeat(4, 1)
    scores = bd_cspn(support, labels, query, n_ways=3, base_mean=zero)
    kept = simpleshot(support, labels, query, n_ways=3, base_mean=zero)
    torch.testing.assert_close(scores[:, 1], kept[:, 1])
    assert not torch.allclose(scores[:, 0], kept[:, 0])


def test_the_oracle_sees_empty_pseudo_classes_too():
    counts = [oracle(*signed(seed, TASKS["an empty class"]), 4)[1] for seed in range(6)]
    assert any(0 in count for count in counts)


def test_a_sample_that_ties_belongs_to_every_class_that_it_ties_for():
    """Classes with the same support stay interchangeable, whatever their numbers."""
    support, labels, query = signed(0, [0, 1, 2, 3])
    support[1] = support[0]
    scores = bd_cspn(support, labels, query, n_ways=4, base_mean=MEAN)
    torch.testing.assert_close(scores[:, 0], scores[:, 1])


def test_identical_queries_queries_equal_to_support_one_query_and_the_mean_itself():
    support, labels, query = signed(3, [0, 1, 2, 3])
    for queries in (
        query[:1].expand(30, 8),
        support,
        torch.cat([support] * 3),
        MEAN.expand(4, 8),
        query[:1],
        query[:2],
    ):
        scores = bd_cspn(support, labels, queries, n_ways=4, base_mean=MEAN)
        assert scores.shape == (len(queries), 4)
        assert scores.isfinite().all()
    assert bd_cspn(MEAN.expand(4, 8), labels, query, n_ways=4, base_mean=MEAN).isfinite().all()
    np.testing.assert_allclose(
        bd_cspn(support, labels, query[:1], n_ways=4, base_mean=MEAN), oracle(support, labels, query[:1], 4)[0]
    )


def test_single_precision_stays_near_double():
    support, labels, query = signed(5, [*range(4)] * 5)
    single = bd_cspn(support.float(), labels, query.float(), n_ways=4, base_mean=MEAN.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(
        single.double(), bd_cspn(support, labels, query, n_ways=4, base_mean=MEAN), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("seed", range(4))
def test_classes_of_the_same_support_share_their_samples_in_any_order(seed):
    support, labels, query = (x.float() if x.is_floating_point() else x for x in signed(seed, [0, 1, 2, 3]))
    support[3] = support[0]
    order = torch.tensor([3, 1, 0, 2])
    scores, again = (bd_cspn(support, y, query, n_ways=4, base_mean=MEAN) for y in (labels, order[labels]))
    torch.testing.assert_close(scores, again[:, order], rtol=0, atol=1e-5)
    torch.testing.assert_close(scores[:, 0], scores[:, 3], rtol=0, atol=1e-5)

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.semi_supervised import LabelSpreading
from torch.nn.functional import softplus

from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.tpn import tpn
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


def graph(head, x, neighbours):
    """W of the paper, by loops."""
    w = head(x)
    scale = softplus((x * 12**0.5 @ w["into"].T + w["into_bias"]).clamp_min(0) @ w["out"].T + w["out_bias"])
    scaled = (x / scale).numpy()
    n = len(scaled)
    apart = np.array([[((a - b) ** 2).sum() for b in scaled] for a in scaled])
    kept = np.zeros((n, n))
    for i in range(n):
        others = sorted((j for j in range(n) if j != i), key=lambda j, i=i: apart[i, j])
        for j in others[:neighbours]:
            kept[i, j] = kept[j, i] = 1
    return np.exp(-apart / 2) * kept


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
@pytest.mark.parametrize("neighbours", [2, 20])
def test_a_dense_inverse(shots, queries, neighbours):
    support, labels, query = ragged(0, shots, queries)
    head = random_head("tpn", width=4, size=0.1)
    x = l2_normalise(torch.cat([support, query]))
    ties = graph(head, x, neighbours)
    root = np.diag(ties.sum(1) ** -0.5)
    y = np.zeros((len(x), len(shots)))
    y[np.arange(len(labels)), labels] = 1
    expected = np.linalg.inv(np.eye(len(x)) - 0.9 * root @ ties @ root) @ y
    scores = tpn(support, labels, query, n_ways=len(shots), head=head, alpha=0.9, neighbours=neighbours)
    reached = expected[len(labels) :]
    np.testing.assert_allclose(scores.exp(), reached + 1e-8, rtol=1e-6)


def test_with_all_neighbours_it_is_label_spreading():
    support, labels, query = ragged(1, (2, 2, 1), (3, 2, 4))
    head = build("tpn", {}, dim=12).double().requires_grad_(False)
    x = l2_normalise(torch.cat([support, query])).numpy()

    def kernel(a, b):
        apart = ((a[:, None] - b[None]) ** 2).sum(-1)
        return np.exp(-apart / 2 / 0.18**2) * (apart > 1e-12)

    model = LabelSpreading(kernel=kernel, alpha=0.9, max_iter=100_000, tol=1e-14)
    model.fit(x, [*labels.tolist(), *[-1] * len(query)])
    scores = tpn(support, labels, query, n_ways=3, head=head, alpha=0.9, neighbours=99)
    expected = model.label_distributions_[len(labels) :]
    np.testing.assert_allclose(scores.softmax(-1), expected, rtol=1e-5, atol=1e-7)


def test_little_spreading_follows_the_ties_to_the_support():
    support, labels, query = ragged(2, (1, 1, 1), (3, 2, 4))
    head = build("tpn", {}, dim=12).double()
    scores = tpn(support, labels, query, n_ways=3, head=head, alpha=1e-6, neighbours=99)
    apart = torch.cdist(l2_normalise(query), l2_normalise(support))
    assert torch.equal(scores.argmax(-1), apart.argmin(-1))


def test_gradients():
    inputs = ragged(3, (1, 2), (2, 1), dim=4)
    check_gradients(tpn, inputs, random_head("tpn", dim=4, width=2, size=0.1), 2, alpha=0.7, neighbours=3)

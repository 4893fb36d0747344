from __future__ import annotations

import pytest
import torch

from likelyshot.methods.baseline import baseline
from likelyshot.methods.euclidean import euclidean
from made_tasks import RAGGED, ragged


def oracle(support, labels, query, ways, steps=25, learning_rate=1e-3):
    """One task, a linear layer of torch, autograd, and the optimiser of torch."""
    support = support / support.norm(dim=1, keepdim=True)
    query = query / query.norm(dim=1, keepdim=True)
    layer = torch.nn.Linear(support.shape[1], ways, dtype=torch.float64)
    with torch.no_grad():
        for k in range(ways):
            mine = support[labels == k]
            layer.weight[k] = mine.mean(0) if len(mine) else 0
            layer.bias[k] = -(layer.weight[k] ** 2).sum() / 2
    optimiser = torch.optim.Adam(layer.parameters(), lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(support), labels).backward()
        optimiser.step()
    return layer(query).detach()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_equals_the_loss_by_autograd(seed, shots, queries):
    support, labels, query = ragged(seed, shots, queries)
    scores = baseline(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
    expected = oracle(support, labels, query, len(shots))
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_defaults_are_100_steps_of_1e_3():
    inputs = ragged(3)
    expected = oracle(*inputs, 4, steps=100, learning_rate=1e-3)
    torch.testing.assert_close(baseline(*inputs, n_ways=4), expected, rtol=1e-9, atol=1e-9)


def test_training_long_separates_a_support_that_prototypes_do_not():
    support = torch.tensor([[0.0, 1.0], [9.0, 1.0], [10.0, 1.0], [-1.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1])
    wrong = baseline(support, labels, support, n_ways=2, steps=0, normalise=False).argmax(-1) != labels
    assert wrong.tolist() == [True, False, False, False, False]
    trained = baseline(support, labels, support, n_ways=2, steps=3000, learning_rate=0.05, normalise=False)
    assert torch.equal(trained.argmax(-1), labels)


def test_scores_do_not_depend_on_the_other_queries():
    support, labels, query = ragged(4)
    torch.testing.assert_close(
        baseline(support, labels, query, n_ways=4)[:2], baseline(support, labels, query[:2], n_ways=4)
    )


def test_no_step_is_the_nearest_prototype():
    support, labels, query = ragged(4)
    scores = baseline(support, labels, query, n_ways=4, steps=0)
    distances = -2 * scores + 1  # ||z||^2 - 2 w.z + ||w||^2
    torch.testing.assert_close(-distances, euclidean(support, labels, query, n_ways=4))

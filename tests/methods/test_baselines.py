"""Baseline and Baseline++: a linear and a cosine classifier, trained on the support."""

from __future__ import annotations

import pytest
import torch

from likelyshot.methods.baseline import baseline
from likelyshot.methods.baseline_pp import baseline_pp
from likelyshot.methods.cosine import cosine
from likelyshot.methods.euclidean import euclidean
from made_tasks import RAGGED, ragged


def linear_layer(support, labels, query, ways, tau=10.0, steps=25, learning_rate=1e-3):
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
        torch.nn.functional.cross_entropy(tau * layer(support), labels).backward()
        optimiser.step()
    return tau * layer(query).detach()


def cosine_layer(support, labels, query, ways, tau=15.0, steps=25, learning_rate=1e-3):
    """One task, the cosine of torch, autograd, and Adam of torch; a class without support keeps the score 0."""
    support = support / support.norm(dim=1, keepdim=True)
    present = [k for k in range(ways) if (labels == k).any()]
    w = torch.stack([support[labels == k].mean(0) for k in present]).requires_grad_()

    def logits(z):
        scores = torch.zeros(len(z), ways, dtype=torch.float64)
        cosine = torch.nn.functional.cosine_similarity(z[:, None], w[None], dim=-1)
        return scores.index_copy(1, torch.tensor(present), tau * cosine)

    optimiser = torch.optim.Adam([w], lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits(support), labels).backward()
        optimiser.step()
    return logits(query).detach()


BOTH = pytest.mark.parametrize(("method", "oracle"), [(baseline, linear_layer), (baseline_pp, cosine_layer)])


@BOTH
def test_equals_the_loss_by_autograd(method, oracle):
    for seed, (shots, queries) in enumerate(RAGGED):
        support, labels, query = ragged(seed, shots, queries)
        scores = method(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
        torch.testing.assert_close(scores, oracle(support, labels, query, len(shots)), rtol=1e-9, atol=1e-9)


@BOTH
def test_defaults_are_100_steps_of_1e_3(method, oracle):
    inputs = ragged(3)
    expected = oracle(*inputs, 4, steps=100, learning_rate=1e-3)
    torch.testing.assert_close(method(*inputs, n_ways=4), expected, rtol=1e-9, atol=1e-9)


def test_no_step_is_the_nearest_prototype():
    inputs = ragged(4)
    distances = -2 * baseline(*inputs, n_ways=4, steps=0, tau=1.0) + 1  # ||z||^2 - 2 w.z + ||w||^2
    torch.testing.assert_close(-distances, euclidean(*inputs, n_ways=4))
    scores = baseline_pp(*inputs, n_ways=4, steps=0, tau=1.0)
    torch.testing.assert_close(scores, cosine(*inputs, n_ways=4))
    assert baseline_pp(*inputs, n_ways=4, tau=3.0).abs().max() <= 3


def test_training_long_separates_a_support_that_prototypes_do_not():
    support = torch.tensor([[0.0, 1.0], [9.0, 1.0], [10.0, 1.0], [-1.0, 1.0], [-2.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1, 1])
    wrong = baseline(support, labels, support, n_ways=2, steps=0, normalise=False).argmax(-1) != labels
    assert wrong.tolist() == [True, False, False, False, False]
    trained = baseline(support, labels, support, n_ways=2, steps=3000, learning_rate=0.05, normalise=False)
    assert torch.equal(trained.argmax(-1), labels)


def test_a_class_without_direction_keeps_the_score_zero():
    support = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    scores = baseline_pp(support, torch.tensor([0, 0, 1]), support, n_ways=3)
    assert scores[:, [0, 2]].tolist() == [[0, 0]] * 3
    assert scores[2, 1] > 14

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from likelyshot.functional.scores import class_means, l2_normalise
from likelyshot.heads import build
from likelyshot.methods.anil import anil
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_steps_by_autograd(shots, queries, per_feature):
    support, labels, query = ragged(0, shots, queries)
    head = random_head("anil", per_feature=per_feature)
    w, x, f = head(support), l2_normalise(support), l2_normalise(query)
    weights, bias = torch.zeros(len(shots), 12, dtype=torch.float64), torch.zeros(len(shots), dtype=torch.float64)
    for _ in range(5):
        weights, bias = weights.detach().requires_grad_(), bias.detach().requires_grad_()
        functional.cross_entropy(x @ weights.T + bias, labels).backward()
        rate = w["log_rate"].exp()
        weights, bias = weights - rate * weights.grad, bias - rate.mean() * bias.grad
    scores = anil(support, labels, query, n_ways=len(shots), head=head, steps=5)
    torch.testing.assert_close(scores, (f @ weights.T + bias).detach(), rtol=1e-9, atol=1e-9)


def test_one_step_from_zero_compares_with_the_centred_class_means():
    support, labels, query = ragged(1, (2, 2, 2), (3, 2, 4))
    means = class_means(l2_normalise(support), labels, 3)
    scores = anil(support, labels, query, n_ways=3, head=build("anil", {}, dim=12), steps=1)
    torch.testing.assert_close(scores, l2_normalise(query) @ (means - means.mean(0)).T / 3, rtol=1e-9, atol=1e-9)


def test_gradients_of_second_order_and_first_order_differ():
    inputs = ragged(2, (1, 2), (1, 1), dim=3)
    check_gradients(anil, inputs, random_head("anil", dim=3, per_feature=True), 2, steps=3)
    slopes = []
    for order in (2, 1):
        head = random_head("anil", dim=3).requires_grad_()
        scores = anil(*inputs, n_ways=2, head=head, steps=3, order=order)
        slopes.append(torch.autograd.grad(scores[0, 0], head.log_rate)[0])
    assert not torch.allclose(*slopes)

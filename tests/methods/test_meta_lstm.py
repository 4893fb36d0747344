from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.anil import anil
from likelyshot.methods.meta_lstm import _sized, meta_lstm
from made_tasks import RAGGED, ragged
from trained_heads import random_head


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_with_constant_gates_it_is_gradient_descent(shots, queries):
    support, labels, query = ragged(0, shots, queries)
    head = build("meta_lstm", {}, dim=12).double().requires_grad_(False)
    for name, weight in head.named_parameters():
        weight.zero_()
        if name == "forget_bias":
            weight.fill_(60.0)  # keeps all of the weight
        if name == "admit_bias":
            weight.fill_(math.log(0.3 / 0.7))  # a rate of 0.3
    plain = build("anil", {}, dim=12).double().requires_grad_(False)
    plain.log_rate.fill_(math.log(0.3))
    scores = meta_lstm(support, labels, query, n_ways=len(shots), head=head, steps=4)
    expected = anil(support, labels, query, n_ways=len(shots), head=plain, steps=4)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_two_updates_weight_by_weight():
    support, labels, query = ragged(1, (2, 1), (1, 2), dim=4)
    head = random_head("meta_lstm", dim=4, width=3)
    w, factor = head(support), float(head.log_factor.exp())
    cell = nn.LSTMCell(4, 3, dtype=torch.float64)
    with torch.no_grad():
        for part, ours in (("weight_ih", "input"), ("weight_hh", "state"), ("bias_ih", "bias")):
            getattr(cell, part).copy_(w[ours])
        cell.bias_hh.zero_()
    x, f = (torch.cat([factor * l2_normalise(z), torch.ones(len(z), 1)], 1) for z in (support, query))
    theta = w["start"].expand(2, -1).clone()
    state, gates = {}, {}
    for _ in range(2):
        theta = theta.detach().requires_grad_()
        loss = cross_entropy(x @ theta.T, labels)
        loss.backward()
        new = torch.empty_like(theta)
        for place in [(k, j) for k in range(2) for j in range(5)]:
            inputs = torch.cat([_sized(theta.grad[place]), _sized(loss.detach())])
            with torch.no_grad():
                h, c = cell(inputs, state.get(place, (torch.zeros(3).double(), torch.zeros(3).double())))
                before = gates.get(place, (torch.tensor(1.0), torch.tensor(0.0)))
                gates[place] = [
                    (
                        torch.cat([h, theta[place].view(1), gate.view(1).double()]) @ w[name] + w[f"{name}_bias"]
                    ).sigmoid()
                    for name, gate in zip(("forget", "admit"), before, strict=True)
                ]
                new[place] = (gates[place][0] * theta[place] - gates[place][1] * theta.grad[place]).squeeze()
            state[place] = (h, c)
        theta = new
    scores = meta_lstm(support, labels, query, n_ways=2, head=head, steps=2)
    torch.testing.assert_close(scores, (f @ theta.T).detach(), rtol=1e-8, atol=1e-8)


def test_numbers_are_split_into_size_and_sign():
    sized = _sized(torch.tensor([math.e**3, -math.e, 1e-6, 0.0], dtype=torch.float64))
    expected = [[0.3, 1.0], [0.1, -1.0], [-1.0, math.e**10 * 1e-6], [-1.0, 0.0]]
    torch.testing.assert_close(sized, torch.tensor(expected, dtype=torch.float64))


def test_the_inner_gradient_is_a_constant_and_the_optimiser_has_gradients():
    inputs = ragged(2, (1, 2), (1, 1), dim=3)
    head = random_head("meta_lstm", dim=3, width=2).requires_grad_()
    meta_lstm(*inputs, n_ways=2, head=head, steps=3).square().sum().backward()
    for name, weight in head.named_parameters():
        assert weight.grad.abs().max() > 0, name

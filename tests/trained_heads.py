"""Heads with random weights for the tests of methods that are trained."""

from __future__ import annotations

import torch

from likelyshot.heads import build


def random_head(name, dim=12, seed=0, size=0.3, **params):
    """Build a head in double precision and move all its weights away from where training starts."""
    head = build(name, params, dim=dim, seed=seed).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for weight in head.parameters():
        weight += size * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return head


def check_gradients(method, inputs, head, n_ways, **params):
    """Compare the gradients by support, queries and all weights of the head with central differences."""
    support, labels, query = inputs
    names = [name for name, _ in head.named_parameters()]

    def scores(s, q, *values):
        weights = dict(zip(names, values, strict=True))

        def call(like):
            return weights

        call.name, call.dim = head.name, head.dim
        return method(s, labels, q, n_ways=n_ways, head=call, **params)

    values = [weight.detach().clone().requires_grad_() for weight in head.parameters()]
    inputs = (support.clone().requires_grad_(), query.clone().requires_grad_(), *values)
    assert torch.autograd.gradcheck(scores, inputs)

from __future__ import annotations

import torch

from likelyshot.functional.transport import transport_cost


def masses(*shape, seed=0):
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return x / x.sum(-1, keepdim=True)


def test_gradients_by_the_costs_and_by_masses_that_keep_their_sum():
    logits = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    costs = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).requires_grad_()
    other = masses(5)
    assert torch.autograd.gradcheck(lambda x, c: transport_cost(x.softmax(-1), other, c), (logits, costs))
    assert torch.autograd.gradcheck(
        lambda x: transport_cost(masses(2, 3, 4), x.softmax(-1), costs.detach()),
        torch.rand(5, generator=torch.Generator().manual_seed(3), dtype=torch.float64).requires_grad_(),
    )


def test_on_a_line_it_is_the_area_between_the_distributions():
    a, b = masses(6, seed=4), masses(6, seed=5)
    places = torch.arange(6, dtype=torch.float64)
    costs = (places[:, None] - places).abs()
    expected = (a.cumsum(0) - b.cumsum(0)).abs().sum()
    torch.testing.assert_close(transport_cost(a, b, costs), expected)
    assert transport_cost(a.float(), b.float(), costs.float()).dtype == torch.float32

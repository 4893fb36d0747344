"""Exact optimal transport between small sets, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from likelyshot.errors import InputError


def transport_cost(masses: Tensor, other: Tensor, costs: Tensor) -> Tensor:
    """Give the least cost of moving masses from one set to another: the earth mover's distance.

    Exact, by the network simplex of POT. The gradient by the costs is the optimal plan, that by the masses are the dual
    potentials (envelope theorem), up to what all masses of a set share. With one element in each set nothing is to be
    solved.
    Shapes: masses (..., n), other (..., m), costs (..., n, m) -> (...).

    Args:
        masses: Above 0, sum to 1.
        other: Above 0, sum to 1.
        costs: Of moving a unit of mass from i to j.

    >>> transport_cost(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    tensor(0.2500)
    """
    if costs.shape[-2:] == (1, 1):
        return costs[..., 0, 0] * masses[..., 0] * other[..., 0]
    cost: Tensor = _Transport.apply(masses, other, costs)  # type: ignore[no-untyped-call]
    return cost


class _Transport(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, masses: Tensor, other: Tensor, costs: Tensor) -> Tensor:
        emd = _solver()
        leading = costs.shape[:-2]
        first, second, prices = (x.detach().double().cpu().numpy() for x in (masses, other, costs))
        first, second = np.broadcast_to(first, costs.shape[:-1]), np.broadcast_to(second, (*leading, costs.shape[-1]))
        plans, left, right = np.empty(costs.shape), np.empty(costs.shape[:-1]), np.empty((*leading, costs.shape[-1]))
        for place in np.ndindex(*leading):
            a, b = first[place] / first[place].sum(), second[place] / second[place].sum()
            plans[place], log = emd(a, b, np.ascontiguousarray(prices[place]), log=True, check_marginals=False)
            left[place], right[place] = log["u"], log["v"]
        left, right = left - left.mean(-1, keepdims=True), right - right.mean(-1, keepdims=True)
        saved = [torch.from_numpy(x).to(costs) for x in (plans, left, right)]
        ctx.save_for_backward(*saved)
        ctx.shapes = masses.shape, other.shape
        return (saved[0] * costs).sum((-2, -1))

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        plans, left, right = ctx.saved_tensors
        by_left, by_right = slope.unsqueeze(-1) * left, slope.unsqueeze(-1) * right
        return by_left.sum_to_size(ctx.shapes[0]), by_right.sum_to_size(ctx.shapes[1]), slope[..., None, None] * plans


def _solver() -> Any:
    try:
        from ot import emd  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise InputError("exact transport needs POT, which is not installed: pip install 'likelyshot[emd]'") from None
    return emd

"""Scores of queries against classes: one per (query, class), higher is better."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.normalise import l2_normalise


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ||x - y||^2 of every pair by one matrix product.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k). Measured from the mean of y and in units of the
    largest entry: nothing cancels that need not, and nothing overflows before the result itself does.

    >>> squared_distances(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]]))
    tensor([[25.,  0.]])
    """
    unit = torch.maximum(_largest(x), _largest(y)).clamp_min(torch.finfo(x.dtype).tiny)  # (..., 1, 1)
    x, y = x / unit, y / unit
    origin = y.mean(-2, keepdim=True)
    x, y = x - origin, y - origin
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * x @ y.transpose(-1, -2)).clamp_min(0) * unit * unit


def _largest(x: Tensor) -> Tensor:
    x = x.detach()
    if x.shape[-2] == 0:
        return x.new_zeros(*x.shape[:-2], 1, 1)
    return torch.maximum(x.amax((-2, -1), keepdim=True), -x.amin((-2, -1), keepdim=True))


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Compute cos(x, y) = x.y / (||x|| ||y||) of every pair; 0 where a vector is zero.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k).

    >>> cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """
    return l2_normalise(x) @ l2_normalise(y).transpose(-1, -2)


def exponential_rates(means: Tensor, lambda_max: float) -> Tensor:
    """Estimate the rate of an exponential distribution, lambda = 1 / mean (paper eq. 3), at most lambda_max.

    Shapes: (...) -> (...). The mean is floored at 1 / lambda_max before the division: the same as clipping
    lambda (Algorithm 1, line 8), without a division by zero.

    Args:
        means: Mean of every feature, non-negative.
        lambda_max: Largest rate, above 0.

    >>> exponential_rates(torch.tensor([0.5, 0.0]), lambda_max=40.0)
    tensor([ 2., 40.])
    """
    return means.clamp_min(1 / lambda_max).reciprocal()


def exponential_log_likelihood(x: Tensor, rates: Tensor) -> Tensor:
    """Sum the exponential log-densities of a vector's features, sum_i log lambda_i - lambda . x (paper eq. 6).

    Shapes: x (..., q, d), rates (..., k, d) -> (..., q, k): a matrix product and a constant per class.

    >>> exponential_log_likelihood(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 0.5]]))
    tensor([[-3., -3.]])
    """
    return rates.log().sum(-1).unsqueeze(-2) - x @ rates.transpose(-1, -2)

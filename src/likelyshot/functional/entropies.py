"""Slopes of the entropies of class probabilities with respect to the logits."""

from __future__ import annotations

import torch
from torch import Tensor


def entropy_slope(log_p: Tensor) -> Tensor:
    """Differentiate mean_q H(p_q), the Shannon entropy of every query, by the logits l of p = softmax(l).

    dH(p)/dp_k = -log p_k - 1, and the constant falls out of the softmax. Finite where all log p are.
    Shapes: log_p (..., k, q), classes before queries -> (..., k, q).

    >>> entropy_slope(torch.tensor([[0.25, 0.5], [0.75, 0.5]]).log())
    tensor([[ 0.1030,  0.0000],
            [-0.1030,  0.0000]])
    """
    return softmax_slope(log_p.exp(), -log_p).div_(log_p.shape[-1])


def information_slope(log_p: Tensor, alpha: float) -> Tensor:
    """Differentiate mean_q H_alpha(p_q) - H_alpha(mean_q p_q), the negative mutual information, by the logits.

    H_alpha(p) = (1 - sum_k p_k^alpha) / (alpha - 1), the Tsallis entropy; Shannon's at alpha = 1. Up to a constant,
    which falls out of the softmax, dH_alpha/dp_k = -log_alpha(p_k) with log_alpha(p) = alpha (p^(alpha-1) - 1) /
    (alpha - 1), the logarithm at alpha = 1; so the slope by p_qk is (log_alpha(mean_q p_qk) - log_alpha(p_qk)) / q.
    Shapes: log p (..., k, q), classes before queries -> (..., k, q).

    Args:
        log_p: Log-probabilities, at least log(tiny); the slope is finite where they are.
        alpha: Order of the entropy, above 0.

    >>> information_slope(torch.tensor([[0.25, 0.75], [0.75, 0.25]]).log(), alpha=2.0)
    tensor([[ 0.0938, -0.0938],
            [-0.0938,  0.0938]])
    """
    p = log_p.exp()
    log_mean = p.mean(-1, keepdim=True).log_()
    if alpha == 1:
        slope = log_mean - log_p
    else:
        powers, mean_powers = torch.expm1((alpha - 1) * log_p), torch.expm1((alpha - 1) * log_mean)
        slope = (mean_powers - powers).mul_(alpha / (alpha - 1))
    return softmax_slope(p, slope).div_(log_p.shape[-1])


def softmax_slope(p: Tensor, slope: Tensor) -> Tensor:
    """Carry the slope u of a loss by p = softmax(l) over to the logits l: p_k (u_k - sum_j p_j u_j).

    Shapes: p (..., k, q), slope (..., k, q) -> (..., k, q).

    >>> softmax_slope(torch.tensor([[0.5], [0.5]]), torch.tensor([[1.0], [0.0]]))
    tensor([[ 0.2500],
            [-0.2500]])
    """
    weighted = p * slope
    return weighted.addcmul_(p, weighted.sum(-2, keepdim=True), value=-1)

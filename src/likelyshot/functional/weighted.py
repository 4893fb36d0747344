"""Prototypes as weights over the samples of a task, m_k = sum_n weights_kn f_n: inner products are all they need."""

from __future__ import annotations

import torch
from torch import Tensor


def closeness(gram: Tensor, weights: Tensor) -> Tensor:
    """Compute ||f_n||^2 - ||f_n - m_k||^2 = 2 f_n.m_k - ||m_k||^2, of every sample and prototype.

    Shapes: gram (..., n, n) of the inner products f_n.f_n', weights (..., k, n) -> (..., k, n).

    >>> samples = torch.tensor([[3.0], [1.0]])
    >>> closeness(samples @ samples.T, torch.tensor([[0.5, 0.5]]))
    tensor([[8., 0.]])
    """
    product = weights @ gram
    return 2 * product - (weights * product).sum(-1, keepdim=True)


def move_to_means(weights: Tensor, known: Tensor, p: Tensor, eta: float) -> Tensor:
    """Move prototypes to the weighted mean of support and queries, m_k + eta (mean - m_k); an empty class stays.

    Shapes: weights (..., k, s + q), known (..., k, s) of the support, p (..., k, q) of the queries -> (..., k, s + q).

    >>> move_to_means(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0]]), torch.tensor([[1.0]]), 0.5)
    tensor([[0.7500, 0.2500]])
    """
    mass = torch.cat([known, p], -1)
    total = mass.sum(-1, keepdim=True)
    tiny = torch.finfo(mass.dtype).tiny
    return torch.lerp(weights.expand_as(mass), mass / total.clamp_min(tiny), eta * (total > tiny).to(mass))

"""Weighted means of a task's samples, and distances to them, from the samples' inner products alone.

For methods that do not mind a rotation: with n samples of d > n features, every round costs n n k instead of n d k.
Classes come before samples here, (..., k, n): small matrix products and softmaxes run several times faster so.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.scores import one_hot


def join(support: Tensor, labels: Tensor, query: Tensor, n_ways: int) -> tuple[Tensor, Tensor]:
    """Put the samples of a task in one list, support first, with their class weights: 1[y = k], and 0 for a query.

    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> samples (..., s+q, d), weights (..., k, s+q).

    >>> _, weights = join(torch.zeros(2, 3), torch.tensor([1, 0]), torch.zeros(1, 3), n_ways=2)
    >>> weights
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    member = one_hot(labels, n_ways, support.dtype).transpose(-1, -2)  # (..., k, s)
    leading = np.broadcast_shapes(support.shape[:-2], member.shape[:-2], query.shape[:-2])
    support, query, member = (x.expand(*leading, *x.shape[-2:]) for x in (support, query, member))
    weights = torch.cat([member, member.new_zeros(*leading, n_ways, query.shape[-2])], dim=-1)
    return torch.cat([support, query], dim=-2), weights


def mean_weights(weights: Tensor) -> Tensor:
    """Scale the weights of every class to sum to 1; a class without weight keeps zeros, and has its mean at the origin.

    Shapes: (..., k, n) -> (..., k, n).

    >>> mean_weights(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    return weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def squared_distances_to_means(gram: Tensor, weights: Tensor) -> Tensor:
    """Compute ||x_n - w_k||^2 to the means w_k = sum_n c_kn x_n, as G_nn - 2 (c G)_kn + c_k G c_k', G_mn = x_m . x_n.

    Shapes: gram (..., n, n), weights (..., k, n) -> (..., k, n).

    Args:
        gram: Inner products G of the samples.
        weights: Weights c of the samples in every mean; they need not sum to 1.

    >>> x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> squared_distances_to_means(x @ x.T, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    tensor([[1., 1., 5.],
            [4., 8., 0.]])
    """
    products = weights @ gram
    squares = (products * weights).sum(-1, keepdim=True) + gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return squares.sub_(products, alpha=2).clamp_min_(0)


def move_to_means(weights: Tensor, known: Tensor, p: Tensor, eta: float) -> Tensor:
    """Move prototypes to the weighted mean of support and queries, m_k + eta (mean - m_k); an empty class stays.

    Shapes: weights (..., k, s + q), known (..., k, s), p (..., k, q) -> (..., k, s + q).

    Args:
        weights: Prototypes, as weights over support and queries.
        known: Membership of the support, 1[y = k].
        p: Membership of the queries.
        eta: How far the prototypes move, from 0 to 1.

    >>> move_to_means(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0]]), torch.tensor([[1.0]]), 0.5)
    tensor([[0.7500, 0.2500]])
    """
    mass = torch.cat([known, p], -1)
    total = mass.sum(-1, keepdim=True)
    tiny = torch.finfo(mass.dtype).tiny
    return torch.lerp(weights.expand_as(mass), mass / total.clamp_min(tiny), eta * (total > tiny).to(mass))

"""BD-CSPN: prototypes rectified by the queries."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.normalise import l2_normalise
from likelyshot.functional.prototypes import class_means
from likelyshot.methods.inputs import centre


@torch.no_grad()
def bd_cspn(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, base_mean: Tensor, tau: float = 10.0
) -> Tensor:
    """Score by the negative squared distance to a prototype rectified by pseudo-labelled samples, on CL2N features.

    Paper: Liu et al. 2020, Prototype rectification for few-shot learning.
    Queries are shifted by mean(S) - mean(Q) (cross-class bias) and join the support: X' = S + shifted Q. Every x of X'
    is assigned to the class of largest cos(x, m_k), with the weight w = softmax_k(tau cos(x, m_k)) of that class.
    The weighted mean of a pseudo-class is its new prototype (intra-class bias); without a sample it keeps its own.
    The queries that are scored are not shifted, as in the published protocol.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_mean (d,) -> (..., q, k).

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[9.0, 1.0], [8.0, 1.0], [2.0, 3.0]])
    >>> bd_cspn(support, torch.tensor([0, 1]), query, n_ways=2, base_mean=torch.zeros(2)).argmax(-1)
    tensor([0, 0, 1])
    """
    if not 0 <= tau < float("inf"):
        raise InputError(f"tau must be a finite number of 0 or more, got {tau}: the paper uses 10")
    support, query = centre(support, query, base_mean)
    prototypes = class_means(support, labels, n_ways)  # (..., k, d)
    shift = support.mean(-2, keepdim=True) - query.mean(-2, keepdim=True)
    directions = l2_normalise(prototypes)
    total, weight = torch.zeros_like(prototypes), torch.zeros_like(prototypes[..., :1])
    for x in (support, query + shift):
        length = torch.linalg.vector_norm(x, dim=-1).clamp_min(torch.finfo(x.dtype).tiny)
        similarity = directions @ x.transpose(-1, -2) / length.unsqueeze(-2)  # cos(x, m_k), (..., k, n)
        member = (similarity == similarity.amax(-2, keepdim=True)).to(x.dtype)  # of every class that ties for the best
        weights = member * (tau * similarity).softmax(-2)
        total = total + weights @ x
        weight = weight + weights.sum(-1, keepdim=True)
    prototypes = torch.where(weight > 0, total / weight, prototypes)
    squares = prototypes.square().sum(-1, keepdim=True) + query.square().sum(-1).unsqueeze(-2)
    return (2 * prototypes @ query.transpose(-1, -2) - squares).transpose(-1, -2).contiguous()

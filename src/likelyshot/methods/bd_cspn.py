"""BD-CSPN: prototypes rectified by the queries."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import centre, check_not_negative
from likelyshot.functional.scores import class_means, cosines, l2_normalise


@torch.no_grad()
def bd_cspn(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, base_mean: Tensor | None, tau: float = 10.0
) -> Tensor:
    """Score by the negative squared distance to a prototype rectified by pseudo-labelled samples, on CL2N features.

    Paper: Liu et al. 2020, Prototype rectification for few-shot learning.
    Queries are shifted by mean(S) - mean(Q) (cross-class bias) and join the support: X' = S + shifted Q. Every x of X'
    is assigned to the class of largest cos(x, m_k), with the weight w = softmax_k(tau cos(x, m_k)) of that class.
    The weighted mean of a pseudo-class is its new prototype (intra-class bias); without a sample it keeps its own.
    The queries that are scored are not shifted, as in the published protocol.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_mean (d,) -> (..., q, k).

    Args:
        base_mean: Mean vector of the base classes (d,), `likelyshot.Base.of(features).mean`; None if the features are
            CL2N already.
        tau: Factor of the cosines in the softmax: the larger, the more a sample's weight depends on how clearly it
            belongs to its class. 10 in the paper; 0 weighs all samples the same.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[9.0, 1.0], [8.0, 1.0], [2.0, 3.0]])
    >>> bd_cspn(support, torch.tensor([0, 1]), query, n_ways=2, base_mean=torch.zeros(2)).argmax(-1)
    tensor([0, 0, 1])
    """
    check_not_negative("tau", tau, "the paper uses 10")
    support, query = centre(support, labels, query, n_ways, base_mean)
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2], labels.shape[:-1])
    support, query = (x.expand(*leading, *x.shape[-2:]) for x in (support, query))
    prototypes = class_means(support, labels, n_ways)  # (..., k, d)
    shift = support.mean(-2, keepdim=True) - query.mean(-2, keepdim=True)  # (..., 1, d)
    # Shifted queries would be one more array as large as the queries: all that follows is from products with these.
    directions = torch.cat([l2_normalise(prototypes), shift], dim=-2)  # (..., k+1, d)
    products, shift_products = directions @ query.transpose(-1, -2), directions @ shift.transpose(-1, -2)
    squares = torch.linalg.vector_norm(query, dim=-1).square().unsqueeze(-2)  # ||f_q||^2, (..., 1, q)
    shifted = squares + 2 * products[..., -1:, :] + shift_products[..., -1:, :]  # ||f_q + shift||^2
    inverse = torch.where(shifted > 100 * torch.finfo(query.dtype).eps, shifted.rsqrt(), 0)
    similarity = torch.cat([cosines(prototypes, support), (products + shift_products)[..., :-1, :] * inverse], dim=-1)
    best = similarity.amax(-2, keepdim=True) - 64 * torch.finfo(query.dtype).eps  # up to rounding
    member = (similarity >= best).to(query.dtype)  # of every class that ties for the best
    weights = member * (tau * similarity).softmax(-2)  # (..., k, s+q)
    of_support, of_query = weights[..., : support.shape[-2]], weights[..., support.shape[-2] :]
    total = of_support @ support + of_query @ query + of_query.sum(-1, keepdim=True) * shift
    weight = weights.sum(-1, keepdim=True)
    prototypes = torch.where(weight > 0, total / weight, prototypes)
    distances: Tensor = prototypes.square().sum(-1, keepdim=True) + squares - 2 * prototypes @ query.transpose(-1, -2)
    return distances.neg_().transpose(-1, -2)

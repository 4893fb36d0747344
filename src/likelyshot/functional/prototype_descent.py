"""Prototypes that go down a loss of the support and the queries."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.adam import adam
from likelyshot.functional.checks import check_positive
from likelyshot.functional.scores import class_means, one_hot, squared_distances


def descend_prototypes(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    n_ways: int,
    query_slope: Callable[[Tensor], Tensor],
    tau: float,
    steps: int,
    learning_rate: float,
) -> Tensor:
    """Minimise the support's cross entropy plus a loss of the queries over the prototypes w by Adam, from class means.

    Logits l_k(z) = -(tau/2) ||z - w_k||^2, p = softmax(l), cross entropy -mean_s log p_{s, y_s}. With G the slope of
    the whole loss by l of all n samples Z: dl_k/dw_k = tau (z - w_k), so that the gradient is tau (G Z - (sum_n G) w).
    Returns the logits of the queries after the last step; without a step, the nearest prototype.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        query_slope: Function from log p of the queries (..., k, q), floored at log(tiny), to the slope of their loss
            by l.
        tau: Factor of the squared distances in the logits.
        steps: Number of steps of Adam.
        learning_rate: Step size of Adam.

    >>> support, query = torch.tensor([[0.0, 0.0], [2.0, 0.0]]), torch.tensor([[0.5, 0.0], [1.5, 0.0]])
    >>> descend_prototypes(support, torch.tensor([0, 1]), query, 2, torch.zeros_like, 1.0, 1, 0.1)
    tensor([[-0.1800, -1.2800],
            [-1.2800, -0.1800]])
    """
    check_positive("tau", tau, "the papers use 15")
    n_support = support.shape[-2]
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2], labels.shape[:-1])
    support, query = support.expand(*leading, *support.shape[-2:]), query.expand(*leading, *query.shape[-2:])
    start = class_means(support, labels, n_ways)
    # Classes come before samples: the thin products (k, d)(d, n) and (k, n)(n, d) are then the fastest.
    samples = torch.cat([support, query], -2).mul_(tau).view(-1, n_support + query.shape[-2], support.shape[-1])
    target = one_hot(labels, n_ways, support.dtype).mT / -n_support  # (..., k, s)
    target = target.expand(*leading, *target.shape[-2:]).reshape(-1, n_ways, n_support)
    logits = samples.new_empty(len(samples), n_ways, samples.shape[1])  # buffers: fresh ones every step page-fault
    slope, gradient = torch.empty_like(logits), samples.new_empty(len(samples), n_ways, samples.shape[2])
    least = math.log(torch.finfo(support.dtype).tiny)

    def loss_gradient(w: Tensor) -> Tensor:
        torch.bmm(w, samples.mT, out=logits)
        # -(tau/2) ||z||^2 is the same for every class: left out.
        logits.sub_(torch.linalg.vector_norm(w, dim=-1, keepdim=True).square_().mul_(tau / 2))
        log_p = torch.log_softmax(logits, -2).clamp_min_(least)
        torch.add(target, log_p[..., :n_support].exp(), alpha=1 / n_support, out=slope[..., :n_support])
        slope[..., n_support:] = query_slope(log_p[..., n_support:])
        torch.bmm(slope, samples, out=gradient)
        return gradient.addcmul_(slope.sum(-1, keepdim=True), w, value=-tau)

    w = adam(start.view(gradient.shape), loss_gradient, steps, learning_rate).view(start.shape)
    return squared_distances(query, w).mul_(-tau / 2)

"""Baseline++: a cosine classifier trained on the support."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.adam import adam
from likelyshot.functional.checks import check_positive, prepare
from likelyshot.functional.scores import class_means, cosines, one_hot


@torch.no_grad()
def baseline_pp(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    tau: float = 15.0,
    steps: int = 100,
    learning_rate: float = 1e-3,
) -> Tensor:
    """Score by a cosine classifier trained on the support by cross entropy, tau cos(z, w_k).

    Paper: Chen et al. 2019, A closer look at few-shot classification.
    Starts at the class means of unit vectors, w_k = m_k (the original at random numbers); then Adam on all support
    samples at once. With u_k = w_k / ||w_k||, p = softmax(tau cos), G = (p - 1[y = k]) / s, the gradient is
    (tau / ||w_k||) (G Z - (sum_s G_ks cos(z_s, w_k)) u_k). A class whose mean is zero has no direction: it keeps the
    score 0.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        tau: Factor of the cosines, in the softmax and in the scores.
        steps: Number of steps of Adam, 100 in the paper; 0 is the cosine to the class mean.
        learning_rate: Step size of Adam. Ours: the paper trains by stochastic gradient descent.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.1]])
    >>> baseline_pp(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0])
    """
    check_positive("tau", tau, "try 15")
    rows, query = prepare(support, labels, query, n_ways, normalise=True)
    target = one_hot(labels, n_ways, rows.dtype).mT  # (..., k, s)

    def gradient(w: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        inverse = torch.where(length > 0, 1 / length, 0)  # (..., k, 1)
        unit = w * inverse
        cosine = unit @ rows.mT  # (..., k, s)
        slope = (torch.softmax(tau * cosine, -2) - target) / rows.shape[-2]
        along = (slope * cosine).sum(-1, keepdim=True)
        return (slope @ rows).addcmul_(along, unit, value=-1).mul_(tau * inverse)

    w = adam(class_means(rows, labels, n_ways), gradient, steps, learning_rate)
    return tau * cosines(query, w)

"""Transductive information maximisation."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from likelyshot.functional.checks import prepare
from likelyshot.functional.entropies import information_slope
from likelyshot.functional.prototype_descent import descend_prototypes


@torch.no_grad()
def tim(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    tau: float = 15.0,
    steps: int = 1000,
    learning_rate: float = 1e-4,
    normalise: bool = True,
) -> Tensor:
    """Score by prototypes that maximise the mutual information of queries and labels, kept right on the support.

    Paper: Boudiaf et al. 2020, Transductive information maximization for few-shot learning.
    Logits l_k(z) = -(tau/2) ||z - w_k||^2, p = softmax(l). From class means, Adam on w minimises
    CE(support) - H(mean_q p_q) + mean_q H(p_q), H the Shannon entropy: TIM-GD, the three weights 1 as in
    Veilleux et al. 2021 (the original weighs them 0.1, 1, 0.1). -H(mean_q p) draws the classes towards equal size.
    The scores are the logits after the last step.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        tau: Factor of the squared distances in the softmax, 15 in the paper.
        steps: Number of steps of Adam, 1000 in the paper; 0 is the nearest prototype.
        learning_rate: Step size of Adam, 1e-4 in the paper.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> tim(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 1])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    slope = functools.partial(information_slope, alpha=1.0)
    return descend_prototypes(support, labels, query, n_ways, slope, tau, steps, learning_rate)

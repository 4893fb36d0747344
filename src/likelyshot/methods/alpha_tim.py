"""Transductive information maximisation that does not presume balanced queries."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from likelyshot.functional.checks import check_positive, prepare
from likelyshot.functional.entropies import information_slope
from likelyshot.functional.prototype_descent import descend_prototypes


@torch.no_grad()
def alpha_tim(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    alpha: float | None = None,
    tau: float = 15.0,
    steps: int = 1000,
    learning_rate: float = 1e-4,
    normalise: bool = True,
) -> Tensor:
    """Score by prototypes that maximise the alpha-mutual information of queries and labels, kept right on the support.

    Paper: Veilleux et al. 2021, Realistic evaluation of transductive few-shot learning.
    `tim` with the Tsallis entropy H_alpha(p) = (1 - sum_k p_k^alpha) / (alpha - 1) of the queries: Adam on w minimises
    CE(support) - H_alpha(mean_q p_q) + mean_q H_alpha(p_q). The support's cross entropy stays Shannon's. Made for
    queries of unequal classes.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        alpha: Order of the entropy: the larger, the less the classes are drawn towards equal size; 1 is `tim`. None
            takes 2 below 5 shots (support rows / ways) and 7 from 5 on, as in the paper.
        tau: Factor of the squared distances in the softmax, 15 in the paper.
        steps: Number of steps of Adam, 1000 in the paper; 0 is the nearest prototype.
        learning_rate: Step size of Adam, 1e-4 in the paper.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> alpha_tim(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 1])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    if alpha is None:
        alpha = 2.0 if support.shape[-2] < 5 * n_ways else 7.0
    check_positive("alpha", alpha, "the paper uses 2 to 7, and 1 is tim")
    slope = functools.partial(information_slope, alpha=alpha)
    return descend_prototypes(support, labels, query, n_ways, slope, tau, steps, learning_rate)

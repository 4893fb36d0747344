"""Entropy minimisation on the queries."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import prepare
from likelyshot.functional.entropies import entropy_slope
from likelyshot.functional.prototype_descent import descend_prototypes


@torch.no_grad()
def entropy_min(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    tau: float = 15.0,
    steps: int = 25,
    learning_rate: float = 5e-5,
    normalise: bool = True,
) -> Tensor:
    """Score by entropy minimisation of the classifier only, whose prototypes make the queries' labels certain.

    Paper: Dhillon et al. 2020, A baseline for few-shot image classification.
    Logits l_k(z) = -(tau/2) ||z - w_k||^2, p = softmax(l). From class means, Adam on w minimises
    CE(support) + mean_q H(p_q), H the Shannon entropy. The original fine-tunes the whole encoder by this loss; here the
    features are given. The scores are the logits after the last step.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        tau: Factor of the squared distances in the softmax, as in Veilleux et al. 2021.
        steps: Number of steps of Adam, as in Veilleux et al. 2021; 0 is the nearest prototype.
        learning_rate: Step size of Adam, as in Veilleux et al. 2021.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> entropy_min(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 1])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    return descend_prototypes(support, labels, query, n_ways, entropy_slope, tau, steps, learning_rate)

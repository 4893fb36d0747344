"""Baseline: a linear classifier trained on the support."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.adam import adam
from likelyshot.functional.checks import check_positive, prepare
from likelyshot.functional.scores import class_means, one_hot


@torch.no_grad()
def baseline(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    tau: float = 10.0,
    steps: int = 100,
    learning_rate: float = 1e-3,
    normalise: bool = True,
) -> Tensor:
    """Score by a linear classifier trained on the support by cross entropy, tau (w_k.z + b_k).

    Paper: Chen et al. 2019, A closer look at few-shot classification.
    Starts at the class means, w_k = m_k and b_k = -||m_k||^2 / 2, where it is the nearest prototype; the original
    starts at random numbers. Then Adam on the whole support, w and b as one matrix on [z, 1].
    With p = softmax(scores), the gradient is tau mean_s (p_s - 1[y_s = k]) [z_s, 1].
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        tau: Factor of the scores, in the softmax too. Ours: the paper has none, since its features are not of unit
            length; on unit vectors the softmax would hardly tell classes apart.
        steps: Number of steps of Adam, 100 in the paper; 0 is the nearest prototype.
        learning_rate: Step size of Adam. Ours: the paper trains by stochastic gradient descent.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.1]])
    >>> baseline(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0])
    """
    check_positive("tau", tau, "10 suits features of unit length")
    support, query = prepare(support, labels, query, n_ways, normalise)
    means = class_means(support, labels, n_ways)  # (..., k, d)
    start = torch.cat([means, means.square().sum(-1, keepdim=True).mul_(-0.5)], -1)  # (..., k, d + 1)
    rows = torch.cat([support, torch.ones_like(support[..., :1])], -1)  # [z, 1], (..., s, d + 1)
    target = one_hot(labels, n_ways, support.dtype).mT  # (..., k, s)

    def gradient(w: Tensor) -> Tensor:
        return (torch.softmax(tau * (w @ rows.mT), -2) - target) * (tau / rows.shape[-2]) @ rows

    w = adam(start, gradient, steps, learning_rate)
    return (query @ w[..., :-1].mT + w[..., -1].unsqueeze(-2)) * tau

"""Nearest prototype by squared Euclidean distance."""

from __future__ import annotations

from torch import Tensor

from likelyshot.functional.checks import prepare
from likelyshot.functional.scores import class_means, squared_distances


def euclidean(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, normalise: bool = True) -> Tensor:
    """Score by the negative squared Euclidean distance to the prototype, -||f_q - m_k||^2.

    Paper: Snell et al. 2017, Prototypical networks for few-shot learning.
    Also Hess & Ditzler, eq. 7, which mixes two networks by a misprint.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> euclidean(support, torch.tensor([0, 1]), query, n_ways=2)
    tensor([[-0., -2.]])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    return -squared_distances(query, class_means(support, labels, n_ways))

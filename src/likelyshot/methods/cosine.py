"""Nearest prototype by cosine."""

from __future__ import annotations

from torch import Tensor

from likelyshot.functional.checks import prepare
from likelyshot.functional.scores import class_means, cosines


def cosine(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, normalise: bool = True) -> Tensor:
    """Score by the cosine between the query and the prototype, cos(f_q, m_k).

    Paper: Gidaris & Komodakis 2018, Dynamic few-shot visual learning without forgetting.
    Also Hess & Ditzler, eq. 8, which misprints squared norms.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        normalise: Scale every vector to unit length first, so that all examples weigh the same in their prototype. The
            length of a query never matters.

    >>> import torch
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> cosine(support, torch.tensor([0, 1]), query, n_ways=2)
    tensor([[1., 0.]])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    return cosines(query, class_means(support, labels, n_ways))

"""Prototypical networks: nearest class mean of raw features."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import check_finite, prepare
from likelyshot.functional.scores import class_means, squared_distances


def protonet(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int) -> Tensor:
    """Score by the negative squared distance to the prototype of raw features, -||f_q - m_k||^2.

    Paper: Snell et al. 2017, Prototypical networks for few-shot learning.
    `euclidean` is the same on L2-normalised features. Distances that overflow are clamped to the largest float;
    distances that underflow become 0, so the classes tie.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    >>> support, query = torch.tensor([[0.0, 1.0], [4.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    >>> protonet(support, torch.tensor([0, 1]), query, n_ways=2)
    tensor([[-1., -9.]])
    """
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    check_finite(support, query)
    distances = squared_distances(query, class_means(support, labels, n_ways))
    return -distances.clamp_max(torch.finfo(distances.dtype).max)

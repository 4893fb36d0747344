"""Class means of the support."""

from __future__ import annotations

import torch
from torch import Tensor


def one_hot(labels: Tensor, n_ways: int, dtype: torch.dtype) -> Tensor:
    """Mark the class of every sample, 1[y = k].

    Shapes: labels (..., s) -> (..., s, k).

    >>> one_hot(torch.tensor([1, 0]), 2, torch.float32)
    tensor([[0., 1.],
            [1., 0.]])
    """
    return (labels.unsqueeze(-1) == torch.arange(n_ways, device=labels.device)).to(dtype)


def class_means(support: Tensor, labels: Tensor, n_ways: int) -> Tensor:
    """Average the support of every class: the prototypes m_k (Snell et al. 2017, eq. 1).

    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d). A class without support gets zeros.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2)
    tensor([[2.],
            [5.]])
    """
    member = one_hot(labels, n_ways, support.dtype)  # (..., s, k)
    share = member / member.sum(-2, keepdim=True).clamp_min(1)
    return share.transpose(-1, -2) @ support

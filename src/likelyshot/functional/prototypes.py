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


def shrunk_means(support: Tensor, labels: Tensor, n_ways: int, shrinkage: float) -> Tensor:
    """Average the support of every class together with `shrinkage` examples that look like the average class.

    (n_k m_k + shrinkage m) / (n_k + shrinkage), with m the mean of the m_k. The mean of few examples is zero for some
    features that its class has, which puts it far from all queries: the fewer examples, the more so.
    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d).

    Args:
        shrinkage: Number of examples of the average class; 0 gives `class_means`.

    >>> shrunk_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2, shrinkage=1.0)
    tensor([[2.5000],
            [4.2500]])
    """
    means = class_means(support, labels, n_ways)
    if shrinkage == 0:
        return means
    shots = one_hot(labels, n_ways, support.dtype).sum(-2).unsqueeze(-1)  # (..., k, 1)
    common = means.sum(-2, keepdim=True) / (shots > 0).sum(-2, keepdim=True).clamp_min(1)
    return (shots * means + shrinkage * common) / (shots + shrinkage)

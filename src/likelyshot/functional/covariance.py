"""Spread of the base classes around their means."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.scores import l2_normalise


def within_class_covariance(vectors: Tensor, labels: Tensor) -> Tensor:
    """Average the covariance matrices of the classes, of CL2N features: minus the mean of all, then of unit length.

    Shapes: vectors (n, d), labels (n,) -> (d, d), in float64. Every class counts the same; one of a single sample
    says nothing of spread and is left out.

    >>> vectors = torch.tensor([[3.0, 0.0], [3.0, 1.0], [0.0, 3.0], [1.0, 3.0]])
    >>> within_class_covariance(vectors, torch.tensor([0, 0, 1, 1])).shape
    torch.Size([2, 2])
    """
    mean = vectors.mean(0, dtype=torch.float64)
    total, groups = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=vectors.device), 0
    for label in sorted(set(labels.tolist())):
        group = l2_normalise(vectors[labels == label].double() - mean)
        if len(group) > 1:
            spread = group - group.mean(0)
            total += spread.T @ spread / len(group)
            groups += 1
    return total / max(groups, 1)

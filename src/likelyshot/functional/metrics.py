"""How well a task was solved, from the predicted and the true classes of its queries."""

from __future__ import annotations

import torch
from torch import Tensor


def confusion_counts(predicted: Tensor, truth: Tensor, n_ways: int) -> Tensor:
    """Count the queries of every task by true and predicted class.

    Shapes: predicted (t, q), truth (t, q) -> (t, k, k), true class first.

    >>> confusion_counts(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), 2)
    tensor([[[1, 1],
             [0, 1]]])
    """
    pair = truth.long() * n_ways + predicted.long()
    counts = torch.zeros(len(pair), n_ways * n_ways, dtype=torch.int64, device=pair.device)
    counts.scatter_add_(1, pair, torch.ones_like(pair))
    return counts.view(-1, n_ways, n_ways)


def task_metrics(confusion: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute accuracy, balanced accuracy and macro-F1 of every task.

    Balanced accuracy is the mean recall of the classes that have queries; macro-F1 the mean F1 of the classes that
    have queries or predictions (both as in scikit-learn). Shapes: (t, k, k) -> three times (t,), float64.

    >>> accuracy, balanced, f1 = task_metrics(torch.tensor([[[1, 1], [0, 1]]]))
    >>> round(accuracy.item(), 3), round(balanced.item(), 3), round(f1.item(), 3)
    (0.667, 0.75, 0.667)
    """
    confusion = confusion.double()
    right = confusion.diagonal(dim1=-2, dim2=-1)  # (t, k)
    actual, guessed = confusion.sum(-1), confusion.sum(-2)
    recall = right / actual.clamp_min(1)
    f1 = 2 * right / (actual + guessed).clamp_min(1)
    present, seen = actual > 0, actual + guessed > 0
    return (
        right.sum(-1) / actual.sum(-1),
        recall.sum(-1) / present.sum(-1),
        f1.sum(-1) / seen.sum(-1),
    )

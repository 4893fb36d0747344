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


def class_confusion(confusion: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Add the counts of all tasks up by class: how often true class a was taken for b, and could have been.

    Shapes: confusion (t, k, k), classes (t, k) -> twice (c, c), true class first.

    Args:
        confusion: Counts of every task, by `confusion_counts`.
        classes: Which class each way of a task is, from 0 to n_classes - 1.
        n_classes: Number of classes c of the whole data set.

    >>> wrong, chances = class_confusion(torch.tensor([[[1, 1], [0, 1]]]), torch.tensor([[2, 0]]), 3)
    >>> int(wrong[2, 0]), int(chances[2, 0]), int(chances[0, 2])
    (1, 2, 1)
    """
    classes = classes.long()
    pair = (classes[:, :, None] * n_classes + classes[:, None]).reshape(-1)  # (t k k,)
    queries = confusion.sum(-1, keepdim=True).expand_as(confusion)
    taken, could = (
        torch.zeros(n_classes * n_classes, dtype=torch.int64).index_add_(0, pair, counts.reshape(-1).long())
        for counts in (confusion, queries)
    )
    return taken.view(n_classes, n_classes), could.view(n_classes, n_classes)


def decide(scores: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Give the best class of every query and its probability in softmax(scores / temperature).

    Shapes: (..., k) -> (...) int64 and (...).

    >>> decide(torch.tensor([[0.0, 0.0], [0.0, 9.0]]))
    (tensor([0, 1]), tensor([0.5000, 0.9999]))
    """
    best, predicted = scores.max(-1)
    return predicted, (scores - best.unsqueeze(-1)).div_(temperature).exp_().sum(-1).reciprocal_()


def reliability_counts(top: Tensor, right: Tensor, bins: int = 15) -> Tensor:
    """Count, over bins of the largest probability: the queries, its sum, and the right ones.

    Bins are of equal width, ((b - 1) / bins, b / bins]. Shapes: top (n,), right (n,) -> (3, bins), float64.

    >>> reliability_counts(torch.tensor([0.5, 0.9]), torch.tensor([False, True]), bins=2)
    tensor([[1.0000, 1.0000],
            [0.5000, 0.9000],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    place = (top * bins).ceil_().long().sub_(1).clamp_(0, bins - 1)
    count = torch.bincount(place, minlength=bins).double()
    return torch.stack([count, *(torch.bincount(place, x.double(), minlength=bins) for x in (top, right))])

"""ANIL: a few gradient steps on a linear classifier from a learned start."""

from __future__ import annotations

from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import Weights, check_count, head_weights, prepare
from likelyshot.functional.scores import one_hot


def anil(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    steps: int = 10,
    order: int = 2,
    normalise: bool = True,
) -> Tensor:
    """Score by a linear classifier after a few gradient steps on the support, at a learned rate.

    Paper: Raghu et al. 2020, Rapid learning or feature reuse? (ANIL: MAML of Finn et al. 2017 whose inner loop moves
    the classifier only.) From W = 0 and b = 0, `steps` times W <- W - rate / s (softmax(X W' + b) - Y)' X, b likewise.
    The derivatives are in closed form, so the gradient of training goes through every step. The original learns a start
    for every position of a class; here classes may come in any order, so they share one start (Ye & Chao 2022, How to
    train your MAML), and what all classes share cancels in the softmax. So the rate, and the encoder where it is
    trained too, are all that is learned. A head with `per_feature` has a rate for every feature (Meta-SGD, Li et al.
    2017).
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        steps: Number of gradient steps.
        order: Of the gradients of training; 1 takes those of the steps as constants.
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> anil(support, torch.tensor([0, 1]), query, n_ways=2, head=build("anil", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_count("steps", steps, "the paper uses 10 in tests")
    check_count("order", order, "it is 1 or 2", least=1)
    if order > 2:
        raise InputError(f"order must be 1 or 2, got {order}: the original has 2")
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("anil", head, support)
    targets = one_hot(labels, n_ways, support.dtype)
    size = w["log_rate"].clamp(-20, 20).exp() / max(support.shape[-2], 1)  # one, or one for each feature
    weights, bias = support.new_zeros(n_ways, support.shape[-1]), support.new_zeros(1, n_ways)
    for _ in range(steps):
        slope = (support @ weights.mT + bias).softmax(-1) - targets  # (..., s, k)
        if order == 1:
            slope = slope.detach()
        weights, bias = weights - size * (slope.mT @ support), bias - size.mean() * slope.sum(-2, keepdim=True)
    return query @ weights.mT + bias

"""Logistic regression on the labelled examples: what a user would do without this library."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.functional.checks import check_not_negative, prepare
from likelyshot.functional.logistic_regression import logistic_logits
from likelyshot.functional.scores import class_means, cosines, one_hot
from likelyshot.functional.span import support_coordinates

#: Values of C that the cross-validation tries, and the one that stands where no example can be held out.
STRENGTHS, FALLBACK = (1.0, 10.0, 100.0, 1000.0), 100.0
FOLDS = 5


@torch.no_grad()
def logistic(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    c: float = 0.0,
    normalise: bool = True,
) -> Tensor:
    """Score by the logits of scikit-learn's logistic regression on the support, C chosen by cross-validation.

    Paper: Cox 1958, The regression analysis of binary sequences; in few-shot learning Tian et al. 2020, Rethinking
    few-shot image classification. min sum_i CE(y_i, softmax(W f_i + b)) + ||W||^2 / (2 C) on unit vectors.
    Each task chooses C from 1, 10, 100, 1000 by the cross entropy of held-out examples, in 5 folds: the examples of a
    class, sorted by their cosine to the class mean, go to the folds in turn. A class of one example is never held out;
    with one shot C is 100. A class without support is one below the lowest other.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        c: The inverse C of the regularisation; 0 chooses it by cross-validation.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.1]])
    >>> logistic(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0])
    """
    check_not_negative("c", c, "0 chooses it by cross-validation")
    support, query = prepare(support, labels, query, n_ways, normalise)
    dtype, shots = query.dtype, support.shape[-2]
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2], labels.shape[:-1])
    support, query = (
        x.double().expand(*leading, *x.shape[-2:]).reshape(math.prod(leading), *x.shape[-2:]) for x in (support, query)
    )
    labels = labels.expand(*leading, shots).reshape(math.prod(leading), shots)
    x = support_coordinates(support, query)  # (t, s + q, s)
    targets = one_hot(labels, n_ways, torch.float64)
    folds = _folds(support, labels, n_ways)  # (t, s), -1 where an example is never held out
    several = shots > n_ways or bool((folds >= 0).any())  # more examples than classes: some class has two
    strengths = (c,) if c else STRENGTHS if several else (FALLBACK,)
    unknown = targets.new_zeros(len(x), query.shape[-2], n_ways)
    choices = [logistic_logits(x, torch.cat([targets, unknown], -2), 1 / value)[:, shots:] for value in strengths]
    if len(choices) == 1:
        logits = choices[0]
    else:
        losses = torch.stack([_held_out_loss(x[:, :shots], targets, folds, 1 / value) for value in strengths])
        best = torch.where((folds >= 0).any(-1), losses.argmin(0), strengths.index(FALLBACK))  # (t,)
        logits = torch.stack(choices)[best, torch.arange(len(x), device=x.device)]
    return logits.view(*leading, query.shape[-2], n_ways).to(dtype)


def _folds(support: Tensor, labels: Tensor, n_ways: int) -> Tensor:
    """Deal the examples of a class to folds, whatever their order, a single one to -1: (t, s, d), (t, s) -> (t, s)."""
    similarity = cosines(support, class_means(support, labels, n_ways)).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)  # (t, s, s)
    before = (same & (similarity.unsqueeze(-2) > similarity.unsqueeze(-1))).sum(-1)
    return torch.where(same.sum(-1) > 1, before % FOLDS, -1)


def _held_out_loss(x: Tensor, targets: Tensor, folds: Tensor, penalty: float) -> Tensor:
    """Sum the cross entropy of all examples, each by a fit without its fold: (t, s, m), (t, s, k), (t, s) -> (t,)."""
    loss = x.new_zeros(len(x))
    for fold in range(FOLDS):
        out = (folds == fold).unsqueeze(-1)
        if not machine.on_accelerator(x) and not bool(out.any()):
            continue
        logits = logistic_logits(x, targets * ~out, penalty)
        loss -= (out * targets * logits.log_softmax(-1)).sum((-2, -1))
    return loss

"""A support vector machine on the support."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import check_finite, check_positive, prepare
from likelyshot.functional.scores import one_hot
from likelyshot.functional.support_vectors import crammer_singer


def svm(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, c: float = 10.0, normalise: bool = True
) -> Tensor:
    """Score by the multi-class support vector machine of the support, f_q . w_k.

    Paper: Lee et al. 2019, Meta-learning with differentiable convex optimization (MetaOptNet-SVM); the machine is that
    of Crammer & Singer 2001. min 1/2 sum_k ||w_k||^2 + c sum_i max_k (1[k != y_i] + w_k . x_i - w_{y_i} . x_i), without
    intercept, solved to the end in double precision; gradients follow from its conditions of optimality. The released
    code adds the unit matrix to the inner products, which changes the optimum; we do not.
    A class without support is another wrong class.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        c: Weight of the hinge loss of every example. The paper's 0.1 is for vectors that are not normalised.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.8, 0.6]])
    >>> svm(support, torch.tensor([0, 1]), query, n_ways=2)
    tensor([[ 0.1000, -0.1000]])
    """
    check_positive("c", c, "10 suits unit vectors", most=1e4)
    support, query = prepare(support, labels, query, n_ways, normalise)
    check_finite(support, query)
    x, y = support.double(), one_hot(labels, n_ways, torch.float64)
    leading = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = x.expand(*leading, *x.shape[-2:]), y.expand(*leading, *y.shape[-2:])
    dual = crammer_singer(x @ x.mT, y, c)
    return (query.double() @ (x.mT @ dual)).to(query.dtype)

"""Distances that discount the directions in which examples of one class differ."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.gram import mean_weights


def discount_within(gram: Tensor, known: Tensor, prior: float) -> Tensor:
    """Give inner products in the metric (S / prior + I)^-1, S the scatter of the labelled samples within their classes.

    S = sum_i (z_i - m_{y_i})(z_i - m_{y_i})': the covariance of linear discriminant analysis, with `prior` as what a
    direction varies by before any example is seen. With C the projection of the labelled samples onto their
    deviations from class means, S = Z' C C Z and (S / prior + I)^-1 = I - Z' C (prior I + C Z Z' C)^-1 C Z: a system
    as large as the support, from inner products alone. With one example per class S is zero and nothing changes.
    Shapes: gram (..., n, n) with the s labelled samples first, known (..., k, s) -> (..., n, n).

    >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    >>> discount_within(z @ z.T, torch.tensor([[1.0, 1.0]]), prior=2.0)
    tensor([[ 0.5000, -0.5000,  0.5000],
            [-0.5000,  0.5000, -0.5000],
            [ 0.5000, -0.5000,  1.5000]])
    """
    s = known.shape[-1]
    deviation = -(known.mT @ mean_weights(known))  # C, (..., s, s)
    deviation.diagonal(dim1=-2, dim2=-1).add_(known.sum(-2))
    rows = deviation @ gram[..., :s, :]  # (..., s, n)
    inner = rows[..., :s] @ deviation
    inner.diagonal(dim1=-2, dim2=-1).add_(prior)
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), rows, upper=False)
    discounted: Tensor = gram - whitened.mT @ whitened
    return discounted

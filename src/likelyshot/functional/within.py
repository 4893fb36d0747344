"""Distances that discount the directions in which examples of one class differ."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.gram import mean_weights


def discounted_directions(y: Tensor, known: Tensor, prior: float) -> Tensor:
    """Give W with (S / prior + I)^-1 = I - W'W, S the scatter of labelled samples within their classes.

    S = sum_i (y_i - m_{c_i})(y_i - m_{c_i})': the covariance of linear discriminant analysis, with `prior` as what a
    direction varies by before any example is seen. With the rows of Z the deviations from the class means, S = Z'Z and
    (Z'Z / prior + I)^-1 = I - Z'(prior I + Z Z')^-1 Z: a system as large as the labelled samples are many.
    With one example per class S and W are zero and nothing changes.
    Shapes: y (..., s, d), known (..., k, s) -> (..., m, d), m the smaller of s and d.

    >>> y = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> w = discounted_directions(y, torch.tensor([[1.0, 1.0]]), prior=2.0)
    >>> torch.eye(2) - w.T @ w
    tensor([[0.5000, 0.0000],
            [0.0000, 1.0000]])
    """
    deviations = y - known.mT @ (mean_weights(known) @ y)
    if deviations.shape[-2] > deviations.shape[-1]:
        deviations = torch.linalg.qr(deviations).R
    inner = deviations @ deviations.mT
    inner.diagonal(dim1=-2, dim2=-1).add_(prior)
    directions: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), deviations, upper=False)
    return directions

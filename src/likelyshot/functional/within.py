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
    return _whiten(deviations, inner)


def discounted_products(gram: Tensor, known: Tensor, prior: float) -> Tensor:
    """Give inner products in the metric (S / prior + I)^-1 of `discounted_directions`, from the plain ones.

    Those of deviations with samples, and of deviations with each other, follow from those of the samples.
    Shapes: gram (..., n, n), known (..., k, s) with the s labelled samples first -> (..., n, n).

    >>> y = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 1.0]])
    >>> discounted_products(y @ y.T, torch.tensor([[1.0, 1.0]]), prior=2.0)
    tensor([[ 0.5000, -0.5000,  1.0000],
            [-0.5000,  0.5000, -1.0000],
            [ 1.0000, -1.0000,  3.0000]])
    """
    s, means = known.shape[-1], mean_weights(known)
    deviations = gram[..., :s, :] - known.mT @ (means @ gram[..., :s, :])  # (..., s, n): Z y'
    inner = deviations[..., :s] - (deviations[..., :s] @ means.mT) @ known  # (..., s, s): Z Z'
    inner.diagonal(dim1=-2, dim2=-1).add_(prior)
    shadow = _whiten(deviations, inner)
    return gram - shadow.mT @ shadow


def _whiten(x: Tensor, inner: Tensor) -> Tensor:
    """Give L^-1 x with L L' = inner, which is positive definite: no need to ask the device whether it was."""
    white: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(inner).L, x, upper=False)
    return white

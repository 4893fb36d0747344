"""Coordinates in the span of the labelled examples."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot import machine

#: What is added to the diagonal of inner products, as a share of their trace: far above rounding, far below all else.
JITTER = 1e-12


def support_coordinates(support: Tensor, query: Tensor) -> Tensor:
    """Give the coordinates of all samples along orthonormal axes of the support's span, around the support's mean.

    A linear classifier with a free intercept that is fitted to the support, with a penalty on the length of its
    weights, lies in this span: s axes do for any number of features. Axes without support are zero.
    Shapes: support (..., s, d), query (..., q, d) -> (..., s + q, s).

    >>> support = torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
    >>> support_coordinates(support, torch.tensor([[3.0, 5.0, 7.0]], dtype=torch.float64)).abs().round(decimals=6)
    tensor([[0., 1.],
            [0., 1.],
            [0., 2.]], dtype=torch.float64)
    """
    centre = support.mean(-2, keepdim=True)
    support, query = support - centre, query - centre
    gram = support @ support.mT
    if machine.on_accelerator(gram):
        lower = gram_factor(gram)
        solved: Tensor = torch.linalg.solve_triangular(
            lower.mT, torch.cat([gram, query @ support.mT], -2), upper=True, left=False
        )
        return solved
    squares, axes = torch.linalg.eigh(gram)
    rounding = squares.shape[-1] * torch.finfo(squares.dtype).eps * squares[..., -1:]
    scale = torch.where(squares > rounding.clamp_min(torch.finfo(squares.dtype).tiny), squares, torch.inf).rsqrt()
    basis = axes * scale.unsqueeze(-2)
    coordinates: Tensor = torch.cat([gram, query @ support.mT], -2) @ basis
    return coordinates


def gram_factor(gram: Tensor) -> Tensor:
    """Give L with L L' = inner products, by which the host does not wait; directions without samples are nearly zero.

    Shapes: gram (..., n, n) in float64 -> (..., n, n), lower triangular.

    >>> x = torch.tensor([[3.0, 4.0], [3.0, 4.0]], dtype=torch.float64)
    >>> gram_factor(x @ x.T).round(decimals=3)
    tensor([[5., 0.],
            [5., 0.]], dtype=torch.float64)
    """
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True).unsqueeze(-1)
    added = (JITTER * trace).clamp_min(torch.finfo(gram.dtype).tiny)
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    lower: Tensor = torch.linalg.cholesky_ex(gram + added * eye).L
    return lower

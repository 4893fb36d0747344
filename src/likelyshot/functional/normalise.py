"""Normalisations of feature vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError

NOT_FINITE = (
    "expected finite features, but got NaN or infinity: check the encoder or the file that they come from "
    "(while training, a lower learning rate helps)"
)


def l2_normalise(x: Tensor) -> Tensor:
    """Scale every vector to unit Euclidean length, x / ||x||_2; a zero vector stays zero.

    Shapes: (..., d) -> (..., d). Where squares could overflow or vanish, divides by the largest entry first. NaN
    and infinity are refused.

    >>> l2_normalise(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if length.numel() and float(length.detach().amin()) > 1e-15 and float(length.detach().amax()) < 1e15:
        return x / length
    if not bool(x.detach().isfinite().all()):
        raise InputError(NOT_FINITE)
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.detach().abs().amax(-1, keepdim=True).clamp_min(tiny)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / length.clamp_min(tiny)


def rectify(x: Tensor) -> Tensor:
    """Split signed features losslessly into non-negative ones, [relu(x), relu(-x)].

    Shapes: (..., d) -> (..., 2d).

    >>> rectify(torch.tensor([1.0, -2.0]))
    tensor([1., 0., 0., 2.])
    """
    return torch.cat([x.clamp_min(0), (-x).clamp_min(0)], dim=-1)

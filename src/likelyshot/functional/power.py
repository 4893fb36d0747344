"""The power transform of non-negative features, and unit vectors around a mean."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import check_positive
from likelyshot.functional.scores import l2_normalise

OFFSET = 1e-6  # keeps the slope at zero finite


def power_transform(x: Tensor, power: float) -> Tensor:
    """Make skewed features more like a Gaussian, (x + 1e-6)^power, and scale every vector to unit length.

    Shapes: x (..., d) -> (..., d), non-negative.

    Args:
        power: Exponent, above 0 and at most 1.

    >>> power_transform(torch.tensor([[9.0, 16.0]]), 0.5)
    tensor([[0.6000, 0.8000]])
    """
    check_positive("power", power, "the paper uses 0.5", most=1)
    return l2_normalise((x + OFFSET).pow_(power))


def centre_units(x: Tensor) -> Tensor:
    """Subtract the mean of unit vectors and scale what is left to unit length; what is only rounding becomes zero.

    Shapes: x (..., n, d) -> (..., n, d).

    >>> centre_units(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([[ 0.7071, -0.7071],
            [-0.7071,  0.7071]])
    >>> centre_units(torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.6, 0.8]]))
    tensor([[0., 0.],
            [0., 0.],
            [0., 0.]])
    """
    x = x - x.mean(-2, keepdim=True)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x.mul_(torch.where(length > 1000 * torch.finfo(x.dtype).eps, 1 / length, 0))

"""Linear regression of many small tasks at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def ridge_weights(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Minimise ||x W - y||^2 + penalty ||W||^2 over W, by whichever of the two normal equations is the smaller.

    Shapes: x (..., s, d), y (..., s, k) -> (..., d, k).

    Args:
        penalty: Above 0.

    >>> ridge_weights(torch.eye(2), torch.tensor([[2.0], [4.0]]), penalty=1.0)
    tensor([[1.],
            [2.]])
    """
    rows, dim = x.shape[-2:]
    y = y.expand(*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), *y.shape[-2:])
    unit = penalty * torch.eye(min(rows, dim), dtype=x.dtype, device=x.device)
    if rows <= dim:
        weights: Tensor = x.mT @ torch.linalg.solve_ex(x @ x.mT + unit, y).result
    else:
        weights = torch.linalg.solve_ex(x.mT @ x + unit, x.mT @ y).result
    return weights

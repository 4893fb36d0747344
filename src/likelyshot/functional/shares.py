"""Class shares of the queries: uniform, given, or estimated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import shown


def class_shares(marginals: str | Tensor | Sequence[float], n_ways: int) -> Tensor:
    """Give the class shares to start from: the given numbers scaled to sum 1, else uniform.

    Shapes: marginals "uniform", "estimated", (k,) or (..., k) -> (k,) or (..., k), in double precision.

    Args:
        marginals: "uniform", "estimated" (which start alike), or a non-negative number per class.

    >>> class_shares(torch.tensor([1.0, 3.0]), 2), class_shares("estimated", 2)
    (tensor([0.2500, 0.7500], dtype=torch.float64), tensor([0.5000, 0.5000], dtype=torch.float64))
    """
    if isinstance(marginals, str) and marginals in ("uniform", "estimated"):
        return torch.full((n_ways,), 1 / n_ways, dtype=torch.float64)
    try:
        shares = torch.as_tensor(marginals, dtype=torch.float64)
        fits = shares.ndim > 0 and shares.shape[-1] == n_ways
    except (TypeError, ValueError, RuntimeError, OverflowError):
        fits = False
    if not fits:
        raise InputError(
            f"marginals must be 'uniform', 'estimated' or {n_ways} numbers, one per class, got {shown(marginals)}: "
            "if you do not know the shares, use 'estimated'"
        )
    largest = shares.amax(-1, keepdim=True)
    if not (shares.isfinite().all() and (shares >= 0).all() and (largest > 0).all()):
        raise InputError(
            f"marginals must be finite, not negative and not all zero, got {shown(shares.tolist())}: give the share "
            "of the queries that you expect of each class"
        )
    shares = shares / largest
    return shares / shares.sum(-1, keepdim=True)


def estimate_shares(p: Tensor) -> Tensor:
    """Estimate class shares from soft assignments, (1 + sum_q p_kq) / (k + q).

    The maximum a posteriori under a Dirichlet(2, ..., 2) prior: one imaginary query per class, so none is ruled out.
    Shapes: p (..., k, q) -> (..., k).

    >>> estimate_shares(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    return (1 + p.sum(-1)) / (p.shape[-1] + p.shape[-2])

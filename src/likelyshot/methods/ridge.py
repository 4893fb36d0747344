"""Ridge regression from the support to its labels, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import check_finite, check_positive, prepare
from likelyshot.functional.least_squares import ridge_weights
from likelyshot.functional.scores import one_hot


def ridge(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, lam: float = 0.5, normalise: bool = True
) -> Tensor:
    """Score by a ridge regression from the support to its one-hot labels, f_q . W_k.

    Paper: Bertinetto et al. 2019, Meta-learning with differentiable closed-form solvers; MetaOptNet-RR of Lee et al.
    2019, Meta-learning with differentiable convex optimization.
    W = X' (X X' + lam I)^-1 Y with the support X and its one-hot labels Y, no intercept; where there are more samples
    than features, (X' X + lam I)^-1 X' Y, which is the same. Solved in double precision. Gradients go through the
    solution, so an encoder can be trained with it. A class without support has W_k = 0.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        lam: Weight of the penalty ||W||^2. The papers' 50 is for vectors that are not normalised.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.8, 0.6]])
    >>> ridge(support, torch.tensor([0, 1]), query, n_ways=2, lam=1.0)
    tensor([[0.4000, 0.3000]])
    """
    check_positive("lam", lam, "0.1 to 1 suit unit vectors")
    support, query = prepare(support, labels, query, n_ways, normalise)
    check_finite(support, query)
    x, y = support.double(), one_hot(labels, n_ways, torch.float64)
    weights = ridge_weights(x, y, lam)
    return (query.double() @ weights).to(query.dtype)

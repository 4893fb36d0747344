"""The maximum log-likelihood metric."""

from __future__ import annotations

from torch import Tensor

from likelyshot.functional.checks import check_lambda_max, check_non_negative, check_shrinkage, prepare
from likelyshot.functional.scores import exponential_log_likelihood, exponential_rates, rate_bound, shrunk_means


def mll(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    lambda_max: float | None = None,
    normalise: bool = True,
    shrinkage: float = 0.0,
) -> Tensor:
    """Score by the log-likelihood of independent exponential features, sum_i log lambda_ki - lambda_k . f_q.

    Paper: Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Equations 3-6 and Algorithm 1, lines 7-9: lambda_k = 1 / m_k, clipped at lambda_max.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), all non-negative -> (..., q, k).

    Args:
        lambda_max: Upper bound of the rates 1 / m_k. Without it, a feature that is zero in all examples of a class
            would rule that class out. None: the paper's 40, or 1.5 / the mean of all features if that is more.
        normalise: Scale every vector to unit length first.
        shrinkage: Number of imaginary examples that look like the average class and join every class. Helps where
            shots are few or differ between classes. The paper has none.

    >>> import torch
    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.0]])
    >>> mll(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0])
    """
    check_lambda_max(lambda_max)
    check_shrinkage(shrinkage)
    check_non_negative("mll", support, query)
    support, query = prepare(support, labels, query, n_ways, normalise)
    prototypes = shrunk_means(support, labels, n_ways, shrinkage)  # (..., k, d)
    return exponential_log_likelihood(query, exponential_rates(prototypes, rate_bound(prototypes, lambda_max)))

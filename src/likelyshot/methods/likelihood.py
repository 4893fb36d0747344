"""The likelihoods of every class and the logistic regression of the mixture, from the support alone."""

from __future__ import annotations

from torch import Tensor

from likelyshot.functional.checks import check_non_negative
from likelyshot.methods.likelihood_mixture import fit_mixture


def likelihood(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    base_within: Tensor | None = None,
    normalise: bool = True,
) -> Tensor:
    """Score by the posterior of an exponential and a Gaussian likelihood and a regression, all of the support alone.

    Paper: this library, after Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Round 0 of `likelihood_mixture` with equal class shares and all its statistics of the support, so that no query
    depends on another; w is the mean distance of the support to the classes that are not its own.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_within (d, d), non-negative -> (..., q, k).

    Args:
        base_within: Covariance within base classes (d, d), `likelyshot.Base.of(features).within`, if it is known.
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> likelihood(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 1, 0])
    """
    check_non_negative("likelihood", support, query)
    fit = fit_mixture(support, labels, query, n_ways=n_ways, base_within=base_within, iterations=0, normalise=normalise)
    return fit.scores(query)

"""The likelihood mixture on several networks at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_non_negative, prepare
from likelyshot.methods.likelihood_mixture import likelihood_mixture


def combined_transductive(
    support: Tensor | Sequence[Tensor],
    labels: Tensor,
    query: Tensor | Sequence[Tensor],
    *,
    n_ways: int,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
) -> Tensor:
    """Score by the likelihood mixture of several networks, whose classes share one posterior.

    Paper: this library, after Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    The unit vectors of all networks stand side by side. So inner products and squared distances are averaged over
    networks, the exponential log-likelihoods are added up, and every query has one responsibility for all networks.
    Shapes: support (..., s, d) or one such per network, labels (..., s), query likewise, non-negative -> (..., q, k).

    Args:
        marginals: Class shares of the queries, as in `likelihood_mixture`.
        iterations: Number of rounds after the first.
        normalise: Scale every vector of every network to unit length first.

    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> labels = torch.tensor([0, 1])
    >>> combined_transductive([support, support], labels, [query, query], n_ways=2).argmax(-1)
    tensor([0, 1, 0])
    """
    supports = [support] if isinstance(support, Tensor) else list(support)
    queries = [query] if isinstance(query, Tensor) else list(query)
    if len(supports) != len(queries):
        raise InputError(
            f"expected support and query of the same networks, got {len(supports)} and {len(queries)}: give both"
        )
    check_non_negative("combined_transductive", *supports, *queries)
    pairs = [prepare(s, labels, q, n_ways, normalise) for s, q in zip(supports, queries, strict=True)]
    return likelihood_mixture(
        torch.cat([s for s, _ in pairs], -1),
        labels,
        torch.cat([q for _, q in pairs], -1),
        n_ways=n_ways,
        marginals=marginals,
        iterations=iterations,
        normalise=normalise,
    )

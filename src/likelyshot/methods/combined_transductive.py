"""The likelihood mixture on several networks at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_count, check_non_negative, check_shape, prepare
from likelyshot.methods.likelihood_mixture import Constants, fit_mixture


def combined_transductive(
    support: Tensor | Sequence[Tensor],
    labels: Tensor,
    query: Tensor | Sequence[Tensor],
    *,
    n_ways: int,
    base_within: Tensor | None = None,
    network_weights: Tensor | None = None,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
) -> Tensor:
    """Score by the likelihood mixture of several networks, whose classes share one posterior.

    Paper: this library, after Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    The unit vectors of all networks stand side by side. So inner products and squared distances are averaged over
    networks, the exponential log-likelihoods are added up, and every query has one responsibility for all networks.
    Shapes: support (..., s, d) or one such per network, labels (..., s), query likewise, non-negative, base_within
    (D, D) with D the features of all networks, network_weights (networks,) -> (..., q, k).

    Args:
        base_within: Covariances within base classes of all networks, as the blocks of one matrix, if they are known.
            Each block counts as much as that of `likelihood_mixture`, 100 S / trace S.
        network_weights: How much the squared distances of every network count, not negative; all the same by default.
            A network of weight 0 is left out.
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
    check_count("iterations", iterations, "7 are enough, 0 are for single queries")
    check_non_negative("combined_transductive", *supports, *queries)
    pairs = [prepare(s, labels, q, n_ways, normalise) for s, q in zip(supports, queries, strict=True)]
    weights = _shares(network_weights, len(pairs))
    scaled = [(s * weight**0.5, q * weight**0.5) for (s, q), weight in zip(pairs, weights, strict=True) if weight > 0]
    if base_within is not None:
        dims = tuple(s.shape[-1] for s, _ in pairs)
        check_shape("base_within", base_within, (sum(dims), sum(dims)), "give those of all networks as blocks")
        base_within = _unit_blocks(base_within, base_within._version, dims, tuple(weights))
    queries_side_by_side = torch.cat([q for _, q in scaled], -1)
    fit = fit_mixture(
        torch.cat([s for s, _ in scaled], -1),
        labels,
        queries_side_by_side,
        n_ways=n_ways,
        base_within=base_within,
        marginals=marginals,
        iterations=iterations,
        normalise=normalise,
        constants=Constants(base_scatter=len(scaled) * Constants().base_scatter),
    )
    return fit.scores(queries_side_by_side)


def _shares(network_weights: Tensor | None, networks: int) -> list[float]:
    """Scale the weights of the networks to sum to 1."""
    weights = torch.ones(networks) if network_weights is None else torch.as_tensor(network_weights).detach().double()
    check_shape("network_weights", weights, (networks,), "give a number per network")
    values: list[float] = weights.tolist()
    total = sum(values)
    if not (0 < total < float("inf") and min(values) >= 0):
        raise InputError(
            f"network_weights must be finite, not negative and not all zero, got {values}: give a number per network"
        )
    return [value / total for value in values]


@functools.lru_cache(maxsize=2)
def _unit_blocks(base_within: Tensor, version: int, dims: tuple[int, ...], weights: tuple[float, ...]) -> Tensor:
    """Scale every block on the diagonal to trace 1, and leave out those of networks without weight.

    `version` is that of the tensor, which may change in place. The same tensor for every chunk is decomposed once.
    """
    edges = itertools.accumulate(dims, initial=0)
    blocks = [base_within[start:end, start:end].double() for start, end in itertools.pairwise(edges)]
    scaled = [
        block / block.diagonal().sum().clamp_min(1e-30)
        for block, weight in zip(blocks, weights, strict=True)
        if weight > 0
    ]
    blocks_of_one: Tensor = torch.block_diag(*scaled)  # type: ignore[no-untyped-call]
    return blocks_of_one

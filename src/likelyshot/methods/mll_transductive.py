"""Transductive maximum log-likelihood, for imbalanced query sets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.functional.checks import (
    check_count,
    check_fraction,
    check_lambda_max,
    check_non_negative,
    check_shrinkage,
    prepare,
)
from likelyshot.functional.scores import exponential_log_likelihood, exponential_rates, rate_bound, shrunk_means


@torch.no_grad()
def mll_transductive(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    lambda_max: float | None = None,
    iterations: int = 10,
    eta: float = 0.5,
    normalise: bool = True,
    shrinkage: float = 0.0,
) -> Tensor:
    """Score by MLL with prototypes that follow the queries, each feature weighted by its cumulative probability.

    Paper: Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Algorithm 2. Repeated: y_q = argmax of the scores; Phi_q = 1 - exp(-lambda_{y_q} f_q);
    g_k = mean over y_q = k of Phi_q f_q; m_k <- (1 - eta) m_k + eta g_k; lambda_k = 1 / m_k clipped at lambda_max.
    A class without a query keeps its prototype. Of tied classes the first takes the query. The scores are those of the
    last prototypes.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), all non-negative -> (..., q, k).

    Args:
        lambda_max: Upper bound of the rates 1 / m_k, as in `mll`; None: by the prototypes before the first update.
        iterations: Number of updates of the prototypes, 10 in the paper; 0 is `mll`.
        eta: How far an update moves a prototype towards its queries, from 0 to 1; 0.5 in the paper.
        normalise: Scale every vector to unit length first.
        shrinkage: As in `mll`; it acts on the prototypes before the first update.

    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> mll_transductive(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 1])
    """
    check_parameters(lambda_max, iterations, eta, shrinkage)
    check_non_negative("mll_transductive", support, query)
    support, query = prepare(support, labels, query, n_ways, normalise)
    prototypes = shrunk_means(support, labels, n_ways, shrinkage)  # (..., k, d)
    bound = rate_bound(prototypes, lambda_max)
    rates = exponential_rates(prototypes, bound)
    scores = exponential_log_likelihood(query, rates)
    buffer = query.new_empty(*scores.shape[:-1], query.shape[-1])
    for _ in range(iterations):
        prototypes = moved(prototypes, *class_sums(query, rates, scores.argmax(-1), buffer), eta)
        rates = exponential_rates(prototypes, bound)
        scores = exponential_log_likelihood(query, rates)
    return scores


def check_parameters(lambda_max: float | None, iterations: int, eta: float, shrinkage: float) -> None:
    """Refuse parameters that have no meaning."""
    check_lambda_max(lambda_max)
    check_shrinkage(shrinkage)
    check_fraction("eta", eta, "the paper uses 0.5")
    check_count("iterations", iterations, "the paper uses 10")


def class_sums(query: Tensor, rates: Tensor, assigned: Tensor, weighted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum Phi_q f_q over the queries that are assigned to each class, and count these queries.

    The sums of several blocks of queries add up to those of all. `weighted` (..., q, d) is a buffer to reuse: a fresh
    one page-faults in every round.
    Shapes: query (..., q, d), rates (..., k, d), assigned (..., q) -> (..., k, d) and (..., k, 1).
    """
    leading, (ways, dim) = assigned.shape[:-1], rates.shape[-2:]
    weighted = query.new_empty(*assigned.shape, dim) if weighted is None else weighted
    first = torch.arange(0, ways * leading.numel(), ways, device=query.device)  # row of a task's class 0
    row = (first.view(*leading, 1) + assigned).view(-1)  # of its class among all classes of all tasks
    exponents = (rates * -math.log2(math.e)).expand(*leading, -1, -1).reshape(-1, dim)  # exp2 costs half of exp
    torch.index_select(exponents, 0, row, out=weighted.view(-1, dim))
    weighted.mul_(query).exp2_()  # 1 - Phi_q = exp(-lambda_{y_q} f_q)
    torch.addcmul(query, query, weighted, value=-1, out=weighted)  # Phi_q f_q
    if machine.on_accelerator(query):  # which would add in any order, and wait to count
        member = assigned.unsqueeze(-2) == torch.arange(ways, device=query.device).unsqueeze(-1)  # (..., k, q)
        return member.to(query.dtype) @ weighted, member.sum(-1, keepdim=True)
    total = torch.zeros_like(exponents).index_add_(0, row, weighted.view(-1, dim))  # half the time of a product
    count = row.bincount(minlength=leading.numel() * ways)
    return total.view(*leading, ways, dim), count.view(*leading, ways, 1)


def moved(prototypes: Tensor, total: Tensor, count: Tensor, eta: float) -> Tensor:
    """Move prototypes (..., k, d) by the fraction `eta` to the means of their queries, from what `class_sums` gives."""
    return torch.lerp(prototypes, total / count.clamp_min(1), eta * (count > 0).to(prototypes.dtype))

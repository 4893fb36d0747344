"""Transductive maximum log-likelihood, for imbalanced query sets."""

from __future__ import annotations

import math

import numpy as np
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
from likelyshot.functional.compiled_sums import compiled_sums
from likelyshot.functional.scores import exponential_log_likelihood, exponential_rates, rate_bound, shrunk_means

#: Bytes of the queries that are weighted at a time: five passes over them stay in the cache of a core, of 1 MB or more.
BLOCK_BYTES = 2**19
#: exp(x) = 2^(LOG2_E x): torch takes half the time for it on processors without AVX-512.
LOG2_E = math.log2(math.e)


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
    if iterations:
        sums = ClassSums(query.expand(*np.broadcast_shapes(query.shape[:-2], rates.shape[:-2]), -1, -1), n_ways)
    for _ in range(iterations):
        prototypes = moved(prototypes, *sums(rates), eta)
        rates = exponential_rates(prototypes, bound)
    return exponential_log_likelihood(query, rates)


def check_parameters(lambda_max: float | None, iterations: int, eta: float, shrinkage: float) -> None:
    """Refuse parameters that have no meaning."""
    check_lambda_max(lambda_max)
    check_shrinkage(shrinkage)
    check_fraction("eta", eta, "the paper uses 0.5")
    check_count("iterations", iterations, "the paper uses 10")


class ClassSums:
    """Sum Phi_q f_q over the queries that are assigned to each class, and count these queries, for rates of any round.

    Each query is assigned to its likeliest class, the first of tied ones. The sums of several blocks of queries add up
    to those of all. The blocks, and the memory for what is computed of them, serve all rounds. On a CPU, and if numba
    is installed, one compiled loop sums float32 queries in half the time.
    Shapes: query (..., q, d), rates (..., k, d) -> (..., k, d) and (..., k, 1).
    """

    def __init__(self, query: Tensor, n_ways: int) -> None:
        self._leading, (queries, dim) = query.shape[:-2], query.shape[-2:]
        tasks = self._leading.numel()
        self._query = query.reshape(tasks, queries, dim)
        self._total = query.new_empty(tasks, n_ways, dim)
        self._loop = compiled_sums() if query.is_cpu and query.dtype == torch.float32 else None
        if self._loop is not None:
            self._query, self._count = self._query.contiguous(), query.new_empty(tasks, n_ways)
            return
        self._way = torch.arange(n_ways, device=query.device).unsqueeze(-1)
        self._first = n_ways * torch.arange(tasks, device=query.device).unsqueeze(-1)  # row of a task's class 0
        self._row = self._first.repeat(1, queries)  # (t, q), of its class among the classes of all tasks
        self._member = query.new_empty(tasks, n_ways, queries)
        self._exponents = query.new_empty(tasks, n_ways, dim)
        least = max(1, BLOCK_BYTES // max(1, queries * dim * query.element_size()))
        size = max(1, tasks if machine.on_accelerator(query) else min(tasks, least))  # of a block, in tasks
        weighted = query.new_empty(size, queries, dim)
        parts = (torch.split(x, size) for x in (self._query, self._row, self._member, self._total))
        self._blocks = [
            (block, row.view(-1), member, total, weighted[: len(block)], weighted[: len(block)].view(-1, dim))
            for block, row, member, total in zip(*parts, strict=True)
        ]

    def __call__(self, rates: Tensor) -> tuple[Tensor, Tensor]:
        """Give the sums, which the next call overwrites, and the counts."""
        rates = rates.expand(*self._leading, -1, -1).reshape(self._total.shape)
        constant = torch.log(rates, out=self._total).sum(-1, keepdim=True)
        if self._loop is not None:
            arrays = (self._query, rates.contiguous(), constant.squeeze(-1), self._total, self._count)
            self._loop(*(x.numpy() for x in arrays))
            return self._summed(self._count.clone())
        scores = torch.baddbmm(constant, rates, self._query.mT, alpha=-1)  # (t, k, q)
        assigned = scores.max(-2).indices  # of this layout, argmax takes ten times as long
        torch.add(assigned, self._first, out=self._row)
        self._member.copy_(assigned.unsqueeze(-2) == self._way)
        exponents = torch.mul(rates, -LOG2_E, out=self._exponents).view(-1, rates.shape[-1])
        for query, row, member, total, weighted, flat in self._blocks:
            torch.index_select(exponents, 0, row, out=flat)
            weighted.mul_(query).exp2_()  # 1 - Phi_q = exp(-lambda_{y_q} f_q)
            torch.addcmul(query, query, weighted, value=-1, out=weighted)  # Phi_q f_q
            torch.bmm(member, weighted, out=total)
        return self._summed(self._member.sum(-1))

    def _summed(self, count: Tensor) -> tuple[Tensor, Tensor]:
        return self._total.view(*self._leading, *self._total.shape[1:]), count.view(*self._leading, -1, 1)


def moved(prototypes: Tensor, total: Tensor, count: Tensor, eta: float) -> Tensor:
    """Move prototypes (..., k, d) by the fraction `eta` to the means of their queries, made from sums in place."""
    return torch.lerp(prototypes, total.div_(count.clamp_min(1)), count.clamp_max(1).mul_(eta))

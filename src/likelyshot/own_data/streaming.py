"""Transductive MLL over piles of any size: passes over chunks of rows, of which only sums per class are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.normalise import l2_normalise, rectify
from likelyshot.functional.prototypes import shrunk_means
from likelyshot.functional.scores import exponential_log_likelihood, exponential_rates
from likelyshot.machine import CACHE_BYTES, Progress, ordered_map
from likelyshot.methods.inputs import check_lambda_max, check_non_negative, check_shrinkage

Passes = Callable[[], Iterable[NDArray[Any]]]


def block_rows(dim: int) -> int:
    """Count the rows of `dim` numbers that stay in cache: larger temporaries cost several times as much."""
    return max(1, CACHE_BYTES // (4 * dim))


def vector_chunks(
    vectors: NDArray[Any], size: int | None = None, usable: NDArray[np.bool_] | None = None
) -> Iterator[NDArray[Any]]:
    """Cut (n, d) vectors, which may be a memory map, into chunks of `size` rows, only the `usable` (n,) among them.

    >>> [chunk.tolist() for chunk in vector_chunks(np.arange(3).reshape(3, 1), 2)]
    [[[0], [1]], [[2]]]
    """
    size = size or block_rows(vectors.shape[1])
    for start in range(0, len(vectors), size):
        chunk, keep = vectors[start : start + size], None if usable is None else usable[start : start + size]
        yield chunk if keep is None or keep.all() else chunk[keep]


def as_tensor(chunk: NDArray[Any], rectified: bool = False) -> Tensor:
    """Copy a chunk of half, single or double precision into memory, in float32 at least, rectified if asked.

    >>> as_tensor(np.array([[1, -2]], dtype=np.float16), rectified=True)
    tensor([[1., 0., 0., 2.]])
    """
    tensor = torch.from_numpy(np.array(chunk, dtype=np.promote_types(chunk.dtype, np.float32)))
    return rectify(tensor) if rectified else tensor


@torch.no_grad()
def transductive_prototypes(
    support: Tensor,
    labels: Tensor,
    passes: Passes,
    *,
    n_ways: int,
    lambda_max: float = 40.0,
    iterations: int = 10,
    eta: float = 0.5,
    normalise: bool = True,
    shrinkage: float = 0.0,
    rectified: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Move the class means of the support towards the pile as `mll_transductive` does, one pass an iteration.

    Every call of `passes` gives the same chunks (any, d) again; `rectified` splits them as the support is already.
    The pile is summed in blocks of a fixed number of rows, in double precision between blocks, so that neither the
    size of the chunks nor the number of threads changes a bit of the result. Once an iteration leaves the prototypes
    as they were, to the last bit, the others are spared; that the assignments stay does not suffice, since the
    weights Phi still move. `progress` is told the rows of every pass.
    Shapes: support (s, d), labels (s,) -> prototypes (k, d), for `prototype_scores`.

    >>> support, pile = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), np.array([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> means = transductive_prototypes(support, torch.tensor([0, 1]), lambda: [pile[:1], pile[1:]], n_ways=2)
    >>> prototype_scores(torch.from_numpy(pile), means).argmax(-1)
    tensor([0, 0, 1])
    """
    check_lambda_max(lambda_max)
    check_shrinkage(shrinkage)
    if not 0 <= eta <= 1:
        raise InputError(f"eta must lie in 0..1, got {eta}: the paper uses 0.5")
    if iterations < 0:
        raise InputError(f"iterations must be 0 or more, got {iterations}: the paper uses 10")
    check_non_negative("mll_transductive", support)
    dtype = torch.promote_types(support.dtype, torch.float32)
    support = l2_normalise(support.to(dtype)) if normalise else support.to(dtype)
    prototypes = shrunk_means(support.double(), labels, n_ways, shrinkage)  # (k, d)
    size = block_rows(support.shape[-1])
    for _ in range(iterations):
        rates = exponential_rates(prototypes, lambda_max)
        total, count = torch.zeros_like(prototypes), torch.zeros(n_ways, 1, dtype=torch.float64)

        def sums(block: NDArray[Any], rates: Tensor = rates) -> tuple[Tensor, Tensor, int]:
            return (*_class_sums(_query(block, rectified, normalise), rates), len(block))

        for part, members, rows in ordered_map(sums, _blocks(passes(), size), threads=workers, one_core_each=True):
            total += part
            count += members
            if progress is not None:
                progress(rows)
        moved = torch.lerp(prototypes, total / count.clamp_min(1), eta * (count > 0).double())
        if torch.equal(moved, prototypes):
            break
        prototypes = moved
    return prototypes


def prototype_scores(query: Tensor, prototypes: Tensor, *, lambda_max: float = 40.0, normalise: bool = True) -> Tensor:
    """Score as `mll` does, against prototypes that are given instead of class means.

    Shapes: query (q, d), prototypes (k, d) -> (q, k), in the precision of the query.

    >>> prototype_scores(torch.tensor([[6.0, 8.0]]), torch.tensor([[0.6, 0.8], [0.8, 0.6]])).argmax(-1)
    tensor([0])
    """
    check_non_negative("mll", query)
    query = l2_normalise(query) if normalise else query
    return exponential_log_likelihood(query, exponential_rates(prototypes, lambda_max).to(query.dtype))


def _blocks(chunks: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Cut chunks of any size anew into blocks of `rows`, the last one perhaps shorter."""
    held: list[NDArray[Any]] = []
    missing = rows
    for chunk in chunks:
        while len(chunk):
            taken, chunk = chunk[:missing], chunk[missing:]
            held.append(taken)
            missing -= len(taken)
            if not missing:
                yield held[0] if len(held) == 1 else np.concatenate(held)
                held, missing = [], rows
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


def _query(block: NDArray[Any], rectified: bool, normalise: bool) -> Tensor:
    query = as_tensor(block, rectified)
    check_non_negative("mll_transductive", query)
    return l2_normalise(query) if normalise else query


def _class_sums(query: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Sum Phi_q f_q over the queries of every class, and count them: (k, d) and (k, 1), float64."""
    with torch.no_grad():  # threads do not inherit it
        rates = rates.to(query.dtype)
        assigned = exponential_log_likelihood(query, rates).argmax(-1)  # (q,)
        weighted = (rates * -math.log2(math.e)).index_select(0, assigned)  # for exp2, which costs half of exp
        weighted.mul_(query).exp2_()  # 1 - Phi_q = exp(-lambda_{y_q} f_q)
        torch.addcmul(query, query, weighted, value=-1, out=weighted)  # Phi_q f_q
        total = torch.zeros_like(rates).index_add_(0, assigned, weighted)
        count = assigned.bincount(minlength=len(rates)).unsqueeze(-1)
    return total.double(), count.double()

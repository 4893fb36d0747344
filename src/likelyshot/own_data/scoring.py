"""Any method over a pile of any size, as far as the method allows it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.confidence.temperature import is_transductive
from likelyshot.errors import InputError
from likelyshot.machine import Progress, ordered_map
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import parameters_of
from likelyshot.methods.facts import function_of, name_of
from likelyshot.own_data.streaming import (
    as_tensor,
    block_rows,
    prototype_scores,
    transductive_prototypes,
    vector_chunks,
)

#: A pass over a pile: its rows and their scores, piece by piece.
Pieces = Callable[[], Iterator[tuple[Tensor, Tensor]]]

#: Memory that a method may take which needs the whole pile at once.
WHOLE_PILE_BYTES = 2 * 2**30


class Scan(NamedTuple):
    """What the numbers of a pile are like."""

    usable: NDArray[np.bool_]  # (n,): finite, and not all zeros where that matters
    infinite: NDArray[np.intp]  # rows with infinity or NaN
    zeros: NDArray[np.intp]  # rows of zeros alone
    negative: bool  # whether any usable row has a negative number
    largest: NDArray[np.float64]  # (n,) the largest number of every row


def scan(vectors: NDArray[Any], *, workers: int | None = None, progress: Progress | None = None) -> Scan:
    """Look for rows that no method has an answer for: infinite ones, and zeros, which have no direction.

    Shapes: vectors (n, d), perhaps a memory map, read in one pass.

    >>> found = scan(np.array([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0]]))
    >>> found.usable.tolist(), found.infinite.tolist(), found.zeros.tolist(), found.negative
    ([True, False, False], [1], [2], False)
    """

    def look(chunk: NDArray[Any]) -> tuple[Tensor, Tensor]:
        rows = as_tensor(chunk)
        return rows.amin(1), rows.amax(1)

    low, high = np.zeros(len(vectors)), np.zeros(len(vectors))
    done = 0
    for least, most in ordered_map(look, vector_chunks(vectors), threads=workers, one_core_each=True):
        part = slice(done, done + len(least))
        low[part], high[part] = least.numpy(), most.numpy()
        done = part.stop
        if progress is not None:
            progress(len(least))
    finite = np.isfinite(low) & np.isfinite(high)
    zero = (low == 0) & (high == 0)
    usable = finite & ~zero
    return Scan(usable, np.flatnonzero(~finite), np.flatnonzero(zero), bool((low[usable] < 0).any()), high)


def passes(method: Method) -> int:
    """Count how often `scores_of` reads the pile at most: once an iteration, or not at all."""
    return int(parameters_of(method)["iterations"]) if _streams(method) else 0


def scores_of(
    method: Method,
    support: Tensor,
    labels: Tensor,
    vectors: NDArray[Any],
    *,
    n_ways: int,
    usable: NDArray[np.bool_] | None = None,
    rectified: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Pieces:
    """Give a function that goes through the usable rows of a pile with their scores, piece by piece, in order.

    What depends on the pile as a whole is computed here, once. Inductive methods and `mll_transductive` hold only a
    few pieces in memory. The other transductive methods hold the whole pile and pairs of its rows: they are refused
    where that would take more than `WHOLE_PILE_BYTES`. `support` is rectified already if `rectified`; the pile is
    rectified on the way.
    Shapes: support (s, d), labels (s,), vectors (n, d), usable (n,) -> pieces of (any, d) and (any, k).

    >>> from likelyshot.methods.mll import mll
    >>> pile = np.array([[6.0, 8.5], [3.0, 2.0]], dtype=np.float32)
    >>> support, labels = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([0, 1])
    >>> [(rows, scores)] = scores_of(mll, support, labels, pile, n_ways=2)()
    >>> scores.argmax(-1)
    tensor([0, 1])
    """
    given = parameters_of(method)
    if _streams(method):
        kept = {key: given[key] for key in ("lambda_max", "normalise")}
        means = transductive_prototypes(
            support,
            labels,
            lambda: vector_chunks(vectors, None, usable),
            n_ways=n_ways,
            iterations=given["iterations"],
            eta=given["eta"],
            shrinkage=given["shrinkage"],
            rectified=rectified,
            workers=workers,
            progress=progress,
            **kept,
        )
        score: Callable[[Tensor], Tensor] = functools.partial(prototype_scores, prototypes=means, **kept)
    elif not is_transductive(method):
        score = functools.partial(method, support, labels, n_ways=n_ways)
    else:
        return _at_once(method, support, labels, vectors if usable is None else vectors[usable], n_ways, rectified)

    def run(chunk: NDArray[Any]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            rows = as_tensor(chunk, rectified)
            return rows, score(rows) if len(rows) else rows.new_zeros(0, n_ways)

    return lambda: ordered_map(run, vector_chunks(vectors, None, usable), threads=workers, one_core_each=True)


def _streams(method: Method) -> bool:
    return function_of(method) is METHODS["mll_transductive"]


def _at_once(
    method: Method, support: Tensor, labels: Tensor, vectors: NDArray[Any], n_ways: int, rectified: bool
) -> Pieces:
    count, dim = len(vectors), support.shape[1]
    wanted = whole_pile_bytes(count + len(support), dim)
    if wanted > WHOLE_PILE_BYTES:
        raise InputError(
            f"{name_of(method)} compares all {count:,} items of the pile with each other at once, which would take "
            f"about {wanted / 2**30:.0f} GB: use mll_transductive, which takes piles of any size, or split the pile"
        )
    rows = as_tensor(vectors, rectified)
    with torch.no_grad():
        scores = method(support, labels, rows, n_ways=n_ways) if count else rows.new_zeros(0, n_ways)
    size = block_rows(dim)
    return lambda: ((rows[at : at + size], scores[at : at + size]) for at in range(0, count, size))


def whole_pile_bytes(count: int, dim: int) -> int:
    """Estimate the memory of a method that compares all of `count` rows with each other.

    Of those there are, BAVARDAGE takes most, 66 bytes a pair.

    >>> f"{whole_pile_bytes(5_000, 512) / 2**30:.1f} GB"
    '1.6 GB'
    """
    return 66 * count * count + 24 * count * dim

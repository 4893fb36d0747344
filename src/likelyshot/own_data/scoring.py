"""Any method over a pile: in blocks, in passes over its file, or all at once, as the method allows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_non_negative
from likelyshot.functional.scores import (
    exponential_log_likelihood,
    exponential_rates,
    l2_normalise,
    rate_bound,
    shrunk_means,
)
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import function_of, is_transductive, name_of, parameters_of
from likelyshot.methods.likelihood import likelihood
from likelyshot.methods.likelihood_mixture import Mixture, fit_mixture, likelihood_mixture
from likelyshot.methods.mll_transductive import ClassSums, check_parameters, moved
from likelyshot.own_data.rows import Vectors, as_tensor, block_rows, map_rows

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

#: Goes through a pile once, block by block: rows and their scores.
Pieces = Callable[[], Iterator[tuple[Tensor, Tensor]]]
#: Scores rows (q, d), each on its own: (q, k).
Score = Callable[[Tensor], Tensor]

#: Rows of a pile that the likelihood mixture is fitted on. More hardly change its classes, and cost their square.
FITTED = 4_000
#: Memory that a method may take which needs the whole pile at once.
WHOLE_PILE_BYTES = 2 * 2**30


def passes(method: Method) -> int:
    """Count how often `scores_of` reads the pile at most before it scores: once per iteration, or not at all."""
    return int(parameters_of(method)["iterations"]) if _in_passes(method) else 0


class ScoringSettings(TypedDict, total=False):
    """The keyword arguments of `learnt`, which `scores_of` takes too."""

    n_ways: Required[int]
    usable: NDArray[np.bool_] | None
    rectified: bool
    seed: int
    progress: Progress | None


def scores_of(
    method: Method, support: Tensor, labels: Tensor, vectors: Vectors, **settings: Unpack[ScoringSettings]
) -> Pieces:
    """Return a function that goes through the usable rows of a pile with their scores, block by block, in order.

    What depends on the pile as a whole is computed here, once. Inductive methods and `mll_transductive` hold only a
    few blocks in memory. `likelihood_mixture` is fitted on at most `FITTED` rows, drawn at random by `seed`; if there
    are more, all rows are then scored one by one by what was fitted. The other transductive methods hold the whole
    pile and pairs of its rows: they are refused where that would take more than `WHOLE_PILE_BYTES`. `support` is
    rectified already if `rectified`; the pile is rectified block by block.
    Shapes: support (s, d), labels (s,), vectors (n, d), usable (n,) -> blocks of (any, d) and (any, k).

    >>> from likelyshot.methods.mll import mll
    >>> pile = np.array([[6.0, 8.5], [3.0, 2.0]], dtype=np.float32)
    >>> support, labels = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([0, 1])
    >>> [(rows, scores)] = scores_of(mll, support, labels, pile, n_ways=2)()
    >>> scores.argmax(-1)
    tensor([0, 1])
    """
    score = learnt(method, support, labels, vectors, **settings)
    usable, rectified = settings.get("usable"), settings.get("rectified", False)
    if score is None:
        chosen = vectors[:] if usable is None else vectors[usable]
        return _at_once(method, support, labels, chosen, settings["n_ways"], rectified)
    return lambda: map_rows(_scored, (score, rectified), vectors, usable)


def _scored(shared: tuple[Score, bool], block: NDArray[Any]) -> tuple[Tensor, Tensor]:
    score, rectified = shared
    with torch.no_grad():
        rows = as_tensor(block, rectified)
        return rows, score(rows)


def learnt(
    method: Method,
    support: Tensor,
    labels: Tensor,
    vectors: Vectors,
    *,
    n_ways: int,
    usable: NDArray[np.bool_] | None = None,
    rectified: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Score | None:
    """Learn from a pile what scores each of its rows on its own; None if the method needs all rows at once.

    The arguments are as in `scores_of`.
    """
    if _in_passes(method):
        params = parameters_of(method)
        scaled = l2_normalise(support) if params["normalise"] else support
        start = shrunk_means(scaled, labels, n_ways, params["shrinkage"])
        params["lambda_max"] = float(rate_bound(start, params["lambda_max"]))
        prototypes = transductive_prototypes(
            support, labels, vectors, n_ways=n_ways, usable=usable, rectified=rectified, progress=progress, **params
        )
        kind = {key: params[key] for key in ("lambda_max", "normalise")}
        return functools.partial(prototype_scores, prototypes=prototypes, **kind)
    if function_of(method) is likelihood_mixture and _count(vectors, usable) > FITTED:
        mixture = _fitted(method, support, labels, vectors, n_ways, usable, rectified, seed)
        return functools.partial(mixture_scores, mixture=mixture, name="likelihood_mixture")
    return None if is_transductive(method) else once_fitted(method, support, labels, n_ways)


def once_fitted(method: Method, support: Tensor, labels: Tensor, n_ways: int) -> Score:
    """Bind an inductive method to labelled examples. `likelihood` is fitted here, and not again for every block."""
    if function_of(method) is not likelihood:
        return functools.partial(method, support, labels, n_ways=n_ways)
    check_non_negative("likelihood", support)
    with torch.no_grad():
        fit = fit_mixture(support, labels, support[:0], n_ways=n_ways, iterations=0, **_given(method))
        return functools.partial(mixture_scores, mixture=fit.mixture(), name="likelihood")


def mixture_scores(query: Tensor, mixture: Mixture, name: str) -> Tensor:
    """Score rows by a fitted mixture, of the method with this name: (q, d) -> (q, k)."""
    check_non_negative(name, query)
    return mixture.scores(query)


def _given(method: Method) -> dict[str, Any]:
    return dict(method.keywords) if isinstance(method, functools.partial) else {}


def _in_passes(method: Method) -> bool:
    return function_of(method) is METHODS["mll_transductive"]


@torch.no_grad()
def transductive_prototypes(
    support: Tensor,
    labels: Tensor,
    vectors: Vectors,
    *,
    n_ways: int,
    usable: NDArray[np.bool_] | None = None,
    lambda_max: float = 40.0,
    iterations: int = 10,
    eta: float = 0.5,
    normalise: bool = True,
    shrinkage: float = 0.0,
    rectified: bool = False,
    progress: Progress | None = None,
) -> Tensor:
    """Move the class means of the support towards the pile as `mll_transductive` does, one pass per iteration.

    The pile is summed in blocks of a fixed number of rows, in double precision between blocks, so that the number of
    threads does not change a bit of the result. Once an iteration leaves the prototypes as they were, to the last bit,
    the others are skipped; that the assignments stay is not enough, since the weights Phi still move. `progress` is
    called with the rows of every pass.
    Shapes: support (s, d), labels (s,), vectors (n, d), usable (n,) -> prototypes (k, d), for `prototype_scores`.

    >>> support, pile = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), np.array([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> prototypes = transductive_prototypes(support, torch.tensor([0, 1]), pile, n_ways=2)
    >>> prototype_scores(torch.from_numpy(pile), prototypes).argmax(-1)
    tensor([0, 0, 1])
    """
    check_parameters(lambda_max, iterations, eta, shrinkage)
    check_non_negative("mll_transductive", support)
    dtype = torch.promote_types(support.dtype, torch.float32)
    support = l2_normalise(support.to(dtype)) if normalise else support.to(dtype)
    prototypes = shrunk_means(support.double(), labels, n_ways, shrinkage)  # (k, d)
    for _ in range(iterations):
        rates = exponential_rates(prototypes, lambda_max)
        total, count = np.zeros(prototypes.shape), np.zeros((n_ways, 1))
        for block_total, block_count in map_rows(_sums, (rates, rectified, normalise), vectors, usable):
            total += block_total
            count += block_count
            if progress is not None:
                progress(int(block_count.sum()))
        before = prototypes
        prototypes = moved(prototypes, torch.from_numpy(total), torch.from_numpy(count), eta)
        if torch.equal(before, prototypes):
            break
    return prototypes


@torch.no_grad()  # threads do not inherit it
def _sums(shared: tuple[Tensor, bool, bool], block: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sum the rows of a block by the class that they are nearest to; arrays are cheaper to send than tensors."""
    rates, rectified, normalise = shared
    query = as_tensor(block, rectified)
    check_non_negative("mll_transductive", query)
    query = l2_normalise(query) if normalise else query
    rates = rates.to(query.dtype)
    total, count = ClassSums(query, len(rates))(rates)
    return total.numpy(), count.double().numpy()


def prototype_scores(query: Tensor, prototypes: Tensor, *, lambda_max: float = 40.0, normalise: bool = True) -> Tensor:
    """Score as `mll` does, against given prototypes instead of class means.

    Shapes: query (q, d), prototypes (k, d) -> (q, k), in the precision of the query.

    >>> prototype_scores(torch.tensor([[6.0, 8.0]]), torch.tensor([[0.6, 0.8], [0.8, 0.6]])).argmax(-1)
    tensor([0])
    """
    check_non_negative("mll", query)
    query = l2_normalise(query) if normalise else query
    return exponential_log_likelihood(query, exponential_rates(prototypes, lambda_max).to(query.dtype))


def _count(vectors: Vectors, usable: NDArray[np.bool_] | None) -> int:
    return len(vectors) if usable is None else int(usable.sum())


def _fitted(
    method: Method,
    support: Tensor,
    labels: Tensor,
    vectors: Vectors,
    n_ways: int,
    usable: NDArray[np.bool_] | None,
    rectified: bool,
    seed: int,
) -> Mixture:
    """Fit the mixture on a sample of the pile."""
    rows = np.arange(len(vectors)) if usable is None else np.flatnonzero(usable)
    rows = np.sort(np.random.default_rng(seed).choice(rows, FITTED, replace=False))
    sample = as_tensor(vectors[rows], rectified)
    with torch.no_grad():
        return fit_mixture(support, labels, sample, n_ways=n_ways, **_given(method)).mixture()


def _at_once(
    method: Method, support: Tensor, labels: Tensor, vectors: NDArray[Any], n_ways: int, rectified: bool
) -> Pieces:
    count, dim = len(vectors), support.shape[1]
    needed = whole_pile_bytes(count + len(support), dim)
    if needed > WHOLE_PILE_BYTES:
        raise InputError(
            f"{name_of(method)} compares all {count:,} items of the pile with each other at once, which would take "
            f"about {needed / 2**30:.0f} GB: use likelihood_mixture, which takes piles of any size, or split the pile"
        )
    rows = as_tensor(vectors, rectified)
    with torch.no_grad():
        scores = method(support, labels, rows, n_ways=n_ways)
    size = block_rows(dim)
    return lambda: ((rows[at : at + size], scores[at : at + size]) for at in range(0, count, size))


def whole_pile_bytes(count: int, dim: int) -> int:
    """Estimate the memory of a method that compares all of `count` rows with each other.

    BAVARDAGE takes most, 66 bytes per pair.

    >>> f"{whole_pile_bytes(5_000, 512) / 2**30:.1f} GB"
    '1.6 GB'
    """
    return 66 * count * count + 24 * count * dim

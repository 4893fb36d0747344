"""What every method does with its inputs first."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.normalise import NOT_FINITE, l2_normalise


def prepare(support: Tensor, labels: Tensor, query: Tensor, n_ways: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Check that support, labels and query belong together, compute at least in float32, L2-normalise if asked."""
    if support.ndim < 2 or query.ndim < 2 or support.shape[-1] != query.shape[-1]:
        raise InputError(
            f"expected support (..., s, d) and query (..., q, d) of one dimension d, got {tuple(support.shape)} "
            f"and {tuple(query.shape)}: use features of one encoder"
        )
    if labels.ndim < 1 or labels.shape[-1] != support.shape[-2]:
        raise InputError(
            f"expected a label for each of {support.shape[-2]} support vectors, got labels of shape "
            f"{tuple(labels.shape)}: give one class number per vector"
        )
    lowest, highest = (int(bound) for bound in labels.aminmax()) if labels.numel() else (0, 0)
    if not 0 <= lowest <= highest < n_ways:
        raise InputError(
            f"expected labels from 0 to {n_ways - 1}, one less than n_ways, got {lowest} to {highest}: "
            "number the classes of a task from 0"
        )
    dtype = torch.promote_types(torch.promote_types(support.dtype, query.dtype), torch.float32)
    support, query = support.to(dtype), query.to(dtype)
    return (l2_normalise(support), l2_normalise(query)) if normalise else (support, query)


def centre(
    support: Tensor, labels: Tensor, query: Tensor, n_ways: int, base_mean: Tensor | None
) -> tuple[Tensor, Tensor]:
    """CL2N of SimpleShot: subtract the mean of the base classes, then L2-normalise; None if that is done already."""
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    if base_mean is None:
        return support, query
    if base_mean.shape != support.shape[-1:]:
        raise InputError(
            f"expected a base mean of {support.shape[-1]} numbers, one per feature, got {tuple(base_mean.shape)}: "
            "take it from base features of the same encoder"
        )
    base_mean = base_mean.to(support)
    return l2_normalise(support - base_mean), l2_normalise(query - base_mean)


def check_non_negative(method: str, *features: Tensor, who: str = "") -> None:
    """Refuse negative features, in the name of the method or of `who` calls it."""
    lowest = [float(x.detach().amin()) for x in features if x.numel()]
    if not all(low >= 0 for low in lowest):  # NaN too
        check_finite(*features)
        from likelyshot.methods import METHODS, facts_of  # the methods import this module

        why = facts_of(METHODS[method]).non_negative
        raise InputError(
            f"{who or method} {why} and needs them non-negative, got a minimum of {min(lowest):.4g}: "
            "split signed features losslessly into [relu(x), relu(-x)] with likelyshot.functional.normalise.rectify "
            "(--rectify on the command line), or end the encoder in a ReLU"
        )


def check_finite(*features: Tensor) -> None:
    """Refuse NaN and infinity, where no normalisation does."""
    if not all(bool(x.detach().isfinite().all()) for x in features):
        raise InputError(NOT_FINITE)


def check_lambda_max(lambda_max: float) -> None:
    """Refuse a bound on the rates that is not a positive number."""
    if not 0 < lambda_max < float("inf"):
        raise InputError(f"lambda_max must be a positive finite number, got {lambda_max}: the paper uses 40")


def check_shrinkage(shrinkage: float) -> None:
    """Refuse a weight of the average class that is negative or no number."""
    if not 0 <= shrinkage < float("inf"):
        raise InputError(f"shrinkage must be 0 or a positive finite number of examples, got {shrinkage}: try 1")


def check_rounds(lam: float, eta: float, iterations: int, tolerance: float) -> None:
    """Refuse parameters of PT-MAP's rounds that make no sense."""
    if not 0 < lam < float("inf"):
        raise InputError(f"lam must be a positive finite number, got {lam}: the paper uses 10")
    if not 0 <= eta <= 1:
        raise InputError(f"eta must lie in 0..1, got {eta}: the paper uses 0.2")
    if iterations < 0:
        raise InputError(f"iterations must be 0 or more, got {iterations}: the paper uses 20")
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must lie between 0 and 1, got {tolerance}: the paper's code uses 1e-6")

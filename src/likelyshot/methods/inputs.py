"""What every method does with its inputs first."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import (
    check_count,
    check_fraction,
    check_not_negative,
    check_positive,
    check_shape,
    check_switch,
)
from likelyshot.functional.normalise import NOT_FINITE, l2_normalise


def prepare(support: Tensor, labels: Tensor, query: Tensor, n_ways: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Check that support, labels and query belong together, compute at least in float32, L2-normalise if asked."""
    check_ways(n_ways)
    check_switch("normalise", normalise)
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
    check_shape("base_mean", base_mean, (support.shape[-1],), "take the mean of base features of the same encoder")
    base_mean = base_mean.to(support)
    return l2_normalise(support - base_mean), l2_normalise(query - base_mean)


def check_non_negative(method: str, *features: Tensor, who: str = "") -> None:
    """Refuse negative features, in the name of the method or of `who` calls it."""
    lowest = [float(x.detach().amin()) for x in features if x.numel()]
    if not all(low >= 0 for low in lowest):  # NaN too
        check_finite(*features)
        from likelyshot.methods import METHODS  # the methods import this module
        from likelyshot.methods.binding import facts_of

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


def check_ways(n_ways: int) -> None:
    """Refuse a number of classes that is not one."""
    check_count("n_ways", n_ways, "count the classes of the task", least=1)


def check_lambda_max(lambda_max: float) -> None:
    """Refuse a bound on the rates that is not a positive number."""
    check_positive("lambda_max", lambda_max, "the paper uses 40")


def check_shrinkage(shrinkage: float) -> None:
    """Refuse a weight of the average class that is negative or not a number."""
    check_not_negative("shrinkage", shrinkage, "it counts examples, try 1")


def check_rounds(lam: float, eta: float, iterations: int, tolerance: float) -> None:
    """Refuse parameters of PT-MAP's rounds that make no sense."""
    check_positive("lam", lam, "the paper uses 10", most=1000)  # beyond, the transport takes forever
    check_fraction("eta", eta, "the paper uses 0.2")
    check_count("iterations", iterations, "the paper uses 20")
    check_positive("tolerance", tolerance, "the paper's code uses 1e-6", most=1)

"""What every method does with its inputs first: refuse values that have no meaning, in one sentence, and normalise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likelyshot.errors import InputError, nearest, shown
from likelyshot.functional.scores import NOT_FINITE, l2_normalise
from likelyshot.machine import inputs_are_checked

#: A trained head: called with a tensor, it gives its weights by name, in that precision and on that device.
Weights = Callable[[Tensor], Mapping[str, Tensor]]

#: Numbers within these bounds neither overflow nor vanish in single precision, whatever a method does with them.
LEAST, MOST = 1e-12, 1e12
#: No method gains from more steps, rounds or dimensions than this, and each takes time.
MOST_COUNT = 100_000


def check_positive(name: str, value: Any, hint: str, most: float = MOST) -> None:
    """Refuse anything but a positive number of reasonable size.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        hint: What to do instead.
        most: The largest number that is accepted.

    >>> check_positive("tau", -1, "try 15")
    Traceback (most recent call last):
    likelyshot.errors.InputError: tau must be a number from 1e-12 to 1e+12, got -1: try 15
    """
    _check_number(name, value, LEAST, most, hint)


def check_not_negative(name: str, value: Any, hint: str) -> None:
    """Refuse anything but 0 or a positive number of reasonable size.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        hint: What to do instead.
    """
    if not _is(Real, value) or value != 0:
        _check_number(name, value, LEAST, MOST, hint, "0 or ")


def check_fraction(name: str, value: Any, hint: str) -> None:
    """Refuse anything but a number from 0 to 1.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        hint: What to do instead.
    """
    _check_number(name, value, 0, 1, hint)


def check_count(name: str, value: Any, hint: str, least: int = 0) -> None:
    """Refuse anything but a whole number from `least` to 100,000.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        hint: What to do instead.
        least: The smallest number that is accepted.

    >>> check_count("steps", 2.5, "try 100")
    Traceback (most recent call last):
    likelyshot.errors.InputError: steps must be a whole number from 0 to 100000, got 2.5: try 100
    """
    if not _is(Integral, value) or not least <= value <= MOST_COUNT:
        raise InputError(f"{name} must be a whole number from {least} to {MOST_COUNT}, got {shown(value)}: {hint}")


def check_switch(name: str, value: Any) -> None:
    """Refuse anything but True or False.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {shown(value)}: choose one")


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a text that is not one of the known ones.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        known: The texts that are accepted.

    >>> check_choice("rule", "yuden", ["youden", "closest"])
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown rule 'yuden': did you mean 'youden'? Known: closest, youden
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"unknown {name} {shown(value)}: {nearest(str(value), names)}")


def check_shape(name: str, value: Any, shape: tuple[int, ...], hint: str) -> None:
    """Refuse anything but a tensor of this shape.

    Args:
        name: Name of the parameter, for the message.
        value: What was given.
        shape: The shape that is expected.
        hint: What to do instead.
    """
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"expected {name} as a tensor of shape {shape}, got {came}: {hint}")


def _check_number(name: str, value: Any, least: float, most: float, hint: str, also: str = "") -> None:
    if not _is(Real, value) or not least <= value <= most:  # NaN is in no range
        raise InputError(f"{name} must be {also}a number from {least:g} to {most:g}, got {shown(value)}: {hint}")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_examples(support: Tensor, labels: Tensor) -> None:
    """Raise InputError unless the labelled examples of one task are vectors (n, d) with labels (n,).

    Args:
        support: The vectors.
        labels: Their labels.
    """
    if support.ndim != 2 or labels.shape != support.shape[:1]:
        raise InputError(
            f"expected support (n, d) and labels (n,), got {tuple(support.shape)} and {tuple(labels.shape)}: give one "
            "label for each row"
        )


def prepare(support: Tensor, labels: Tensor, query: Tensor, n_ways: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Check that support, labels and query belong together, compute at least in float32, L2-normalise if asked.

    Args:
        support: Labelled vectors (..., s, d).
        labels: Their classes (..., s) or (s,), from 0.
        query: Vectors to classify (..., q, d).
        n_ways: Number of classes.
        normalise: Whether to scale vectors to unit length.
    """
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
    known = inputs_are_checked() or not labels.numel()
    lowest, highest = (0, 0) if known else (int(bound) for bound in labels.aminmax())
    if not 0 <= lowest <= highest < n_ways:
        raise InputError(
            f"expected labels from 0 to {n_ways - 1}, one less than n_ways, got {lowest} to {highest}: "
            "number the classes of a task from 0"
        )
    dtype = torch.promote_types(torch.promote_types(support.dtype, query.dtype), torch.float32)
    support, query = support.to(dtype), query.to(dtype)
    return (l2_normalise(support), l2_normalise(query)) if normalise else (support, query)


def head_weights(method: str, head: Any, features: Tensor) -> Mapping[str, Tensor]:
    """Give the weights of a trained head, or refuse one of another method or for vectors of another length.

    Args:
        method: Name of the method.
        head: The head, as `likelyshot.load_head` reads it.
        features: Vectors (..., d), whose precision and device the weights get.
    """
    if not callable(head) or getattr(head, "name", None) != method:
        got = f"one of {head.name}" if callable(head) and hasattr(head, "name") else type(head).__name__
        raise InputError(f"expected a head of {method}, got {got}: give head=likelyshot.load_head(path)")
    dim = getattr(head, "dim", None)
    if dim != features.shape[-1]:
        raise InputError(
            f"expected vectors of length {dim}, as the head of {method} was trained on, got {features.shape[-1]}: use "
            "features of the same encoder"
        )
    weights: Mapping[str, Tensor] = head(features)
    return weights


def centre(
    support: Tensor, labels: Tensor, query: Tensor, n_ways: int, base_mean: Tensor | None
) -> tuple[Tensor, Tensor]:
    """CL2N of SimpleShot: subtract the mean of the base classes, then L2-normalise.

    Args:
        support: Labelled vectors (..., s, d).
        labels: Their classes (..., s) or (s,), from 0.
        query: Vectors to classify (..., q, d).
        n_ways: Number of classes.
        base_mean: Mean of the base classes (d,); None if the vectors are centred and scaled already.
    """
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    if base_mean is None:
        return support, query
    check_shape("base_mean", base_mean, (support.shape[-1],), "take the mean of base features of the same encoder")
    base_mean = base_mean.to(support)
    return l2_normalise(support - base_mean), l2_normalise(query - base_mean)


def check_non_negative(method: str, *features: Tensor, who: str = "") -> None:
    """Refuse negative features, in a message that names the method, or `who`.

    Args:
        method: Name of the method.
        *features: Tensors of any shape.
        who: What to name instead of the method.
    """
    if inputs_are_checked():
        return
    lowest = [float(x.detach().amin()) for x in features if x.numel()]
    if not all(low >= 0 for low in lowest):  # NaN too
        check_finite(*features)
        raise InputError(
            f"{who or method} needs non-negative features, got a minimum of {min(lowest):.4g}: split signed features "
            "losslessly into [relu(x), relu(-x)] with likelyshot.functional.scores.rectify (--rectify on the command "
            "line), or end the encoder in a ReLU"
        )


def check_finite(*features: Tensor) -> None:
    """Refuse NaN and infinity, where no normalisation does.

    Args:
        *features: Tensors of any shape.
    """
    if not inputs_are_checked() and not all(bool(x.detach().isfinite().all()) for x in features):
        raise InputError(NOT_FINITE)


def check_ways(n_ways: int) -> None:
    """Refuse a number of classes that is not one.

    Args:
        n_ways: What was given.
    """
    check_count("n_ways", n_ways, "count the classes of the task", least=1)


def check_lambda_max(lambda_max: float | None) -> None:
    """Refuse a bound on the rates that is not a positive number; None follows from the features.

    Args:
        lambda_max: What was given.
    """
    if lambda_max is not None:
        check_positive("lambda_max", lambda_max, "the paper uses 40")


def check_shrinkage(shrinkage: float) -> None:
    """Refuse a weight of the average class that is negative or not a number.

    Args:
        shrinkage: What was given.
    """
    check_not_negative("shrinkage", shrinkage, "it counts examples, try 1")


def check_rounds(lam: float, eta: float, iterations: int, tolerance: float) -> None:
    """Refuse parameters of PT-MAP's rounds that make no sense.

    Args:
        lam: Factor of the squared distances.
        eta: How far a round moves the prototypes.
        iterations: Number of rounds.
        tolerance: Largest error of a class's share at which the transport stops.
    """
    check_positive("lam", lam, "the paper uses 10", most=1000)  # beyond, the transport takes forever
    check_fraction("eta", eta, "the paper uses 0.2")
    check_count("iterations", iterations, "the paper uses 20")
    check_positive("tolerance", tolerance, "the paper's code uses 1e-6", most=1)

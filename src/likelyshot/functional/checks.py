"""Checks of the values that a user may give: each refuses what has no meaning, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from likelyshot.errors import InputError, nearest

#: Numbers within these bounds neither overflow nor vanish in single precision, whatever a method does with them.
LEAST, MOST = 1e-12, 1e12
#: No method gains from more steps, rounds or dimensions than this, and each takes time.
MOST_COUNT = 100_000


def check_positive(name: str, value: Any, hint: str, most: float = MOST) -> None:
    """Refuse anything but a positive number of reasonable size.

    >>> check_positive("tau", -1, "try 15")
    Traceback (most recent call last):
    likelyshot.errors.InputError: tau must be a number from 1e-12 to 1e+12, got -1: try 15
    """
    _check_number(name, value, LEAST, most, hint)


def check_not_negative(name: str, value: Any, hint: str) -> None:
    """Refuse anything but 0 or a positive number of reasonable size."""
    if not _is(Real, value) or value != 0:
        _check_number(name, value, LEAST, MOST, hint, "0 or ")


def check_fraction(name: str, value: Any, hint: str) -> None:
    """Refuse anything but a number from 0 to 1."""
    _check_number(name, value, 0, 1, hint)


def check_count(name: str, value: Any, hint: str, least: int = 0) -> None:
    """Refuse anything but a whole number from `least` to 100,000.

    >>> check_count("steps", 2.5, "try 100")
    Traceback (most recent call last):
    likelyshot.errors.InputError: steps must be a whole number from 0 to 100000, got 2.5: try 100
    """
    if not _is(Integral, value) or not least <= value <= MOST_COUNT:
        raise InputError(f"{name} must be a whole number from {least} to {MOST_COUNT}, got {shown(value)}: {hint}")


def check_switch(name: str, value: Any) -> None:
    """Refuse anything but True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {shown(value)}: choose one")


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a text that is not one of the known ones.

    >>> check_choice("rule", "yuden", ["youden", "closest"])
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown rule 'yuden': did you mean 'youden'? Known: closest, youden
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise InputError(f"unknown {name} {shown(value)}: {nearest(str(value), names)}")


def check_shape(name: str, value: Any, shape: tuple[int, ...], hint: str) -> None:
    """Refuse anything but a tensor of this shape."""
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"expected {name} as a tensor of shape {shape}, got {came}: {hint}")


def _check_number(name: str, value: Any, least: float, most: float, hint: str, also: str = "") -> None:
    if not _is(Real, value) or not least <= value <= most:  # NaN is in no range
        raise InputError(f"{name} must be {also}a number from {least:g} to {most:g}, got {shown(value)}: {hint}")


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Show a value in a message; a number of a thousand digits is cut short, and so is a long list."""
    try:
        text = str(value) if isinstance(value, Real) else repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        text = "a very large number"
    return text if len(text) <= 80 else f"{text[:77]}..."

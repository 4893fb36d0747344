"""What a method's signature says of it: its parameters, and the statistics that it needs."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from likelyshot.errors import InputError


def parameters_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Give the keyword parameters with their defaults, or what `functools.partial` gave them.

    >>> from likelyshot.methods.mll import mll
    >>> parameters_of(functools.partial(mll, lambda_max=80.0))
    {'lambda_max': 80.0, 'normalise': True, 'shrinkage': 0.0}
    """
    return {key: default for key, default in _keywords(method).items() if default is not inspect.Parameter.empty}


def needs_of(method: Callable[..., Any]) -> list[str]:
    """Give the keywords without a default: statistics from other data.

    >>> from likelyshot.methods.simpleshot import simpleshot
    >>> needs_of(simpleshot)
    ['base_mean']
    """
    return [key for key, default in _keywords(method).items() if default is inspect.Parameter.empty and key != "n_ways"]


def check_values(name: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse parameters of another kind than their defaults: numbers, whole numbers, yes or no."""
    kinds: dict[type, tuple[type, str]] = {
        bool: (bool, "True or False"),
        int: (numbers.Integral, "a whole number"),
        float: (numbers.Real, "a number"),
    }
    for key, value in given.items():
        kind, words = kinds.get(type(defaults.get(key)), (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise InputError(f"{key} of {name} must be {words}, got {value!r}: its default is {defaults[key]}")


def _keywords(method: Callable[..., Any]) -> dict[str, Any]:
    keywords = inspect.signature(method).parameters.values()
    return {keyword.name: keyword.default for keyword in keywords if keyword.kind is keyword.KEYWORD_ONLY}

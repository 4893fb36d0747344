"""Methods and parameters of the commands for own data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from likelyshot.methods.binding import parse_methods, parse_params


def methods(names: Sequence[str]) -> tuple[list[str], bool]:
    """Read method names."""
    return (parse_methods(names) if names else []), False


def params(names: Sequence[str], given: Sequence[str], normalise: bool) -> dict[str, dict[str, Any]]:
    """Read parameters by method."""
    return parse_params(names, given, normalise)

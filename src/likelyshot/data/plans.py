"""Query plans: how many queries a task has of each of its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from likelyshot.errors import InputError

Plan: TypeAlias = "Balanced | Dirichlet"


def check_whole(least: int, **numbers: Any) -> list[int]:
    """Give these numbers as int, or raise InputError for one that is no integer or below `least`."""
    for name, value in numbers.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise InputError(f"expected {name} to be an integer >= {least}, but got {value!r}: change {name}")
    return [int(value) for value in numbers.values()]


@dataclass(frozen=True)
class Balanced:
    """The same number of queries from every class of a task.

    Args:
        per_class: Number of queries of each class.
    """

    per_class: int = 15

    def __post_init__(self) -> None:
        check_whole(1, per_class=self.per_class)

    def describe(self) -> str:
        """Describe the plan in words: "balanced, 15 per class"."""
        return f"balanced, {self.per_class} per class"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "balanced", "per_class": int(self.per_class)}


@dataclass(frozen=True)
class Dirichlet:
    """Queries in Dirichlet(alpha) class proportions, rounded by largest remainder (Veilleux et al. 2021).

    Args:
        total: Number of queries of a task.
        alpha: Concentration: the smaller, the more imbalanced. 2 is customary.
    """

    total: int = 75
    alpha: float = 2.0

    def __post_init__(self) -> None:
        check_whole(1, total=self.total)
        number = isinstance(self.alpha, int | float | np.floating) and not isinstance(self.alpha, bool)
        alpha = float(self.alpha) if isinstance(self.alpha, np.floating) else self.alpha
        if not number or not 0 < alpha <= 1e100:
            raise InputError(f"expected alpha above 0, at most 1e100, but got {self.alpha!r}: 2 is customary")

    def describe(self) -> str:
        """Describe the plan in words: "Dirichlet(2), 75 queries"."""
        return f"Dirichlet({self.alpha:g}), {self.total} queries"

    def to_dict(self) -> dict[str, Any]:
        """Give the plan as plain JSON."""
        return {"plan": "dirichlet", "total": int(self.total), "alpha": float(self.alpha)}


#: What few-shot tasks are drawn with unless another plan is given.
IMBALANCED = Dirichlet()


def plan_from(config: Mapping[str, Any]) -> Balanced | Dirichlet:
    """Read what `to_dict` of a plan gave.

    >>> plan_from({"plan": "dirichlet", "total": 75, "alpha": 1.0})
    Dirichlet(total=75, alpha=1.0)
    """
    fields = dict(config)
    try:
        plan: Plan | None = {"balanced": Balanced, "dirichlet": Dirichlet}[fields.pop("plan")](**fields)
    except (KeyError, TypeError):
        plan = None
    if plan is None or plan.to_dict() != config:
        raise InputError(f"expected a query plan, balanced or dirichlet, but got {str(config)[:80]}")
    return plan

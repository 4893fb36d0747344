"""Comparing results of one setting: paired differences, the winner, and the effect of time and imbalance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from likelyshot.data.results import Result, mean_ci95
from likelyshot.functional.families import holm

MOST_BINS, LEAST_IN_BIN = 8, 10  # of tasks, by their largest class share

Gap = dict[str, Any]


def paired(one: Result, other: Result) -> Gap | None:
    """Subtract the accuracy of another result on the tasks that both have; None if they are not known to share any."""
    n = one.shared_tasks(other)
    if not n:
        return None
    mean, ci95 = mean_ci95(one.accuracy[:n] - other.accuracy[:n])
    return {"mean": mean, "ci95": ci95, "tasks": n, "significant": abs(mean) > ci95}


def differences(named: Mapping[str, Result], reference: str) -> dict[str, Gap | None]:
    """Pair every other result with the reference; `holm` is the p-value, corrected for all these comparisons."""
    gaps = {name: paired(result, named[reference]) for name, result in named.items() if name != reference}
    known = [gap for gap in gaps.values() if gap is not None]
    corrected = holm(torch.tensor([_p_value(gap) for gap in known], dtype=torch.float64))
    for gap, p in zip(known, corrected.tolist(), strict=True):
        gap["holm"] = p
    return gaps


def _p_value(gap: Gap) -> float:
    """Compute the two-sided p-value of a mean difference, from the normal distribution, as for its interval."""
    if gap["mean"] == 0 or gap["tasks"] < 2:
        return 1.0
    return math.erfc(1.96 * abs(gap["mean"]) / gap["ci95"] / math.sqrt(2)) if gap["ci95"] else 0.0


def winner(named: Mapping[str, Result]) -> dict[str, Any]:
    """Find the best mean and the next, and their paired difference.

    If the means are over different tasks, the paired difference over the common tasks decides. `tied` has the others
    that are not significantly behind the best, `unpaired` those that cannot be compared with it task by task.
    """
    best, *others = sorted(named, key=lambda name: -named[name].mean)
    gap = paired(named[best], named[others[0]]) if others else None
    if gap is not None and gap["significant"] and gap["mean"] < 0:
        best, others = others[0], [best, *others[1:]]
        gap["mean"] = -gap["mean"]
    behind = {name: paired(named[best], named[name]) for name in others}
    return {
        "best": best,
        "runner_up": others[0] if others else None,
        "difference": gap,
        "tied": [name for name, lead in behind.items() if lead and not (lead["significant"] and lead["mean"] > 0)],
        "unpaired": [name for name, lead in behind.items() if lead is None],
    }


def pareto(costs: Sequence[float], gains: Sequence[float]) -> list[bool]:
    """Mark the Pareto front: the points for which no other one is better in cost or gain and as good in the other.

    >>> pareto([1.0, 2.0, 3.0, 4.0], [5.0, 4.0, 6.0, 6.0])
    [True, False, True, False]
    """
    points = list(zip(costs, gains, strict=True))
    return [not any(c <= cost and g >= gain and (c, g) != (cost, gain) for c, g in points) for cost, gain in points]


def share_edges(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide tasks into up to eight bins of about equal size by their largest class share; no edges if all are alike.

    Shapes: (t,) -> (bins + 1,).

    >>> share_edges(np.repeat([0.2, 0.4], 50)).round(2).tolist()
    [0.2, 0.3, 0.4]
    >>> share_edges(np.full(50, 0.2)).tolist()
    []
    """
    bins = min(MOST_BINS, len(shares) // LEAST_IN_BIN)
    values = np.unique(shares)
    if bins < 2 or len(values) < 2:
        return np.zeros(0)
    inner = np.quantile(shares, np.arange(1, bins) / bins, method="lower")
    above = np.searchsorted(values, inner, "right").clip(max=len(values) - 1)
    between = np.unique((values[above] + values[above - 1]) / 2)  # no task lies on an edge
    return np.concatenate([values[:1], between, values[-1:]])


def accuracy_by_share(result: Result, edges: NDArray[np.float64]) -> list[dict[str, Any] | None]:
    """Average share and accuracy over the tasks of every bin; None for a bin with fewer than two tasks."""
    bin_of_task = np.searchsorted(edges[1:-1], result.largest_share)
    bins: list[dict[str, Any] | None] = []
    for number in range(len(edges) - 1):
        inside = bin_of_task == number
        if inside.sum() < 2:
            bins.append(None)
            continue
        mean, ci95 = mean_ci95(result.accuracy[inside])
        share = float(result.largest_share[inside].mean())
        bins.append({"share": share, "mean": mean, "ci95": ci95, "tasks": int(inside.sum())})
    return bins

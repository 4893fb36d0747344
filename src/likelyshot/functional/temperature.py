"""From scores to probabilities: softmax(scores / T), the temperature T, and how well such probabilities hold."""

from __future__ import annotations

import math
import sys
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import shown
from likelyshot.functional.metrics import reliability_counts

#: Temperatures are sought within this factor of the scores' own spread, either way.
RANGE = 1e4


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Give softmax(scores / temperature) over the last dimension, in float64, finite for scores of any size.

    Shapes: (..., k) -> (..., k).

    >>> probabilities(torch.tensor([1000.0, 1000.0, -3e38]), 1.0)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    check_temperature(temperature, "try 1")
    scores = scores.double()
    return ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)  # at worst -inf


def check_temperature(temperature: Any, hint: str) -> None:
    """Refuse anything but a positive finite number; unlike parameters it has the scale of the scores, which is any."""
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if not number or not 0 < temperature <= sys.float_info.max:
        raise InputError(f"temperature must be a positive finite number, got {shown(temperature)}: {hint}")


def fit_temperature(
    scores: Tensor, labels: Tensor, *, weights: Tensor | None = None, default: float | None = None, spread: float = 1.0
) -> float:
    """Find the temperature under which the labels are the most probable.

    Minimises sum_i w_i -log softmax(scores_i / T)[y_i], and with a `default` T_0 also
    (log T - log T_0)^2 / (2 spread^2): the mode under a log-normal prior, which few examples move little.
    Where every label has the highest score, only the prior keeps T from zero.
    Shapes: scores (n, k), labels (n,), weights (n,).

    Args:
        weights: How much each example counts, 1 by default.
        default: Temperature T_0 that is assumed without examples; None for no prior.
        spread: Standard deviation of log T in the prior.

    >>> scores, labels = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0, 0, 1])
    >>> round(fit_temperature(scores, labels), 3)  # three in four are right: odds of 3 at a lead of 3
    2.731
    >>> round(fit_temperature(scores[:0], labels[:0], default=8.0), 3)
    8.0
    """
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise InputError(
            f"expected scores (n, k) and labels (n,), got {tuple(scores.shape)} and {tuple(labels.shape)}: one label "
            "for each row of scores"
        )
    if default is None and not len(scores):
        raise InputError("a temperature needs at least one scored example, got none: give a default")
    scores, labels = scores.double(), labels.long()
    behind = scores - scores.amax(-1, keepdim=True)  # (n, k)
    weights = torch.ones_like(behind[:, 0]) if weights is None else weights.double()
    size = float(-behind.clamp_min(-1e300).mean()) if len(behind) else 0.0
    if size == 0:  # all scores are equal: any temperature is as good
        return 1.0 if default is None else default
    centre = math.log(size)

    def loss(log_t: Tensor) -> Tensor:
        scaled = behind / log_t.exp().view(-1, 1, 1)  # (g, n, k)
        right = scaled.gather(-1, labels.view(1, -1, 1).expand(len(log_t), -1, 1)).squeeze(-1)
        total = (weights * (scaled.logsumexp(-1) - right)).sum(-1)
        return total if default is None else total + (log_t - math.log(default)).square() / (2 * spread**2)

    reach = math.log(RANGE)
    low, high = centre - reach, centre + reach
    if default is not None:
        low, high = min(low, math.log(default) - reach), max(high, math.log(default) + reach)
    few = behind.numel() <= 20_000  # then a finer grid at once costs less than more rounds
    points = 33 if few else 9
    while high - low > 1e-8 * max(1.0, abs(low)):
        grid = torch.linspace(low, high, points, dtype=torch.float64, device=behind.device)
        best = int((loss(grid) if few else torch.cat([loss(grid[i : i + 1]) for i in range(points)])).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, points - 1)])
    return math.exp((low + high) / 2)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Average over bins of the largest probability how far it is from the share of right answers (top-label ECE).

    Each bin of equal width counts by its examples (Guo et al. 2017). Shapes: probabilities (..., k), labels (...).

    >>> sure = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    >>> round(calibration_error(sure, torch.tensor([0, 1, 1])), 3)  # (2 |0.9 - 0.5| + |0.6 - 1|) / 3
    0.4
    """
    if bins < 1:
        raise InputError(f"bins must be 1 or more, got {bins}: 15 is customary")
    if not labels.numel():
        raise InputError("a calibration error needs at least one example, got none: give some")
    top, predicted = probabilities.double().reshape(-1, probabilities.shape[-1]).max(-1)
    count, confidence, correct = reliability_counts(top, predicted == labels.reshape(-1).to(predicted), bins)
    return float((confidence - correct).abs().sum() / count.sum())

"""Learning rates as a function of the step, so that nothing of them needs to be kept."""

from __future__ import annotations

import math

from likelyshot.training.recipes import Optimisation


def rate_factor(settings: Optimisation, step: int, steps_per_epoch: int) -> float:
    """Give what the learning rate is multiplied by at a step of the whole stage, counted from 0.

    cosine falls to 0 after the last step; step multiplies by `decay` after each milestone, in epochs; onecycle rises
    from 1/25 over the first 30 % of the steps and falls to 1/250,000, both by half a cosine (Smith & Topin 2018, in the
    form of torch's OneCycleLR, momentum left alone).

    >>> settings = Optimisation(epochs=2, schedule="cosine")
    >>> [round(rate_factor(settings, step, 2), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    total = settings.epochs * steps_per_epoch
    if settings.schedule == "cosine":
        return _between(1.0, 0.0, step / total)
    if settings.schedule == "step":
        passed = sum(step >= milestone * steps_per_epoch for milestone in settings.milestones)
        return float(settings.decay**passed)
    if settings.schedule == "onecycle":
        top, last = 0.3 * total - 1, total - 1
        if step <= top:
            return _between(1 / 25, 1.0, step / top)
        return _between(1.0, 1 / 250_000, (step - top) / (last - top))
    return 1.0


def _between(first: float, last: float, fraction: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * fraction)) / 2

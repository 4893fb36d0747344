"""Adam on closed-form gradients, for many tasks at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_count, check_positive
from likelyshot.machine import inputs_are_checked

MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8


def adam(start: Tensor, gradient: Callable[[Tensor], Tensor], steps: int, learning_rate: float) -> Tensor:
    """Minimise a loss by Adam (Kingma & Ba 2015, Algorithm 1, with its defaults), from the gradient in closed form.

    With g_t the gradient: a_t = 0.9 a_{t-1} + 0.1 g_t; v_t = 0.999 v_{t-1} + 0.001 g_t^2;
    w <- w - learning_rate a^_t / (sqrt(v^_t) + 1e-8), a^_t = a_t / (1 - 0.9^t), v^_t = v_t / (1 - 0.999^t).
    Every number is stepped by itself, so tasks in one tensor do not touch each other.
    Shapes: start (...), gradient (...) -> (...).

    Args:
        start: Where the descent starts; it is not changed.
        gradient: Function from w to the gradient there. What it returns is overwritten: it may be one buffer that the
            function fills every time.
        steps: Number of steps.
        learning_rate: Size of a step, alpha in the paper.

    >>> adam(torch.tensor([4.0, 0.0]), lambda w: 2 * (w - 3), steps=1, learning_rate=0.5)
    tensor([3.5000, 0.5000])
    """
    check_count("steps", steps, "0 leaves the classifier at the class means")
    check_positive("learning_rate", learning_rate, "try 1e-4")
    w = start.clone(memory_format=torch.contiguous_format)
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    for step in range(1, steps + 1):
        slope = gradient(w)
        if step == 1 and not inputs_are_checked() and not bool(slope.isfinite().all()):
            raise InputError(
                f"expected features whose squares are finite in {w.dtype}, got a gradient that is not: "
                "L2-normalise them (normalise=True)"
            )
        mean.lerp_(slope, 1 - MEAN_DECAY)
        square.mul_(SQUARE_DECAY).addcmul_(slope, slope, value=1 - SQUARE_DECAY)
        root = math.sqrt(1 - SQUARE_DECAY**step)  # sqrt(v^) + eps = (sqrt(v) + eps root) / root
        torch.sqrt(square, out=slope).add_(EPSILON * root)
        w.addcdiv_(mean, slope, value=-learning_rate * root / (1 - MEAN_DECAY**step))
    return w

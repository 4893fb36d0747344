"""The sums of a round of transductive MLL in one compiled loop, if numba is installed (`likelyshot[fast]`).

The same sums by operations of torch make five passes over the queries, and on a CPU threads wait for Python between
them. The loop makes one, and holds nobody up.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Called with queries (t, q, d), rates (t, k, d) and log-constants (t, k); fills sums (t, k, d) and counts (t, k).
Loop = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]

MINUS_LOG2_E = np.float32(-1.4426950408889634)
LEAST = np.float32(-126)  # 2 to this power is the smallest normal number
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
#: 2^r = 1 + r (C1 + r (C2 + ...)) for r in [-1/2, 1/2], to the last bit but one (Cephes, exp2f).
C1, C2, C3 = np.float32(6.931472028550421e-1), np.float32(2.402264791363012e-1), np.float32(5.550332471162809e-2)
C4, C5, C6 = np.float32(9.618437357674640e-3), np.float32(1.339887440266574e-3), np.float32(1.535336188319500e-4)
MANTISSA, BIAS = np.int32(23), np.int32(127)  # bits of a float32, and what its exponent is offset by


@functools.cache
def compiled_sums() -> Loop | None:
    """Compile the loop for float32 at its first call, and keep it on disk; None without numba."""
    try:
        numba: Any = importlib.import_module("numba")
    except ImportError:
        return None
    compiled = functools.partial(numba.njit, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
    try:
        loop: Loop = compiled(cache=True)(sum_by_class)
    except RuntimeError:  # no folder to keep it in
        loop = compiled()(sum_by_class)
    return loop


def sum_by_class(
    query: NDArray[Any], rates: NDArray[Any], constant: NDArray[Any], total: NDArray[Any], count: NDArray[Any]
) -> None:
    """Sum (1 - exp(-lambda_y f)) f over the queries f of every class y, the likeliest, or the first of tied ones.

    All arrays are float32, and features are non-negative.

    Args:
        query: Features f (t, q, d).
        rates: Rates lambda (t, k, d).
        constant: sum_i log lambda_i of every class (t, k).
        total: Filled with the sums (t, k, d).
        count: Filled with the numbers of queries (t, k).
    """
    tasks, queries, dim = query.shape
    for t in range(tasks):
        total[t] = ZERO
        count[t] = ZERO
        for q in range(queries):
            f = query[t, q]
            best, y = np.float32(-np.inf), 0
            for k in range(rates.shape[1]):
                rate, product = rates[t, k], ZERO
                for i in range(dim):
                    product += rate[i] * f[i]
                if constant[t, k] - product > best:
                    best, y = constant[t, k] - product, k
            count[t, y] += ONE
            rate, here = rates[t, y], total[t, y]
            for i in range(dim):  # exp(-lambda f) = 2^r 2^n
                x = max(MINUS_LOG2_E * rate[i] * f[i], LEAST)
                n = np.floor(x + HALF)
                r = x - n
                power = ONE + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * C6)))))
                scale = np.int32((np.int32(n) + BIAS) << MANTISSA).view(np.float32)  # numba shifts in 64 bits
                here[i] += f[i] - f[i] * power * scale

"""The methods: pure functions `(support, labels, query, *, n_ways, ...) -> scores`, one paper per file.

Shapes, for every method: support (..., s, d), labels (..., s) or (s,) in 0..n_ways-1, query (..., q, d)
-> scores (..., q, n_ways), higher is better. A keyword without a default is a statistic that the method needs
from other data (`base_mean`, `calibration`). To add a method: one file, one entry here, one line in docs/methods.md.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from likelyshot.methods.combined import combined
from likelyshot.methods.cosine import cosine
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive
from likelyshot.methods.simpleshot import simpleshot

Method = Callable[..., Tensor]

METHODS: dict[str, Method] = {
    "euclidean": euclidean,
    "cosine": cosine,
    "mll": mll,
    "mll_transductive": mll_transductive,
    "combined": combined,
    "simpleshot": simpleshot,
}

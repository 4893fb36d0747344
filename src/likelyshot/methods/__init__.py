"""The methods: pure functions `(support, labels, query, *, n_ways, ...) -> scores`, one paper per file.

Shapes, for every method: support (..., s, d), labels (..., s) or (s,) in 0..n_ways-1, query (..., q, d)
-> scores (..., q, n_ways), higher is better. A keyword without a default is a statistic that the method needs
from other data (`base_mean`, `calibration`). To add a method: one file, one entry here, one line in docs/methods.md.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from likelyshot.methods.alpha_tim import alpha_tim
from likelyshot.methods.baseline import baseline
from likelyshot.methods.baseline_pp import baseline_pp
from likelyshot.methods.bavardage import bavardage
from likelyshot.methods.bd_cspn import bd_cspn
from likelyshot.methods.combined import combined
from likelyshot.methods.cosine import cosine
from likelyshot.methods.entropy_min import entropy_min
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.laplacianshot import laplacianshot
from likelyshot.methods.lr_ici import lr_ici
from likelyshot.methods.matching import matching
from likelyshot.methods.mll import mll
from likelyshot.methods.mll_transductive import mll_transductive
from likelyshot.methods.paddle import paddle
from likelyshot.methods.protolp import protolp
from likelyshot.methods.protonet import protonet
from likelyshot.methods.pt_map import pt_map
from likelyshot.methods.simpleshot import simpleshot
from likelyshot.methods.tim import tim

Method = Callable[..., Tensor]

METHODS: dict[str, Method] = {
    "euclidean": euclidean,
    "cosine": cosine,
    "mll": mll,
    "mll_transductive": mll_transductive,
    "combined": combined,
    "protonet": protonet,
    "simpleshot": simpleshot,
    "matching": matching,
    "baseline": baseline,
    "baseline_pp": baseline_pp,
    "entropy_min": entropy_min,
    "tim": tim,
    "alpha_tim": alpha_tim,
    "laplacianshot": laplacianshot,
    "bd_cspn": bd_cspn,
    "pt_map": pt_map,
    "lr_ici": lr_ici,
    "bavardage": bavardage,
    "paddle": paddle,
    "protolp": protolp,
}

"""The weights that the training of each head starts from, by name: (dim, parameters) -> tensors.

Every head starts at, or close to, a method that needs no training, so that its first step is a good one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Start = Callable[..., dict[str, Tensor]]


def normal(*shape: int, deviation: float) -> Tensor:
    """Draw weights from N(0, deviation^2)."""
    return torch.randn(*shape) * deviation


def feat(dim: int, *, rank: int = 128, layer_norm: bool = True) -> dict[str, Tensor]:
    """FEAT: one attention layer, whose output starts at zero, so that prototypes start unchanged."""
    deviation = math.sqrt(2 / (dim + rank))
    weights = {key: normal(rank, dim, deviation=deviation) for key in ("asks", "offers", "gives")}
    weights |= {"out": torch.zeros(dim, rank), "out_bias": torch.zeros(dim)}
    if layer_norm:
        weights |= {"norm": torch.ones(dim), "norm_bias": torch.zeros(dim)}
    return weights


STARTS: dict[str, Start] = {"feat": feat}

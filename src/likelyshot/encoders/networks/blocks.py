"""What the encoders share: their base class, the weights they start with, and DropBlock."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.errors import InputError


class Encoder(nn.Module):
    """A network from images (n, c, h, w), or from vectors (n, d), to non-negative features (n, dim)."""

    dim: int  # the length of a feature vector
    takes_vectors: ClassVar[bool] = False  # instead of images
    smallest: ClassVar[int] = 1  # the side of the smallest images that leave something of the last map
    name: str = ""  # the builder's name and its parameters, as `build` was given them
    params: Mapping[str, Any] = {}

    def set_progress(self, fraction: float) -> None:
        """Set the share of the training that is done, from 0 to 1: the rates of DropBlock grow with it.

        Nothing else is kept between steps, so a resumed run only has to call this again.
        """
        for module in self.modules():
            if isinstance(module, DropBlock):
                module.progress = min(max(float(fraction), 0.0), 1.0)


class DropBlock(nn.Module):
    """Set squares of a feature map to zero in training, and scale up the rest.

    DropBlock (Ghiasi et al., NeurIPS 2018), eq. 1, as MetaOptNet and FEAT use it in ResNet12: squares lie wholly inside
    the map, each channel has its own, and a share of about `rate` of the map is dropped. At `progress` p the rate is
    p * rate. A map smaller than the square has squares of its own size.
    """

    def __init__(self, rate: float, size: int) -> None:
        super().__init__()
        self.rate, self.size, self.progress = rate, size, 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Drop squares: (n, c, h, w) -> (n, c, h, w)."""
        rate = self.rate * self.progress
        if not self.training or rate == 0:
            return x
        n, c, h, w = x.shape
        size = min(self.size, h, w)
        inside = (h - size + 1, w - size + 1)  # where a square may begin
        seeds = torch.rand(n, c, *inside, device=x.device) < rate / size**2 * h * w / (inside[0] * inside[1])
        dropped = functional.max_pool2d(functional.pad(seeds.to(x.dtype), (size - 1,) * 4), size, stride=1)
        kept = 1 - dropped
        # in single precision: half precision cannot count a large batch
        return x * kept * (kept.numel() / kept.sum(dtype=torch.float32).clamp_min(1)).to(x.dtype)


def dropout(rate: float) -> nn.Module:
    """Drop single values in training; nothing at all at rate 0, where torch's own would still draw random numbers."""
    return nn.Dropout(rate) if rate else nn.Identity()


def pooled(maps: Tensor) -> Tensor:
    """Average over the map, in single precision at least: (n, c, h, w) -> (n, c)."""
    return maps.mean((2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))


def start_weights(module: nn.Module, mode: Literal["fan_in", "fan_out"] = "fan_out") -> None:
    """Draw convolutions from N(0, 2 / fan) as He et al. (2015) do; BatchNorm starts as the identity."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode=mode, nonlinearity="relu")


def between(low: int, high: int, **values: int | tuple[int, ...]) -> None:
    """Refuse parameters outside [low, high], by name."""
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or min(numbers) < low or max(numbers) > high:
            raise InputError(f"expected {name} from {low} to {high:,}, got {reprlib.repr(value)}: change it")


def rates(**values: float) -> None:
    """Refuse rates outside [0, 1), by name."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise InputError(f"expected {name} from 0 to below 1, got {value}: give the share that is dropped")


def of_length(length: int, **values: tuple[int, ...]) -> None:
    """Refuse lists of another length, by name."""
    for name, value in values.items():
        if len(value) != length:
            raise InputError(f"expected {length} {name}, got {len(value)}: give one for each stage")

"""Networks from images (n, c, h, w) to non-negative features (n, dim): what they share here, and one family a file.

A network is built from a name and plain parameters, which are also what a checkpoint stores of it.
"""

from __future__ import annotations

import importlib
import inspect
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.errors import InputError, nearest

#: The networks by name. Each has a module of its name with a function of its name that builds it.
NAMES = ("conv4", "resnet12", "resnet18", "wrn", "densenet121", "relu_head", "identity", "flat")
#: Parameters of the largest encoder that is built: 4 GB.
LARGEST = 10**9


class Encoder(nn.Module):
    """A network from images (n, c, h, w), or from vectors (n, d), to non-negative features (n, dim)."""

    dim: int  # the length of a feature vector
    takes_vectors: ClassVar[bool] = False  # instead of images
    statistics: ClassVar[bool] = True  # whether methods ask for the mean and covariance of its vectors
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
    """Set squares of a feature map to zero in training, and scale the rest up.

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
        mask = 1 - dropped
        # in single precision: half precision cannot count a large batch
        return x * mask * (mask.numel() / mask.sum(dtype=torch.float32).clamp_min(1)).to(x.dtype)


def dropout(rate: float) -> nn.Module:
    """Drop single values in training; nothing at all at rate 0, where torch's own would still draw random numbers."""
    return nn.Dropout(rate) if rate else nn.Identity()


def pooled(maps: Tensor, grid: int = 1) -> Tensor:
    """Average over each of grid x grid cells of the map, in single precision at least: (n, c, h, w) -> (n, c grid^2).

    A vector holds one channel after the other: `grid` 1 is the mean over the map.
    """
    if grid == 1:
        return maps.mean((2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))
    if min(maps.shape[2:]) < grid:
        side = min(maps.shape[2:])
        raise InputError(f"expected a grid of at most {side} cells, the side of the last map, got {grid}: lower it")
    return functional.adaptive_avg_pool2d(maps.to(torch.promote_types(maps.dtype, torch.float32)), grid).flatten(1)


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


def build(name: str, params: Mapping[str, Any], *, seed: int = 0) -> Encoder:
    """Build an encoder from its name and parameters; its weights depend on `seed` only.

    >>> build("conv4", {"widths": [8, 8, 8, 16]}).dim
    16
    """
    complete, builder = parameters(name, params), builder_of(name)
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):  # without memory
            size = sum(param.numel() for param in builder(**complete).parameters())
        if size > LARGEST:
            raise InputError(f"expected {name} with at most {LARGEST:,} parameters, got {size:,}: make it smaller")
        torch.manual_seed(seed)
        encoder = builder(**complete)
    encoder.name, encoder.params = name, complete
    return encoder


def describe(encoder: Encoder) -> dict[str, Any]:
    """Give the name and all parameters of an encoder that `build` made, fit for JSON.

    >>> describe(build("relu_head", {"in_dim": 4}))
    {'name': 'relu_head', 'params': {'in_dim': 4, 'dim': 512, 'rectify': False}}
    """
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in encoder.params.items()}
    return {"name": encoder.name, "params": values}


def parameters(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check parameters against the builder's signature, and fill in its defaults.

    >>> parameters("conv4", {"widths": [8, 8, 8, 16]})
    {'widths': (8, 8, 8, 16), 'grid': 1}
    """
    params = {key: value for key, value in params.items() if key != "in_channels" or value != 3}  # as 0.3 wrote it
    builder = builder_of(name)
    keywords, kinds = inspect.signature(builder).parameters, get_type_hints(builder)
    for key in params:
        if key not in keywords:
            raise InputError(f"{name} has no parameter {str(key)[:80]!r}: {nearest(str(key)[:80], keywords)}")
    complete = {}
    for key, keyword in keywords.items():
        if key not in params and keyword.default is keyword.empty:
            raise InputError(f"{name} needs the parameter {key!r}: give it in encoder.params")
        complete[key] = _checked(name, key, params[key], kinds[key]) if key in params else keyword.default
    return complete


def check_input(name: str, side: int | None) -> None:
    """Raise InputError if an encoder cannot take images of `side` x `side` pixels, or vectors if `side` is None.

    >>> check_input("resnet12", 8)
    Traceback (most recent call last):
    likelyshot.errors.InputError: expected images of at least 16 pixels for resnet12, got 8: raise data.size, or ...
    """
    kind: type[Encoder] = get_type_hints(builder_of(name))["return"]
    if kind.takes_vectors and side is not None:
        raise InputError(f"{name} takes features, got images: give a features file, or choose another encoder")
    if side is None and not kind.takes_vectors:
        raise InputError(f"{name} takes images, got features: give images, or use the encoder relu_head or identity")
    if side is not None and side < kind.smallest:
        raise InputError(
            f"expected images of at least {kind.smallest} pixels for {name}, got {side}: raise data.size, or choose "
            "another encoder"
        )


def builder_of(name: str) -> Callable[..., Encoder]:
    """Give the function that builds a network, or raise InputError if there is none of that name."""
    if name not in NAMES:
        raise InputError(f"unknown encoder {str(name)[:80]!r}: {nearest(str(name)[:80], NAMES)}")
    builder: Callable[..., Encoder] = getattr(importlib.import_module(f"{__name__}.{name}"), name)
    return builder


def _checked(name: str, key: str, value: Any, kind: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and number and isinstance(value, int):
        return value
    if kind is float and number:
        return float(value)
    if kind == tuple[int, ...] and isinstance(value, (list, tuple)) and all(type(part) is int for part in value):
        return tuple(value)
    word = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a list of whole numbers")
    raise InputError(f"expected {word} for {key} of {name}, got {reprlib.repr(value)}: change it")

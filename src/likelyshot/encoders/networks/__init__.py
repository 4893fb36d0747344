"""Encoders: from images (n, c, h, w) to non-negative features (n, dim), one family a file.

An encoder is built from a name and plain parameters, which are also what a checkpoint stores of it.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import torch

from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.encoders.networks.conv4 import conv4
from likelyshot.encoders.networks.densenet121 import densenet121
from likelyshot.encoders.networks.relu_head import relu_head
from likelyshot.encoders.networks.resnet12 import resnet12
from likelyshot.encoders.networks.resnet18 import resnet18
from likelyshot.encoders.networks.wrn import wrn
from likelyshot.errors import InputError, nearest

BUILDERS: dict[str, Callable[..., Encoder]] = {
    "conv4": conv4,
    "resnet12": resnet12,
    "resnet18": resnet18,
    "wrn": wrn,
    "densenet121": densenet121,
    "relu_head": relu_head,
}


#: Parameters of the largest encoder that is built: 4 GB.
LARGEST = 10**9


def build(name: str, params: Mapping[str, Any], *, seed: int = 0) -> Encoder:
    """Build an encoder from its name and parameters; its weights depend on `seed` only.

    >>> build("conv4", {"widths": [8, 8, 8, 16]}).dim
    16
    """
    complete = parameters(name, params)
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):  # without memory
            size = sum(param.numel() for param in BUILDERS[name](**complete).parameters())
        if size > LARGEST:
            raise InputError(f"expected {name} with at most {LARGEST:,} parameters, got {size:,}: make it smaller")
        torch.manual_seed(seed)
        encoder = BUILDERS[name](**complete)
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
    {'widths': (8, 8, 8, 16)}
    """
    params = {key: value for key, value in params.items() if key != "in_channels" or value != 3}  # as 0.3 wrote it
    builder = _builder(name)
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
    kind: type[Encoder] = get_type_hints(_builder(name))["return"]
    if kind.takes_vectors and side is not None:
        raise InputError(f"{name} takes features, got images: give a features file, or choose another encoder")
    if side is None and not kind.takes_vectors:
        raise InputError(f"{name} takes images, got features: give images, or use the encoder relu_head")
    if side is not None and side < kind.smallest:
        raise InputError(
            f"expected images of at least {kind.smallest} pixels for {name}, got {side}: raise data.size, or choose "
            "another encoder"
        )


def _builder(name: str) -> Callable[..., Encoder]:
    if name not in BUILDERS:
        raise InputError(f"unknown encoder {str(name)[:80]!r}: {nearest(str(name)[:80], BUILDERS)}")
    return BUILDERS[name]


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

"""Heads: the learned weights of methods that are trained for few-shot tasks, as one more statistic of a pure function.

A head is built from a name, plain parameters and the length of the features. It holds weights and nothing else: the
equations stand in `likelyshot.methods`, in the file of its name. Trained heads are in the checkpoints and in the
features files that `likelyshot train` writes.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from likelyshot.data.files import explaining
from likelyshot.encoders import networks
from likelyshot.encoders.checkpoints import Checkpoint, load_checkpoint, restore_module
from likelyshot.encoders.networks.flat import pixels_title
from likelyshot.encoders.pixels import trained_preparation
from likelyshot.errors import InputError, nearest, shown
from likelyshot.functional.checks import Weights
from likelyshot.heads.starts import STARTS
from likelyshot.methods.feat import contrast
from likelyshot.methods.maml import EPSILON

#: What a head's training adds to the loss, where it adds something: scores of all examples of an episode.
REGULARISERS: dict[str, Callable[[Weights, Tensor, Tensor, int], Tensor]] = {"feat": contrast}
#: Weights of the largest head that is built: 400 MB.
LARGEST = 10**8


class Head(nn.Module):
    """The weights of a trained method; called with a tensor, it gives them by name, in its precision, on its device.

    Args:
        name: The method.
        params: The parameters that it was built with.
        dim: The length of the features.
        weights: The weights that it starts with.
    """

    def __init__(self, name: str, params: Mapping[str, Any], dim: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.name, self.params, self.dim = name, dict(params), dim
        self.trained: dict[str, Any] = {}  # ways and shots of the episodes, and the encoder of the features
        for key, value in weights.items():
            self.register_parameter(key, nn.Parameter(value))

    def forward(self, like: Tensor) -> dict[str, Tensor]:
        """Give the weights in the precision and on the device of a tensor."""
        return {key: value.to(like) for key, value in self._parameters.items() if value is not None}

    @property
    def digest(self) -> str:
        """The SHA-256 of its name, parameters and weights."""
        sha = hashlib.sha256(json.dumps([self.name, self.params, self.dim]).encode())
        for key, value in sorted(self.state_dict().items()):
            sha.update(key.encode())
            sha.update(value.detach().cpu().contiguous().numpy().tobytes())
        return sha.hexdigest()


def build(name: str, params: Mapping[str, Any], *, dim: int, seed: int = 0) -> Head:
    """Build a head with the weights that its training starts from; they depend on `seed` only.

    Args:
        name: A method that needs a head.
        params: Parameters of the head; what is left out gets its default.
        dim: The length of the features.
        seed: Decides everything that is random.

    >>> build("feat", {"rank": 8}, dim=24).params
    {'rank': 8, 'layer_norm': True}
    """
    complete = parameters(name, params)
    if type(dim) is not int or not 1 <= dim <= 1_000_000:
        raise InputError(f"expected the length of the features from 1 to 1,000,000, got {shown(dim)}: change it")
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):  # without memory
            size = sum(weight.numel() for weight in STARTS[name](dim, **complete).values())
        if size > LARGEST:
            raise InputError(f"expected a head with at most {LARGEST:,} weights, got {size:,}: make it smaller")
        torch.manual_seed(seed)
        return Head(name, complete, dim, STARTS[name](dim, **complete))


def parameters(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of a head, and fill in the defaults.

    >>> parameters("feat", {"rnk": 3})
    Traceback (most recent call last):
    likelyshot.errors.InputError: the head of feat has no parameter 'rnk': did you mean 'rank'? Known: layer_norm, rank
    """
    if name not in STARTS:
        raise InputError(f"{str(name)[:80]!r} has no head: {nearest(str(name)[:80], STARTS)}")
    keywords = inspect.signature(STARTS[name]).parameters
    defaults = {key: word.default for key, word in keywords.items() if word.kind is word.KEYWORD_ONLY}
    for key, value in params.items():
        if key not in defaults:
            known = nearest(str(key)[:80], defaults) if defaults else "leave it out"
            raise InputError(f"the head of {name} has no parameter {str(key)[:80]!r}: {known}")
        kind = type(defaults[key])
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits or (kind is int and not 1 <= value <= 100_000):
            word = {bool: "true or false", int: "a whole number from 1 to 100,000"}.get(kind, "a number")
            raise InputError(f"expected {word} for {key} of the head of {name}, got {shown(value)}: change it")
    return {key: params.get(key, default) for key, default in defaults.items()}


def start_from(head: Head, checkpoint: Checkpoint) -> None:
    """Give a head that is a network the weights of a trained Conv4; without BatchNorm, it becomes scales and shifts.

    Args:
        head: A head with layers of the same widths, for images.
        checkpoint: Of a run of `likelyshot train` with the encoder conv4.
    """
    described, tensors = checkpoint.facts_as(_WithEncoder).encoder, checkpoint.part("encoder")
    if head.name not in ("maml", "entropy_min_network") or described.name != "conv4":
        raise InputError(
            f"expected the Conv4 of {checkpoint.where} for a head of maml, got {described.name[:80]!r} for a head of "
            f"{head.name}: leave finetune.head_weights out"
        )
    weights = {key: value.detach() for key, value in head.named_parameters() if key == "log_rate"}
    for number, place in enumerate((0, 4, 8, 12), 1):
        scale, shift = tensors[f"layers.{place + 1}.weight"], tensors[f"layers.{place + 1}.bias"]
        weights[f"layer{number}"] = tensors[f"layers.{place}.weight"]
        mean, variance = (tensors[f"layers.{place + 1}.running_{part}"] for part in ("mean", "var"))
        if "norm1" in head._parameters:
            weights |= {f"norm{number}": scale, f"norm_bias{number}": shift}
            if "mean1" in head._parameters:
                weights |= {f"mean{number}": mean, f"variance{number}": variance}
            continue
        scale = scale * (variance + EPSILON).rsqrt()
        weights |= {f"scale{number}": scale, f"shift{number}": shift - mean * scale}
    restore_module(head, weights, checkpoint.where)


class _Described(msgspec.Struct):
    """What a file says of its head."""

    name: str
    params: dict[str, Any]
    dim: int
    trained: dict[str, Any] = {}


class _Named(msgspec.Struct):
    name: str
    params: dict[str, Any] = {}


class _WithEncoder(msgspec.Struct):
    encoder: _Named


class _WithHead(msgspec.Struct):
    head: _Described


def stored(head: Head) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Give what a file keeps of a head: its tensors, by names that begin with "head.", and its facts."""
    facts = {"name": head.name, "params": head.params, "dim": head.dim, "trained": head.trained}
    return {f"head.{key}": value.detach() for key, value in head.state_dict().items()}, facts


def load_head(path: str | Path) -> Head:
    """Read the head of a checkpoint, or of a features file, that `likelyshot train` has written.

    A Conv4 without a head is that of `entropy_min_network`.

    Args:
        path: Such as runs/cub_frozen_feat/best.safetensors.
    """
    head = head_of_features(path)
    if head is None:
        checkpoint = load_checkpoint(path)
        head = head_of(checkpoint) or network_of(checkpoint)
    if head is None:
        raise InputError(f"expected a trained head in {path}, but it has none: train one with likelyshot train")
    return head


def network_of(checkpoint: Checkpoint) -> Head | None:
    """Build the head of entropy_min_network from the Conv4 of a checkpoint; None if it has no such encoder."""
    if "head" in checkpoint.facts or "encoder" not in checkpoint.facts:
        return None
    encoder = checkpoint.facts_as(_WithEncoder).encoder
    if encoder.name != "conv4":
        return None
    how = trained_preparation(checkpoint, checkpoint.where)
    widths, side = networks.parameters(encoder.name, encoder.params)["widths"], 0 if how is None else how.size
    if len(set(widths)) > 1:
        raise InputError(f"expected a Conv4 with one width in {checkpoint.where}, got {list(widths)}: train another")
    params = {"side": side, "layers": 4, "width": widths[0]}
    head = build("entropy_min_network", params, dim=3 * side * side)
    start_from(head, checkpoint)
    head.trained = {"encoder": pixels_title(side)}
    return head.requires_grad_(False).eval()


def head_of(checkpoint: Checkpoint) -> Head | None:
    """Build the head of a checkpoint; None if it has none."""
    if "head" not in checkpoint.facts:
        return None
    return _restored(checkpoint.facts_as(_WithHead).head, checkpoint.part("head"), checkpoint.where)


def head_of_features(path: str | Path) -> Head | None:
    """Build the head that a features file carries; None if it has none, or is another kind of file."""
    with explaining(path, "a file with a trained head", "train one with likelyshot train"):
        try:
            with safe_open(path, framework="pt") as file:
                facts = (file.metadata() or {}).get("head")
                if facts is None:
                    return None
                names = [name for name in file.keys() if name.startswith("head.")]  # noqa: SIM118  (no mapping)
                tensors = {name.removeprefix("head."): file.get_tensor(name).clone() for name in names}
        except SafetensorError:
            return None
        described = msgspec.json.decode(facts, type=_Described)
    return _restored(described, tensors, str(path))


def _restored(described: _Described, tensors: Mapping[str, Tensor], where: str) -> Head:
    with torch.device("meta"):  # takes no memory, whatever sizes the file asks for
        shapes = (
            STARTS[described.name](described.dim, **parameters(described.name, described.params))
            if (described.name in STARTS and 0 < described.dim <= 1_000_000)
            else {}
        )
    if {key: value.shape for key, value in shapes.items()} != {key: value.shape for key, value in tensors.items()}:
        raise InputError(
            f"expected the weights of a head of {described.name[:80]!r}, but {where} has others: train it again"
        )
    head = build(described.name, described.params, dim=described.dim)
    restore_module(head, tensors, where)
    head.trained = described.trained
    return head.requires_grad_(False).eval()

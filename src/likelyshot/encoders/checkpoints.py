"""Checkpoints: tensors and plain facts in one safetensors file, written whole and checked when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from likelyshot.data.files import write_whole
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.errors import InputError

FORMAT = "likelyshot.checkpoint/1"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run needs to go on, or a network to be used."""

    tensors: Mapping[str, Tensor]  # by name; a prefix such as "encoder." says whose
    facts: Mapping[str, Any]  # JSON

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Give the tensors whose names begin with `prefix.`, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, whole or not at all: an earlier one stays until the new one is complete."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    facts = json.dumps(checkpoint.facts, allow_nan=False)
    return write_whole(path, safetensors_bytes(tensors, {FORMAT: facts, "digest": _digest(tensors, facts)}))


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint to the CPU; a foreign, truncated or altered file is refused."""
    path = Path(path)
    if not path.is_file():
        found = "it is a folder" if path.is_dir() else "nothing is there"
        raise InputError(f"expected a checkpoint at {path}, but {found}: check the path")
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
        facts = json.loads(notes[FORMAT])
        if notes["digest"] != _digest(tensors, notes[FORMAT]):
            raise ValueError("its digest does not match what it holds")
    except KeyError:
        raise InputError(
            f"expected a checkpoint of likelyshot train, but {path} is another kind of file: name another"
        ) from None
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(
            f"expected a whole checkpoint, but {path} is damaged ({str(error)[:120]}): restore it from a copy, or "
            "remove it and train anew"
        ) from None
    return Checkpoint(tensors, facts)


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    sha = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        value = tensors[name]
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def encoder_checkpoint(encoder: Encoder, facts: Mapping[str, Any]) -> Checkpoint:
    """Describe an encoder with its weights, and what else is known of it."""
    tensors = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    return Checkpoint(tensors, {**facts, "encoder": encoders.describe(encoder)})


def load_encoder(path: str | Path) -> tuple[Encoder, Checkpoint]:
    """Build the encoder that a checkpoint describes, with its weights, for inference."""
    checkpoint = load_checkpoint(path)
    described = checkpoint.facts.get("encoder")
    if not isinstance(described, dict):
        raise InputError(f"expected a checkpoint with an encoder, but {path} has none: name another")
    encoder = encoders.build(described["name"], described["params"])
    restore_module(encoder, checkpoint.part("encoder"), str(path))
    return encoder.eval(), checkpoint


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a module of exactly that architecture."""
    own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    for name in [*own, *given]:
        if own.get(name) != given.get(name):
            expected, got = (str(shapes.get(name, "nothing")) for shapes in (own, given))
            raise InputError(
                f"expected weights of this architecture, but {where} holds another: {name} is {got} instead of "
                f"{expected}; use the encoder and the parameters it was trained with"
            )
    module.load_state_dict(dict(tensors))


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Flatten the state of an optimiser into named tensors; the rates are not in it, the schedule sets them.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> optimiser = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> weight.sum().backward(); optimiser.step()
    >>> optimiser_state(optimiser)
    {'0.momentum_buffer': tensor([1., 1.])}
    """
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for number, entries in state.items()
        for key, value in entries.items()
        if value is not None
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put back what `optimiser_state` gave, in the memory layout of the parameters."""
    params = [param for group in optimiser.param_groups for param in group["params"]]
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        fits = number.isdigit() and int(number) < len(params)
        param = params[int(number)] if fits else None
        if param is None or value.shape not in (param.shape, torch.Size([])):
            raise InputError(
                f"expected the state of this optimiser, but {where} holds {name} {tuple(value.shape)}: resume with the "
                "recipe it was made with"
            )
        alike = value.shape == param.shape and value.ndim > 0
        # the step count of Adam stays on the CPU, where torch keeps it
        optimiser.state[param][key] = torch.empty_like(param).copy_(value) if alike else value.clone()

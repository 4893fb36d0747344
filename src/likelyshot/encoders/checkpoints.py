"""Checkpoints: tensors and plain facts in one safetensors file, written whole and checked when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from likelyshot.data.files import convert, read_container, write_container
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.networks import Encoder
from likelyshot.errors import InputError

T = TypeVar("T")

FORMAT = "likelyshot.checkpoint/1"
WHAT = "a checkpoint of likelyshot train"
REMEDY = "restore it from a copy, name another, or train again"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run needs to go on, or a network to be used.

    Args:
        tensors: By name; a prefix such as "encoder." says which part they belong to.
        facts: Anything that JSON can hold.
        where: The file that it was read from, for error messages.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]
    where: str = "this checkpoint"

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Give the tensors whose names begin with `prefix.`, without it."""
        start = f"{prefix}."
        return {name.removeprefix(start): value for name, value in self.tensors.items() if name.startswith(start)}

    def facts_as(self, schema: type[T]) -> T:
        """Give the facts as the types that a msgspec schema asks for, or raise InputError."""
        return convert(schema, self.facts, self.where)


class _Described(msgspec.Struct):
    """The facts of a network that can be built."""

    name: str
    params: dict[str, Any]


class _WithEncoder(msgspec.Struct):
    encoder: _Described


def save_checkpoint(path: str | Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, whole or not at all: an earlier one stays until the new one is complete."""
    return write_container(path, checkpoint.tensors, dict(checkpoint.facts), form=FORMAT)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint to the CPU; a file that is damaged, altered or of another kind raises InputError."""
    tensors, facts = read_container(path, dict[str, Any], form=FORMAT, what=WHAT, remedy=REMEDY)
    return Checkpoint(tensors, facts, str(path))


def encoder_checkpoint(encoder: Encoder, facts: Mapping[str, Any]) -> Checkpoint:
    """Describe an encoder with its weights, and what else is known of it."""
    tensors = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    return Checkpoint(tensors, {**facts, "encoder": encoders.describe(encoder)})


def load_encoder(path: str | Path) -> tuple[Encoder, Checkpoint]:
    """Build the encoder that a checkpoint describes, with its weights, for inference.

    Args:
        path: A checkpoint that `likelyshot train` has written, such as best.safetensors.

    Returns:
        The network, on the CPU and in evaluation mode, and the checkpoint with all that is known of it.
    """
    checkpoint = load_checkpoint(path)
    described, tensors = checkpoint.facts_as(_WithEncoder).encoder, checkpoint.part("encoder")
    try:
        with torch.device("meta"):  # takes no memory, whatever sizes the file asks for
            check_weights(encoders.build(described.name, described.params), tensors, str(path))
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise InputError(
            f"expected an encoder that can be built, but {path} describes {described} ({reason}): {REMEDY}"
        ) from None
    encoder = encoders.build(described.name, described.params)
    restore_module(encoder, tensors, str(path))
    return encoder.eval(), checkpoint


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights into a module of exactly that architecture."""
    check_weights(module, tensors, where)
    module.load_state_dict(dict(tensors))


def check_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise InputError unless the weights have the names, shapes and kinds of numbers of the module's."""
    expected, given = _outlines(module.state_dict()), _outlines(tensors)
    for name in [*expected, *given]:
        if expected.get(name) != given.get(name):
            raise InputError(
                f"expected weights of this architecture, but {where} has others: {name} is "
                f"{given.get(name, 'missing')} instead of {expected.get(name, 'nothing')}; use the encoder and the "
                "parameters that it was trained with"
            )


def _outlines(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Say the shape of each tensor, and its type if that is not a precision of real numbers."""
    kinds = {name: "" if value.is_floating_point() else f" {value.dtype}" for name, value in tensors.items()}
    return {name: f"{tuple(value.shape)}{kinds[name]}" for name, value in tensors.items()}


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
    flat = (param for group in optimiser.param_groups for param in group["params"])
    params = {str(number): param for number, param in enumerate(flat)}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        param = params.get(number)
        if param is None or value.is_complex() or value.shape not in (param.shape, torch.Size([])):
            raise InputError(
                f"expected the state of this optimiser, but {where} holds {name} {tuple(value.shape)}: resume with the "
                "recipe it was made with"
            )
        alike = value.shape == param.shape and value.ndim > 0
        # the step count of Adam stays on the CPU, where torch keeps it
        optimiser.state[param][key] = torch.empty_like(param).copy_(value) if alike else value.clone()

"""Devices and processes of a run, and what they do together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from likelyshot.encoders.networks import Encoder
from likelyshot.errors import InputError, shown

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")


@dataclass(frozen=True)
class Machines:
    """The devices of a run, in the words of Lightning Fabric."""

    accelerator: str = "auto"  # "auto", "cpu", "cuda" or "mps"
    devices: int | str = 1  # per machine: a number, or "auto" for all
    num_nodes: int = 1  # machines
    strategy: str = "auto"  # "auto", or "ddp" for several devices


ONE_MACHINE = Machines()
MOST = 4_096  # devices per machine, and machines


def start_fabric(machines: Machines, precision: str) -> Fabric:
    """Start the processes, and find out which one this is."""
    for name, value in (("--devices", machines.devices), ("--num-nodes", machines.num_nodes)):
        if value != "auto" and not (isinstance(value, int) and 1 <= value <= MOST):
            raise InputError(f"expected {name} from 1 to {MOST:,}, got {shown(value)}: change it")
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError("training needs lightning-fabric: pip install 'likelyshot[train]'") from None
    if precision == "auto":
        on_cuda = machines.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        precision = "bf16" if on_cuda and torch.cuda.is_bf16_supported() else "32"
    try:
        fabric = Fabric(
            accelerator=machines.accelerator,
            devices=machines.devices,
            num_nodes=machines.num_nodes,
            strategy=machines.strategy,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
        )
    except (ValueError, RuntimeError, TypeError, ImportError) as error:
        problem = str(error)[:200]
        raise InputError(
            f"cannot train on these devices ({problem}): check --accelerator, --devices, --strategy"
        ) from None
    fabric.launch()
    return fabric


def first_alone(fabric: Fabric, read: Callable[[], T]) -> T:
    """Have the first process read, while the others wait however long it takes; then all read what it left on disk.

    On a machine with a disk of its own, the first process there reads before the others. An error of the first process
    is raised by all of them.
    """
    if fabric.world_size == 1:
        return read()
    problem = ""
    with fabric.rank_zero_first():
        if fabric.is_global_zero:
            try:
                read()
            except InputError as error:
                problem = str(error)
    if problem := str(fabric.broadcast(problem)):
        raise InputError(problem)
    with fabric.rank_zero_first(local=True):
        return read()


def check_synchronised(synchronised: bool, world: int, device: torch.device) -> None:
    """Refuse to synchronise BatchNorm among processes where torch cannot."""
    if synchronised and world > 1 and device.type != "cuda":
        raise InputError(
            f"expected CUDA devices for run.sync_batchnorm with {world} processes, got {device.type}: set it to "
            "false, or train with one process"
        )


def synchronised(encoder: Encoder, world: int) -> Encoder:
    """Have every BatchNorm normalise by the batches of all processes; with one process there is nothing to do."""
    if world > 1:
        converted: Encoder = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)  # type: ignore[no-untyped-call,unused-ignore]
        return converted
    return encoder

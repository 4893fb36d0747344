"""What the two stages of training have in common, as the loop sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.training.recipes import Optimisation


class Trainee(nn.Module):
    """An encoder with what a stage trains on top of it."""

    encoder: Encoder


@dataclass(frozen=True)
class Share:
    """Which part of every step this process takes."""

    rank: int = 0
    world: int = 1

    def of(self, count: int) -> range:
        """Give the items of this process among `count`.

        >>> Share(1, 2).of(6)
        range(3, 6)
        """
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)


@dataclass(frozen=True)
class Outcome:
    """What one step gave this process."""

    loss: Tensor  # its mean over all processes is that of the whole step
    hits: Tensor  # items of this process classified rightly
    items: int  # classified by this process
    images: int  # encoded by this process


@dataclass(frozen=True)
class Stage:
    """A stage: what is trained, and the loss of every step."""

    name: str
    number: int  # in seeds
    settings: Optimisation
    module: Trainee
    head_lr: float  # of what is not the encoder
    steps: int  # per epoch
    plan: Callable[[int], Any]  # epoch -> what its steps are made of
    outcome: Callable[[nn.Module, Any, int, int, Share], Outcome]  # (module, plan, step, seed, share)

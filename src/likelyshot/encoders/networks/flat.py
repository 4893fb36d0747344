"""Pixels without an encoder, for methods that adapt a whole network."""

from __future__ import annotations

from torch import Tensor

from likelyshot.encoders.networks import Encoder, between
from likelyshot.errors import InputError


class Flat(Encoder):
    """The normalised pixels, one channel after the other, without weights; they may be negative."""

    statistics = False  # dim x dim numbers that tell little

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side, self.dim = side, 3 * side * side

    def forward(self, images: Tensor) -> Tensor:
        """Flatten images: (n, c, h, w) -> (n, dim)."""
        if images.shape[1:] != (3, self.side, self.side):
            raise InputError(
                f"expected images of {self.side} pixels, got {images.shape[2]} x {images.shape[3]}: set "
                "encoder.params.side to data.size"
            )
        return images.flatten(1)


def pixels_title(side: int) -> str:
    """Name vectors of pixels, in the same way in every run."""
    return f"pixels, {side} x {side}"


def flat(*, side: int = 32) -> Flat:
    """Build the encoder that only flattens images of `side` x `side` pixels.

    Args:
        side: Side of the images, in pixels.

    >>> import torch
    >>> flat(side=4)(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """
    between(1, 4_096, side=side)
    return Flat(side)

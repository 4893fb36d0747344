"""Cached features without changes, to train a head while the encoder stays frozen."""

from __future__ import annotations

from torch import Tensor

from likelyshot.encoders.networks import Encoder, between


class Identity(Encoder):
    """Vectors as they come, without weights."""

    takes_vectors = True

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.dim = in_dim

    def forward(self, vectors: Tensor) -> Tensor:
        """Leave the features of another network as they are: (n, dim) -> (n, dim)."""
        return vectors


def identity(*, in_dim: int) -> Identity:
    """Build the encoder that changes nothing.

    Args:
        in_dim: Length of the vectors.

    >>> import torch
    >>> identity(in_dim=3)(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """
    between(1, 16_384, in_dim=in_dim)  # base statistics have dim x dim numbers
    return Identity(in_dim)

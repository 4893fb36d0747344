"""A trainable layer over cached features: how any pre-trained network gets features that the exponential model fits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.encoders.networks import Encoder, between


class ReLUHead(Encoder):
    """Vectors scaled to unit length, then Linear and ReLU."""

    takes_vectors = True

    def __init__(self, in_dim: int, dim: int, rectify: bool) -> None:
        super().__init__()
        self.dim, self.rectify = dim, rectify
        self.linear = nn.Linear(in_dim * (2 if rectify else 1), dim)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Encode features of another network: (n, in_dim) -> (n, dim)."""
        vectors = functional.normalize(vectors, dim=-1)
        if self.rectify:
            vectors = torch.cat([functional.relu(vectors), functional.relu(-vectors)], dim=-1)
        # in single precision at least, as the other encoders pool
        features: Tensor = functional.relu(self.linear(vectors))
        return features.to(torch.promote_types(features.dtype, torch.float32))


def relu_head(*, in_dim: int, dim: int = 512, rectify: bool = False) -> ReLUHead:
    """Build a ReLU head.

    Args:
        in_dim: Length of the vectors that come in.
        dim: Length of the features.
        rectify: Whether to split signed vectors x into [relu(x), relu(-x)] first.

    >>> relu_head(in_dim=1280, dim=64)(torch.rand(2, 1280)).shape
    torch.Size([2, 64])
    """
    between(1, 1_000_000, in_dim=in_dim)
    between(1, 16_384, dim=dim)  # base statistics have dim x dim numbers
    return ReLUHead(in_dim, dim, rectify)

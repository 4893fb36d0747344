"""Wide residual networks of SimpleShot: WRN-28-10."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from likelyshot.encoders.networks import Encoder, between, dropout, pooled, rates, start_weights
from likelyshot.errors import InputError


class Block(nn.Module):
    """BatchNorm, ReLU and a convolution, twice, beside the identity, or beside one of 1 x 1 where the shape changes."""

    def __init__(self, before: int, width: int, stride: int, drop: float) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(inplace=True),
            nn.Conv2d(before, width, 3, padding=1, bias=False),
            dropout(drop),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch: (n, before, h, w) -> (n, width, h / stride, w / stride)."""
        out: Tensor = self.branch(x) + self.shortcut(x)
        return out


class WideResNet(Encoder):
    """A convolution, three stages of (depth - 4) / 6 blocks, then BatchNorm and ReLU."""

    def __init__(self, depth: int, widen: int, drop: float) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
        before = 16
        for width, stride in ((16 * widen, 1), (32 * widen, 2), (64 * widen, 2)):
            for place in range((depth - 4) // 6):
                layers.append(Block(before, width, stride if place == 0 else 1, drop))
                before = width
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(before))
        self.dim = before
        start_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (n, c, h, w) -> (n, dim)."""
        return pooled(functional.relu(self.layers(images)))


def wrn(*, depth: int = 28, widen: int = 10, drop: float = 0.0) -> WideResNet:
    """Build a wide residual network (Zagoruyko and Komodakis, BMVC 2016), WRN-28-10 by default as in SimpleShot.

    Args:
        depth: Number of layers, 6n + 4 for n blocks in each of the three stages.
        widen: Factor of the number of channels, which is 16, 32 and 64 in the stages otherwise.
        drop: Share of the values that dropout sets to zero in training, from 0 to below 1.

    >>> import torch
    >>> wrn(depth=10, widen=1)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """
    if not 10 <= depth <= 1_000 or (depth - 4) % 6:
        raise InputError(f"expected a depth of 6n + 4 from 10 to 1,000, got {depth}: give 10, 16, 22, 28, ...")
    between(1, 1_000, widen=widen)
    rates(drop=drop)
    return WideResNet(depth, widen, drop)

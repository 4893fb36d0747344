"""ResNet12 of FEAT: four residual blocks of three convolutions, with dropout and DropBlock."""

from __future__ import annotations

from torch import Tensor, nn

from likelyshot.encoders.networks import (
    DropBlock,
    Encoder,
    between,
    dropout,
    of_length,
    pooled,
    rates,
    start_weights,
)


def leaky() -> nn.LeakyReLU:
    """Let a tenth of what is negative through."""
    return nn.LeakyReLU(0.1, inplace=True)


class Block(nn.Module):
    """Three convolutions 3 x 3 beside one of 1 x 1, their sum through `last`, the maximum over 2 x 2, and `drop`."""

    def __init__(self, before: int, width: int, last: nn.Module, drop: nn.Module) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for source in (before, width, width):
            layers += [nn.Conv2d(source, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), leaky()]
        self.branch = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width))
        self.last, self.pool, self.drop = last, nn.MaxPool2d(2), drop

    def forward(self, x: Tensor) -> Tensor:
        """Halve the map: (n, before, h, w) -> (n, width, h // 2, w // 2)."""
        out: Tensor = self.drop(self.pool(self.last(self.branch(x) + self.shortcut(x))))
        return out


class ResNet12(Encoder):
    """Four blocks; the first two drop single values, the others squares of `dropblock_size`."""

    smallest = 16

    def __init__(self, widths: tuple[int, ...], drop: float, dropblock_size: int, grid: int = 1) -> None:
        super().__init__()
        drops = [dropout(drop), dropout(drop), DropBlock(drop, dropblock_size), DropBlock(drop, dropblock_size)]
        lasts = [leaky(), leaky(), leaky(), nn.ReLU(inplace=True)]
        befores = (3, *widths[:-1])
        self.blocks = nn.Sequential(*map(Block, befores, widths, lasts, drops))
        self.grid, self.dim = grid, widths[-1] * grid * grid
        start_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (n, c, h, w) -> (n, dim)."""
        return pooled(self.blocks(images), self.grid)


def resnet12(
    *,
    widths: tuple[int, ...] = (64, 160, 320, 640),
    drop: float = 0.1,
    dropblock_size: int = 5,
    grid: int = 1,
) -> ResNet12:
    """Build ResNet12 as in FEAT (Ye et al., CVPR 2020), but with ReLU at its end and `grid` x `grid` cells.

    Args:
        widths: Number of channels after each of the four blocks.
        drop: Share that is dropped in training, from 0 to below 1: of single values in the first two blocks, of
            squares in the others.
        dropblock_size: Side of these squares.
        grid: Cells along a side of the last map: each is averaged on its own, and 1 averages over the whole map.

    >>> import torch
    >>> resnet12(widths=(4, 8, 8, 16))(torch.rand(2, 3, 84, 84)).shape
    torch.Size([2, 16])
    """
    of_length(4, widths=widths)
    between(1, 16_384, widths=widths, dropblock_size=dropblock_size)
    rates(drop=drop)
    between(1, 11, grid=grid)
    return ResNet12(widths, drop, dropblock_size, grid)

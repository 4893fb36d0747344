"""ResNet18 of SimpleShot: the network of He et al. with a stem for small images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from likelyshot.encoders.networks import Encoder, between, of_length, pooled, start_weights


class Block(nn.Module):
    """Two convolutions 3 x 3 beside the identity, or beside one of 1 x 1 where the shape changes."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch: (n, before, h, w) -> (n, width, h / stride, w / stride)."""
        return functional.relu(self.branch(x) + self.shortcut(x))


class ResNet18(Encoder):
    """A convolution 3 x 3 of stride 1, then four stages of two blocks; each stage but the first halves the map."""

    def __init__(self, widths: tuple[int, ...], grid: int = 1) -> None:
        super().__init__()
        stem = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
        for before, width, stride in zip((widths[0], *widths), widths, (1, 2, 2, 2), strict=False):
            layers += [Block(before, width, stride), Block(width, width, 1)]
        self.layers = nn.Sequential(*layers)
        self.grid, self.dim = grid, widths[-1] * grid * grid
        start_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (n, c, h, w) -> (n, dim)."""
        return pooled(self.layers(images), self.grid)


def resnet18(*, widths: tuple[int, ...] = (64, 128, 256, 512), grid: int = 1) -> ResNet18:
    """Build ResNet18 (He et al., CVPR 2016) as in SimpleShot and FEAT: no stride and no pooling in its stem.

    It gives the mean over `grid` x `grid` cells of its last map.

    Args:
        widths: Number of channels in each of the four stages.
        grid: Cells along a side of the last map: each is averaged on its own, and 1 averages over the whole map.

    >>> import torch
    >>> resnet18(widths=(4, 8, 8, 16))(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 16])
    """
    of_length(4, widths=widths)
    between(1, 16_384, widths=widths)
    between(1, 11, grid=grid)
    return ResNet18(widths, grid)

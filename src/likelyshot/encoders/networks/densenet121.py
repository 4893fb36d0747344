"""DenseNet121 of SimpleShot: every layer sees all layers before it, with a stem for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.encoders.networks import Encoder, between, dropout, of_length, pooled, rates, start_weights

#: How much wider than the growth the map between a layer's two convolutions is.
BOTTLENECK = 4


class Layer(nn.Module):
    """Add `growth` maps to those that are there, by convolutions 1 x 1 and 3 x 3."""

    def __init__(self, before: int, growth: int, drop: float) -> None:
        super().__init__()
        between = BOTTLENECK * growth
        self.branch = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(inplace=True),
            nn.Conv2d(before, between, 1, bias=False),
            nn.BatchNorm2d(between),
            nn.ReLU(inplace=True),
            nn.Conv2d(between, growth, 3, padding=1, bias=False),
            dropout(drop),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Append the new maps: (n, before, h, w) -> (n, before + growth, h, w)."""
        return torch.cat([x, self.branch(x)], dim=1)


class DenseNet(Encoder):
    """A convolution of stride 1, four dense stages with halvings of map and width between them, BatchNorm and ReLU."""

    smallest = 8

    def __init__(self, layers: tuple[int, ...], growth: int, stem: int, drop: float) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, stem, 3, padding=1, bias=False)]
        width = stem
        for stage, count in enumerate(layers):
            if stage:
                halved = nn.Conv2d(width, width // 2, 1, bias=False)
                parts += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), halved, nn.AvgPool2d(2)]
                width //= 2
            for _ in range(count):
                parts.append(Layer(width, growth, drop))
                width += growth
        self.layers = nn.Sequential(*parts, nn.BatchNorm2d(width))
        self.dim = width
        start_weights(self, "fan_in")

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (n, c, h, w) -> (n, dim)."""
        return pooled(functional.relu(self.layers(images)))


def densenet121(
    *,
    layers: tuple[int, ...] = (6, 12, 24, 16),
    growth: int = 32,
    stem: int = 64,
    drop: float = 0.0,
) -> DenseNet:
    """Build DenseNet121 (Huang et al., CVPR 2017) as in SimpleShot: no stride and no pooling in its stem.

    Args:
        layers: Number of layers in each of the four stages.
        growth: Number of channels that every layer adds.
        stem: Number of channels of the first convolution.
        drop: Share of the values that dropout sets to zero in training, from 0 to below 1.

    >>> densenet121(layers=(1, 1, 2, 1), growth=4, stem=8)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    of_length(4, layers=layers)
    between(1, 200, layers=layers)
    between(1, 4_096, growth=growth, stem=stem)
    rates(drop=drop)
    return DenseNet(layers, growth, stem, drop)

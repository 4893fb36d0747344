"""Conv4: four convolutions, the smallest network of the field."""

from __future__ import annotations

from torch import Tensor, nn

from likelyshot.encoders.networks import Encoder, between, of_length, pooled, start_weights


class Conv4(Encoder):
    """Four times convolution 3 x 3, BatchNorm, ReLU and maximum over 2 x 2; then the mean over the map."""

    smallest = 16

    def __init__(self, widths: tuple[int, ...], grid: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, width in zip((3, *widths), widths, strict=False):
            convolution = nn.Conv2d(before, width, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers)
        self.grid, self.dim = grid, widths[-1] * grid * grid
        start_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images: (n, c, h, w) -> (n, dim)."""
        return pooled(self.layers(images), self.grid)


def conv4(*, widths: tuple[int, ...] = (64, 64, 64, 64), grid: int = 1) -> Conv4:
    """Build Conv4 (Vinyals et al., NeurIPS 2016), but with the mean over `grid` x `grid` cells of its last map.

    Args:
        widths: Number of channels after each of the four blocks.
        grid: Cells along a side of the last map: each is averaged on its own, and 1 averages over the whole map.

    >>> import torch
    >>> conv4(widths=(8, 8, 8, 16))(torch.rand(2, 3, 84, 84)).shape
    torch.Size([2, 16])
    """
    of_length(4, widths=widths)
    between(1, 16_384, widths=widths)
    between(1, 11, grid=grid)
    return Conv4(widths, grid)

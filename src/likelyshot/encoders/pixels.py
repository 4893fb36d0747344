"""How the pixels of images become the input of an encoder that `likelyshot train` made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from likelyshot.data.files import convert
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from likelyshot.encoders.checkpoints import Checkpoint

Middle = Annotated[float, Meta(ge=0, lt=1)]
Spread = Annotated[float, Meta(ge=1e-6, le=1e6)]

#: Mean and standard deviation of ImageNet's channels.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class Preparation(msgspec.Struct, frozen=True):
    """The size of the images that an encoder sees, and what their pixels are normalised by."""

    size: Annotated[int, Meta(ge=8, le=4_096)] = 84  # pixels that the encoder sees
    stored: Annotated[int, Meta(ge=0, le=4_096)] = 0  # pixels of the images that it is cut from; 0: as many as `size`
    mean: tuple[Middle, Middle, Middle] = MEAN  # of pixels from 0 to 1, by channel
    std: tuple[Spread, Spread, Spread] = STD

    @property
    def side(self) -> int:
        """The side of the square that is kept of an image."""
        return self.stored or self.size

    def test_input(self, images: Tensor) -> Tensor:
        """Cut out the middle square and normalise it, as for testing: (n, 3, h, w) -> (n, 3, size, size) float32."""
        return centred(images, size=self.size, mean=self.mean, std=self.std)


class _Data(Preparation, frozen=True):
    features: str = ""


class _Recipe(msgspec.Struct, frozen=True):
    data: _Data


class _Facts(msgspec.Struct, frozen=True):
    recipe: _Recipe


def trained_preparation(checkpoint: Checkpoint, where: str) -> Preparation | None:
    """Read how images became input when an encoder was trained; None for a head, which was trained on features."""
    data = convert(_Facts, dict(checkpoint.facts), f"the checkpoint {where}").recipe.data
    return None if data.features else data


def centred(
    images: Tensor, *, size: int, mean: tuple[float, float, float] = MEAN, std: tuple[float, float, float] = STD
) -> Tensor:
    """Cut out the middle square and normalise it, as for testing: (n, 3, h, w) -> (n, 3, size, size) float32.

    >>> import torch
    >>> centred(torch.full((1, 3, 4, 4), 255, dtype=torch.uint8), size=2, mean=(0.5,) * 3, std=(0.5,) * 3)[0, 0]
    tensor([[1., 1.],
            [1., 1.]])
    """
    check_images(images, size)
    top, left = (images.shape[2] - size) // 2, (images.shape[3] - size) // 2
    return normalised(unit(images[:, :, top : top + size, left : left + size]), mean, std)


def unit(images: Tensor) -> Tensor:
    """Copy images as float32 from 0 to 1."""
    import torch

    copy = images.to(torch.float32, copy=True)
    return copy.div_(255) if images.dtype == torch.uint8 else copy


def normalised(images: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float]) -> Tensor:
    """Normalise each channel, in place: fresh memory costs more than the arithmetic."""
    middle, spread = (images.new_tensor(values).view(1, 3, 1, 1) for values in (mean, std))
    return images.sub_(middle).div_(spread)


def check_images(images: Tensor, size: int, padding: int | None = 0) -> None:
    """Raise InputError unless images are RGB, bytes or floats, and with the padding at least of a size.

    Without a padding (None) they may be smaller, as they will be resized.
    """
    import torch

    shape = tuple(images.shape)
    if len(shape) != 4 or shape[1] != 3 or 0 in shape:
        raise InputError(f"expected images of shape (n, 3, h, w), got {shape}: reshape them")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise InputError(f"expected images as uint8 or float, got {images.dtype}: convert them")
    if size < 1:
        raise InputError(f"expected a size of at least 1 pixel, got {size}: raise it")
    if padding is not None and min(shape[2:]) + 2 * padding < size:
        got = f"{shape[2]} x {shape[3]}" + (f" with padding {padding}" if padding else "")
        raise InputError(f"expected images of at least {size} pixels, got {got}: decode them larger")

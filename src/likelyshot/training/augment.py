"""Random crops, flips and colours of a batch of images, drawn from a seed alone, on the device of the images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from likelyshot.encoders.pixels import MEAN, STD, check_images, normalised, unit
from likelyshot.errors import InputError

LUMA = (0.299, 0.587, 0.114)  # how much red, green and blue count for grey
RATIOS = (3 / 4, 4 / 3)  # width to height of a random crop
ATTEMPTS = 10  # to draw a crop that lies in the image; after them, the whole image


def augment(
    images: Tensor,
    seed: int,
    *,
    size: int,
    crop_scale: tuple[float, float] | None = (0.08, 1.0),
    padding: int = 0,
    flip: bool = True,
    jitter: float = 0.0,
    rows: Sequence[int] | Tensor | None = None,
    mean: tuple[float, float, float] = MEAN,
    std: tuple[float, float, float] = STD,
) -> Tensor:
    """Crop, flip and colour every image at random, then normalise it: (n, 3, h, w) -> (n, 3, size, size) float32.

    What happens to an image depends on `seed` and on its number in `rows` only: processes that share a batch draw what
    one process would, and torch's generator is not touched.

    Args:
        images: uint8, or float from 0 to 1, on any device.
        seed: Decides everything that is random.
        size: Side of the result in pixels.
        crop_scale: The crop has a share of the area between these two, sides in a ratio of 3/4 to 4/3, and is resized
            to `size`. None: a square of `size` pixels is cut out instead.
        padding: Width of the black margin that such a square may reach into.
        flip: Mirror half of the images.
        jitter: Brightness, contrast and saturation change by factors from 1 - jitter to 1 + jitter, in an order drawn
            for the batch.
        rows: A number for each image. Default: its place in the batch.
        mean: What is subtracted from pixels from 0 to 1, by channel.
        std: What they are then divided by.

    >>> augment(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), 0, size=28, crop_scale=None, padding=2).shape
    torch.Size([2, 3, 28, 28])
    """
    _check(crop_scale, padding, jitter)
    check_images(images, size, None if crop_scale else padding)
    numbers = range(len(images)) if rows is None else torch.as_tensor(rows).tolist()
    if len(numbers) != len(images):
        raise InputError(f"expected a number for each of {len(images)} images, got {len(numbers)}: give one for each")
    draws = torch.stack([_stream(seed, number) for number in numbers])
    crops, (x, y, mirror), colours = draws[:, : 2 * ATTEMPTS], draws[:, -6:-3].unbind(1), draws[:, -3:]
    height, width = images.shape[2:]
    if crop_scale is None:
        box = _square(x, y, size, padding, height, width)
    else:
        box = _resized(crops, x, y, crop_scale, height, width)
    sign = torch.where(mirror < 0.5, -1.0, 1.0) if flip else torch.ones(len(images))
    out = _cut(unit(images), box, sign, size, "zeros" if crop_scale is None else "border")
    if jitter:
        order = _stream(seed, None)[:3].argsort().tolist()
        out = _coloured(out, 1 + jitter * (2 * colours - 1), order)
    return normalised(out, mean, std)


def _stream(seed: int, row: int | None) -> Tensor:
    """Draw the numbers of one image, or of the batch, from U(0, 1)."""
    counter = [0, 0, 1, 0] if row is None else [0, 0, 0, row]
    rng = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=counter))
    return torch.from_numpy(rng.random(2 * ATTEMPTS + 6, dtype=np.float32))


def _resized(
    crops: Tensor, x: Tensor, y: Tensor, scale: tuple[float, float], height: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw boxes as torchvision's RandomResizedCrop does, but of fractional pixels: their middle and their sides."""
    area = (scale[0] + (scale[1] - scale[0]) * crops[:, :ATTEMPTS]) * height * width
    low, high = (math.log(ratio) for ratio in RATIOS)
    ratio = torch.exp(low + (high - low) * crops[:, ATTEMPTS:])
    wide, tall = (area * ratio).sqrt(), (area / ratio).sqrt()
    fits = (wide <= width) & (tall <= height)
    chosen = fits.int().argmax(1, keepdim=True)  # the first that fits
    w = torch.where(fits.any(1), wide.gather(1, chosen)[:, 0], float(width))
    h = torch.where(fits.any(1), tall.gather(1, chosen)[:, 0], float(height))
    return x * (width - w) + w / 2, y * (height - h) + h / 2, w, h


def _square(
    x: Tensor, y: Tensor, size: int, padding: int, height: int, width: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw squares at whole pixels: their middle and their sides."""
    left = (x * (width + 2 * padding - size + 1)).floor() - padding
    top = (y * (height + 2 * padding - size + 1)).floor() - padding
    side = torch.full_like(x, size)
    return left + size / 2, top + size / 2, side, side


def _cut(images: Tensor, box: tuple[Tensor, Tensor, Tensor, Tensor], sign: Tensor, size: int, beyond: str) -> Tensor:
    """Sample each box, mirrored where `sign` is negative."""
    height, width = images.shape[2:]
    x, y, w, h = box
    zero = torch.zeros_like(x)
    rows = [w / width * sign, zero, 2 * x / width - 1, zero, h / height, 2 * y / height - 1]
    affine = torch.stack(rows, dim=1).view(-1, 2, 3).to(images.device)
    grid = functional.affine_grid(affine, [len(images), 3, size, size], align_corners=False)
    return functional.grid_sample(images, grid, padding_mode=beyond, align_corners=False)


def _coloured(images: Tensor, factors: Tensor, order: list[int]) -> Tensor:
    """Change brightness, contrast and saturation by the factors (n, 3), in the given order.

    Each blends an image with another one and clamps the result: with black, with the mean of its grey image, and with
    its grey image.
    """
    red, green, blue = LUMA
    for place in order:
        factor = factors[:, place, None, None, None].to(images.device)
        if place == 0:
            images = images * factor
        else:
            grey = red * images[:, :1] + green * images[:, 1:2] + blue * images[:, 2:]
            images = torch.lerp(grey.mean((2, 3), keepdim=True) if place == 1 else grey, images, factor)
        images.clamp_(0, 1)
    return images


def _check(scale: tuple[float, float] | None, padding: int, jitter: float) -> None:
    if padding < 0 or not 0 <= jitter <= 1:
        got = f"{padding} and {jitter}"
        raise InputError(f"expected padding of at least 0 and jitter from 0 to 1, got {got}: change them")
    if scale is not None and (not 0 < scale[0] <= scale[1] <= 1 or padding):
        got = f"{scale} with padding {padding}"
        raise InputError(f"expected crop_scale with 0 < low <= high <= 1 and no padding, got {got}: change it")

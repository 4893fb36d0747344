"""Random crops, flips and colours of a batch of images, drawn from a seed alone, on the device of the images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from likelyshot.errors import InputError

#: Mean and standard deviation of ImageNet's channels.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

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
    mean: tuple[float, ...] = MEAN,
    std: tuple[float, ...] = STD,
) -> Tensor:
    """Crop, flip and colour every image at random, then normalise it: (n, 3, h, w) -> (n, 3, size, size) float32.

    With `crop_scale`, a crop of that share of the area, its sides in a ratio of 3/4 to 4/3, is resized to `size`.
    Without it, a square of `size` is cut out of the image within a black margin of `padding`. Brightness, contrast and
    saturation change by factors from 1 - jitter to 1 + jitter, in an order drawn for the batch.

    Images are uint8, or float from 0 to 1. What happens to an image depends on `seed` and on its number in `rows` alone
    (its place in the batch by default): processes that share a batch draw what one process would.

    >>> augment(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), 0, size=28, crop_scale=None, padding=2).shape
    torch.Size([2, 3, 28, 28])
    """
    _check(images, size, crop_scale, padding, jitter)
    numbers = range(len(images)) if rows is None else torch.as_tensor(rows).tolist()
    if len(numbers) != len(images):
        raise InputError(f"expected a number for each of {len(images)} images, but got {len(numbers)}: give all")
    draws = torch.stack([_stream(seed, number) for number in numbers])
    crops, (x, y, mirror), colours = draws[:, : 2 * ATTEMPTS], draws[:, -6:-3].unbind(1), draws[:, -3:]
    height, width = images.shape[2:]
    if crop_scale is None:
        box = _square(x, y, size, padding, height, width)
    else:
        box = _resized(crops, x, y, crop_scale, height, width)
    sign = torch.where(mirror < 0.5, -1.0, 1.0) if flip else torch.ones(len(images))
    out = _cut(_unit(images), box, sign, size, "zeros" if crop_scale is None else "border")
    if jitter:
        order = _stream(seed, None)[:3].argsort().tolist()
        out = _coloured(out, 1 + jitter * (2 * colours - 1), order)
    return _normalise(out, mean, std)


def centred(images: Tensor, *, size: int, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    """Cut out the middle square and normalise, as for testing: (n, 3, h, w) -> (n, 3, size, size) float32.

    >>> centred(torch.full((1, 3, 4, 4), 255, dtype=torch.uint8), size=2, mean=(0.5,) * 3, std=(0.5,) * 3)[0, 0]
    tensor([[1., 1.],
            [1., 1.]])
    """
    _check(images, size, None, 0, 0.0)
    top, left = (images.shape[2] - size) // 2, (images.shape[3] - size) // 2
    return _normalise(_unit(images[:, :, top : top + size, left : left + size]), mean, std)


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
    """Change brightness, contrast and saturation by the factors (n, 3), in the given order."""
    try:
        from kornia import enhance
    except ImportError:
        raise InputError("jitter needs the package kornia: pip install kornia, or set jitter to 0") from None
    changes = (
        enhance.adjust_brightness_accumulative,
        enhance.adjust_contrast_with_mean_subtraction,
        enhance.adjust_saturation_with_gray_subtraction,
    )
    factors = factors.to(images.device)
    for place in order:
        images = changes[place](images, factors[:, place])
    return images


def _unit(images: Tensor) -> Tensor:
    """Copy images as float32 from 0 to 1."""
    copy = images.to(torch.float32, copy=True)
    return copy.div_(255) if images.dtype == torch.uint8 else copy


def _normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Normalise each channel, in place: fresh memory costs more than the arithmetic."""
    middle, spread = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (mean, std))
    return images.sub_(middle).div_(spread)


def _check(images: Tensor, size: int, scale: tuple[float, float] | None, padding: int, jitter: float) -> None:
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[1] != 3 or 0 in shape:
        raise InputError(f"expected images of shape (n, 3, h, w), but got {shape}: reshape them")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise InputError(f"expected images as uint8 or float, but got {images.dtype}: convert them")
    if size < 1 or padding < 0 or not 0 <= jitter <= 1:
        got = f"{size}, {padding} and {jitter}"
        raise InputError(
            f"expected size of 1 or more, padding of 0 or more, jitter from 0 to 1, but got {got}: mend them"
        )
    if scale is not None and (not 0 < scale[0] <= scale[1] <= 1 or padding):
        got = f"{scale} with padding {padding}"
        raise InputError(f"expected crop_scale with 0 < low <= high <= 1 and no padding, but got {got}: mend it")
    if scale is None and min(shape[2:]) + 2 * padding < size:
        got = f"{shape[2]} x {shape[3]} with padding {padding}"
        raise InputError(f"expected images of {size} pixels or more, but got {got}: decode them larger")

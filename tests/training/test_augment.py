from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from likelyshot.encoders.pixels import MEAN, STD, centred
from likelyshot.errors import InputError
from likelyshot.training.augment import _coloured, _stream, augment

RAW = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # leave values as they are


def noise(n=6, side=8, seed=0):
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def ramps(n, side):
    """Make images whose values tell where a pixel comes from: x in channel 0, y in channel 1."""
    places = (torch.arange(side) + 0.5) / side
    return torch.stack([places.expand(side, side), places[:, None].expand(side, side), torch.zeros(side, side)]).repeat(
        n, 1, 1, 1
    )


@pytest.mark.parametrize("jitter", [0.0, 0.4])
@pytest.mark.parametrize("options", [{}, {"crop_scale": None, "padding": 2}])
def test_the_seed_and_the_numbers_of_images_say_everything(options, jitter):
    images = noise(12)
    torch.manual_seed(0)
    before = torch.get_rng_state()

    def run(rows, seed=5):
        return augment(images[rows], seed, size=8, jitter=jitter, rows=rows, **options)

    whole = run(list(range(12)))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(whole, augment(images, 5, size=8, jitter=jitter, **options))
    torch.testing.assert_close(torch.cat([run([0, 1, 2]), run(torch.arange(3, 12))]), whole)
    torch.testing.assert_close(run([7, 0, 11]), whole[[7, 0, 11]])
    assert not torch.allclose(run(list(range(12)), seed=6), whole)
    same = augment(images[:1].expand(12, -1, -1, -1), 5, size=8, jitter=jitter, **options)
    assert len({tuple(image.flatten().tolist()) for image in same}) > 6


def test_images_are_not_changed():
    for images in (noise(), noise().float() / 255):
        kept = images.clone()
        augment(images, 0, size=8)
        centred(images, size=8)
        assert torch.equal(images, kept)


def test_bytes_and_floats_are_the_same_images():
    torch.testing.assert_close(augment(noise(), 3, size=8), augment(noise().double() / 255, 3, size=8))


@settings(max_examples=20, deadline=None)
@given(st.integers(-(2**63), 2**64), st.integers(0, 3), st.integers(3, 8), st.booleans())
def test_a_padded_crop_is_one_of_all_crops(seed, padding, size, flip):
    images = noise(4, 6)
    size = min(size, 6 + 2 * padding)
    out = augment(images, seed, size=size, crop_scale=None, padding=padding, flip=flip, **RAW)
    padded = np.pad(images.numpy() / 255, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    for image, cut in zip(padded, out.numpy(), strict=True):
        places = range(image.shape[1] - size + 1)
        crops = [image[:, y : y + size, x : x + size] for y in places for x in places]
        crops += [crop[:, :, ::-1] for crop in crops] if flip else []
        assert min(np.abs(crop - cut).max() for crop in crops) < 1e-4


def test_padded_crops_are_uniform():
    out = augment(ramps(5000, 4), 0, size=4, crop_scale=None, padding=1, flip=False, **RAW)
    x = (out[:, 0].amax((1, 2)) * 4).round()  # 3.5 -> 4 where the right column is inside, else 2.5 -> 2
    first = (out[:, 0, 1, 0] == 0).float().mean().item()  # the left column is outside
    assert first == pytest.approx(1 / 3, abs=0.03)
    assert (x == 2).float().mean().item() == pytest.approx(1 / 3, abs=0.03)


def test_resized_crops_lie_in_the_image_and_have_the_areas_and_ratios_asked_for():
    out = augment(ramps(4000, 32), 1, size=16, crop_scale=(0.2, 0.6), **RAW)
    step = (out[:, 0, 8, 8] - out[:, 0, 8, 7], out[:, 1, 8, 8] - out[:, 1, 7, 8])
    width, height = step[0].abs() * 16, step[1].abs() * 16
    assert (step[1] > 0).all()  # never upside down
    assert (step[0] < 0).float().mean().item() == pytest.approx(0.5, abs=0.03)
    area, ratio = width * height, width / height
    assert 0.2 <= area.min() + 1e-3 < 0.21
    assert 0.59 < area.max() - 1e-3 <= 0.6
    assert area.mean().item() == pytest.approx(0.4, abs=0.01)
    assert ratio.log().mean().item() == pytest.approx(0.0, abs=0.01)
    assert 3 / 4 - 1e-3 <= ratio.min() < 0.76
    assert 1.32 < ratio.max() <= 4 / 3 + 1e-3
    middle = (out[:, :2, 7:9, 7:9]).mean((2, 3))
    low, high = middle - torch.stack([width, height], 1) / 2, middle + torch.stack([width, height], 1) / 2
    assert low.min() > -1e-3
    assert high.max() < 1 + 1e-3
    assert (low < 0.05).any()
    assert (high > 0.95).any()


def test_a_crop_that_cannot_be_drawn_is_the_whole_image():
    images = noise(50)
    out = augment(images, 0, size=8, crop_scale=(1.0, 1.0), flip=False, **RAW)
    torch.testing.assert_close(out, images / 255, rtol=0, atol=1e-4)


def test_the_border_of_a_resized_crop_is_not_darkened():
    out = augment(torch.ones(50, 3, 8, 8), 0, size=32, **RAW)
    torch.testing.assert_close(out, torch.ones_like(out))


def test_without_flip_nothing_is_mirrored():
    out = augment(ramps(200, 16), 0, size=16, flip=False, **RAW)
    assert (out[:, 0, 8, 15] > out[:, 0, 8, 0]).all()


def test_colours_change_as_defined():
    images = (noise(8, 6).double() / 255).numpy()
    for seed in range(4):
        order = np.argsort(_stream(seed, None)[:3].numpy())
        out = augment(torch.from_numpy(images), seed, size=6, crop_scale=None, flip=False, jitter=0.4, **RAW).numpy()
        for row, image in enumerate(images):
            expected = image
            for change in order:
                factor = 1 + 0.4 * (2 * float(_stream(seed, row)[-3:][change]) - 1)
                grey = (np.array([0.299, 0.587, 0.114])[:, None, None] * expected).sum(0)
                other = (0.0, grey.mean(), grey)[change]  # darkness, an even grey, the grey image
                expected = np.clip(factor * expected + (1 - factor) * other, 0, 1)
            np.testing.assert_allclose(out[row], expected, atol=1e-5)
    orders = {tuple(_stream(seed, None)[:3].argsort().tolist()) for seed in range(60)}
    assert len(orders) == 6


def test_colours_change_as_in_pillow():
    factors = torch.tensor([[0.7, 1.3, 0.6], [1.4, 0.6, 1.4], [1.0, 1.0, 1.0]])
    images = noise(3, 32)
    for place, change in enumerate((ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)):
        ours = 255 * _coloured(images / 255, factors, [place])
        for row, image in enumerate(images):
            picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
            expected = np.asarray(change(picture).enhance(float(factors[row, place]))).transpose(2, 0, 1)
            np.testing.assert_allclose(ours[row].numpy(), expected, atol=1.5)  # of 255: Pillow rounds


def test_centred_cuts_out_the_middle():
    images = noise(3, 9)
    expected = images[:, :, 2:7, 2:7] / 255
    for channel in range(3):
        expected[:, channel] = (expected[:, channel] - MEAN[channel]) / STD[channel]
    torch.testing.assert_close(centred(images, size=5), expected)
    torch.testing.assert_close(centred(images / 255, size=9)[:, :, 2:7, 2:7], expected)


def test_augmented_images_are_normalised_likewise():
    images = torch.full((4, 3, 8, 8), 51, dtype=torch.uint8)
    torch.testing.assert_close(augment(images, 0, size=8), centred(images, size=8))


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (torch.zeros(3, 8, 8), {}, "shape"),
        (torch.zeros(2, 1, 8, 8), {}, "shape"),
        (torch.zeros(0, 3, 8, 8), {}, "shape"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), {}, "uint8 or float"),
        (torch.zeros(2, 3, 8, 8), {"size": 0}, "size of at least 1"),
        (torch.zeros(2, 3, 8, 8), {"jitter": 1.5}, "jitter from 0 to 1"),
        (torch.zeros(2, 3, 8, 8), {"padding": -1, "crop_scale": None}, "padding of at least 0"),
        (torch.zeros(2, 3, 8, 8), {"padding": 1}, "no padding"),
        (torch.zeros(2, 3, 8, 8), {"crop_scale": (0.5, 0.2)}, "low <= high"),
        (torch.zeros(2, 3, 8, 8), {"crop_scale": (0.0, 1.0)}, "0 < low"),
        (torch.zeros(2, 3, 8, 8), {"crop_scale": None, "size": 11, "padding": 1}, "at least 11 pixels"),
        (torch.zeros(2, 3, 8, 8), {"rows": [1]}, "a number for each of 2"),
    ],
)
def test_bad_input_is_refused(images, options, message):
    with pytest.raises(InputError, match=message):
        augment(images, 0, **{"size": 8, **options})


def test_an_image_too_small_to_cut_is_refused():
    with pytest.raises(InputError, match="at least 9 pixels"):
        centred(noise(), size=9)

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.data.datasets import decoded, open_images
from likelyshot.errors import InputError


def test_the_middle_square_is_resized(folder):
    images = open_images(folder)
    out = decoded(images, 6)
    assert (out.pixels.dtype, tuple(out.pixels.shape)) == (torch.uint8, (150, 3, 6, 6))
    assert torch.equal(out.labels, images.labels)
    assert out.classes == images.classes
    for i in (0, 1, 77):
        image = images.read(i)
        side = min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        square = image.resize((6, 6), Image.Resampling.BILINEAR, box=box)
        assert np.array_equal(out.pixels[i].permute(1, 2, 0), square)


def test_square_images_of_the_size_stay_as_they_are(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    assert np.array_equal(decoded(open_images(tmp_path), 8).pixels[0].permute(1, 2, 0), pixels)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "I;16", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    (tmp_path / "a").mkdir()
    grey = Image.linear_gradient("L").resize((8, 8))
    image = Image.new("I;16", (8, 8), 0x8000) if mode == "I;16" else grey.convert(mode)
    image.save(tmp_path / "a" / ("x.tif" if mode == "CMYK" else "x.png"))
    pixels = decoded(open_images(tmp_path), 8).pixels[0].int()
    assert pixels.shape == (3, 8, 8)
    expected = torch.full((8, 8), 128) if mode == "I;16" else torch.from_numpy(np.array(image.convert("L")).astype(int))
    assert (pixels - expected).abs().max() <= 2


def test_threads_do_not_matter_and_progress_adds_up(folder, monkeypatch):
    images, steps = open_images(folder), []
    many = decoded(images, 7, progress=steps.append)
    monkeypatch.setattr("likelyshot.machine.cores", lambda: 1)
    assert torch.equal(decoded(images, 7).pixels, many.pixels)
    assert sum(steps) == 150
    assert len(steps) > 1


def test_an_archive_has_the_pixels_of_the_folder(folder, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in folder.rglob("*.png"):
            archive.write(path, path.relative_to(folder))
    assert torch.equal(decoded(open_images(tmp_path / "a.zip"), 7).pixels, decoded(open_images(folder), 7).pixels)


def test_unreadable_images_are_reported_together(folder):
    files = sorted(folder.rglob("*.png"))
    for path in files[:12]:
        path.write_bytes(path.read_bytes()[:60])
    files[20].write_bytes(b"")
    with pytest.raises(InputError, match=r"cannot read 13 of the images, 'a/000.png' \(") as caught:
        decoded(open_images(folder), 7)
    assert str(caught.value).count(".png'") == 10
    assert "and 3 more" in str(caught.value)


def test_unreadable_images_are_skipped_if_asked(folder):
    whole = decoded(open_images(folder), 7)
    names = open_images(folder).names
    (folder / names[3]).write_bytes(b"")
    (folder / names[70]).write_text("no image")
    (folder / names[71]).unlink()
    (folder / names[71]).symlink_to(folder / names[70])
    images = open_images(folder, skip_unreadable=True)
    out = decoded(images, 7)
    kept = [i for i in range(150) if i not in (3, 70, 71)]
    assert torch.equal(out.pixels, whole.pixels[kept])
    assert torch.equal(out.labels, whole.labels[kept])
    assert [problem.name for problem in out.problems] == [names[3], names[70], names[71]]
    assert out.problems[0].kind == "empty file"


def test_a_set_without_any_readable_image_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_text("no image")
    with pytest.raises(InputError, match="not an image"):
        decoded(open_images(tmp_path, skip_unreadable=True), 7)


def test_a_size_of_nothing_is_refused(folder):
    with pytest.raises(InputError, match="at least 1 pixel"):
        decoded(open_images(folder), 0)

from __future__ import annotations

import contextlib
import io
import os
import struct
import threading
import warnings
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from likelyshot.data import images
from likelyshot.data.images import READABLE, SUFFIXES, ImageError, find_images, read_bytes, read_image
from likelyshot.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def photo(kind: str = "JPEG", size=(30, 20)) -> bytes:
    return saved(Image.fromarray(PIXELS).resize(size), kind)


def kind_of(data) -> str:
    with pytest.raises(ImageError) as caught:
        read_image(data, "picture.jpg")
    assert "picture.jpg" in str(caught.value)
    return caught.value.kind


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that claims a size, with next to nothing in it."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


class TestReading:
    @pytest.mark.parametrize("kind", [kind for kind in READABLE if kind != "ICO"])
    def test_every_format_gives_the_picture(self, kind):
        smooth = Image.fromarray(np.linspace(0, 255, 64 * 64 * 3).reshape(64, 64, 3).astype(np.uint8))
        source = smooth.quantize() if kind == "GIF" else smooth
        read = read_image(saved(source, kind))
        assert (read.mode, read.size) == ("RGB", (64, 64))
        assert np.abs(np.asarray(read, int) - np.asarray(smooth, int)).mean() < 12

    def test_paths_bytes_and_files_are_the_same(self, tmp_path):
        path = tmp_path / "a.png"
        path.write_bytes(photo("PNG"))
        with path.open("rb") as file:
            for read in (read_image(path), read_image(path.read_bytes()), read_image(file, "a")):
                assert np.array_equal(np.asarray(read), PIXELS)

    def test_orientation_is_applied(self):
        for orientation, turned in {1: PIXELS, 3: PIXELS[::-1, ::-1], 6: PIXELS.transpose(1, 0, 2)[:, ::-1]}.items():
            exif = Image.Exif()
            exif[0x0112] = orientation
            read = read_image(saved(Image.fromarray(PIXELS), exif=exif))
            assert np.array_equal(np.asarray(read), turned), orientation

    def test_senseless_exif_is_passed_over(self):
        for exif in (b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12"):
            assert read_image(saved(Image.fromarray(PIXELS), "JPEG", exif=exif)).size == (30, 20)

    def test_what_is_transparent_lies_over_white(self):
        colours = Image.new("RGBA", (2, 1), (200, 0, 0, 255))
        colours.putpixel((1, 0), (200, 0, 0, 51))  # a fifth red: 255 + (c - 255) / 5
        assert np.asarray(read_image(saved(colours))).tolist() == [[[200, 0, 0], [244, 204, 204]]]
        grey = Image.new("LA", (1, 1), (0, 0))
        assert read_image(saved(grey)).getpixel((0, 0)) == (255, 255, 255)
        palette = Image.new("P", (1, 1), 3)
        palette.putpalette([10] * 768)
        assert read_image(saved(palette)).getpixel((0, 0)) == (10, 10, 10)
        assert read_image(saved(palette, transparency=3)).getpixel((0, 0)) == (255, 255, 255)
        assert read_image(saved(palette, "GIF", transparency=3)).getpixel((0, 0)) == (255, 255, 255)

    def test_deep_images_keep_their_range(self):
        ramp = np.array([[0, 255, 256, 32768, 65535]], np.uint16)
        expected = [[0, 0, 1, 128, 255]]
        for kind in ("PNG", "TIFF"):
            assert np.asarray(read_image(saved(Image.fromarray(ramp), kind)))[..., 0].tolist() == expected
        for values in (np.float32([[0, 0.5, 1]]), np.float32([[-1000, 0, 1000]]), np.int32([[5, 505, 1005]])):
            assert np.asarray(read_image(saved(Image.fromarray(values), "TIFF")))[..., 1].tolist() == [[0, 128, 255]]
        assert np.asarray(read_image(saved(Image.fromarray(np.float32([[7, 255]])), "TIFF")))[0, :, 0].tolist() == [
            7,
            255,
        ]
        odd = np.float32([[np.nan, np.inf, -3, -3]])
        assert np.asarray(read_image(saved(Image.fromarray(odd), "TIFF"))).tolist() == [[[255] * 3] * 2 + [[0] * 3] * 2]
        assert not np.asarray(read_image(saved(Image.fromarray(odd[:, 2:]), "TIFF"))).any()

    def test_other_colours(self):
        assert read_image(saved(Image.new("CMYK", (1, 1), (0, 0, 0, 255)), "TIFF")).getpixel((0, 0)) == (0, 0, 0)
        assert read_image(saved(Image.new("1", (1, 1), 1))).getpixel((0, 0)) == (255, 255, 255)
        assert max(read_image(saved(Image.new("CMYK", (8, 8), (0, 0, 0, 255)), "JPEG")).getpixel((4, 4))) < 10

    def test_the_first_frame_of_an_animation(self):
        frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
        for kind in ("GIF", "PNG", "WEBP", "TIFF"):
            data = saved(
                frames[0],
                kind,
                save_all=True,
                append_images=frames[1:],
                **({"lossless": True} if kind == "WEBP" else {}),
            )
            assert read_image(data).getpixel((1, 1)) == (255, 0, 0), kind

    def test_a_side_has_large_jpegs_decoded_smaller(self):
        data = photo(size=(800, 600))
        assert read_image(data).size == (800, 600)
        assert read_image(data, side=301).size == (800, 600)
        for side, width in ((150, 400), (149, 400), (75, 200), (37, 100), (1, 100)):
            small = read_image(data, side=side)
            assert small.width == width
            assert min(small.size) >= 2 * side
        assert read_image(photo("PNG", (800, 600)), side=10).size == (800, 600)


class TestBadImages:
    def test_what_is_wrong_is_said(self):
        jpeg = photo(size=(200, 200))
        assert kind_of(b"") == "empty file"
        assert kind_of(b"hello, I am a text") == "not an image"
        assert kind_of(b"%PDF-1.4 ...") == "not an image"
        assert kind_of(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n") == "not an image"
        assert kind_of(jpeg[: len(jpeg) // 2]) == "truncated image"
        assert kind_of(jpeg[:20]) == "damaged image"
        assert kind_of(photo("PNG", (200, 200))[:-2000]) == "truncated image"
        assert kind_of(png_of_size(200, 200)) in ("truncated image", "damaged image")

    @pytest.mark.parametrize("size", [(10_001, 10_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
    def test_bombs_are_too_large(self, size):
        assert kind_of(png_of_size(*size)) == "too large"

    def test_a_large_jpeg_is_decoded_at_half_its_size(self, monkeypatch):
        monkeypatch.setattr(images, "MAX_PIXELS", 10_000)
        data = photo(size=(180, 180))
        assert read_image(data).size == (90, 90)
        assert kind_of(photo("PNG", (180, 180))) == "too large"
        assert kind_of(photo(size=(300, 300))) == "too large"
        assert (
            kind_of(saved(read_image(photo(size=(100, 100))).resize((180, 180)), "JPEG", progressive=True))
            == "too large"
        )

    def test_files_that_cannot_be_read(self, tmp_path, monkeypatch):
        for path, kind in (
            (tmp_path / "absent.jpg", "missing file"),
            (tmp_path, "not a regular file"),
            (tmp_path / ("x" * 300), "unreadable file"),
            (tmp_path / "a\0b", "unreadable file"),
        ):
            with pytest.raises(ImageError) as caught:
                read_bytes(path)
            assert caught.value.kind == kind
        (tmp_path / "empty").write_bytes(b"")
        (tmp_path / "large").write_bytes(b"12345")
        monkeypatch.setattr(images, "MAX_BYTES", 4)
        for name, kind in (("empty", "empty file"), ("large", "too large")):
            with pytest.raises(ImageError) as caught:
                read_image(tmp_path / name)
            assert caught.value.kind == kind

    @settings(max_examples=150, deadline=None)
    @given(
        kind=st.sampled_from([kind for kind in READABLE if kind not in ("ICO", "AVIF")]),
        cut=st.floats(0, 1),
        flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(1, 255)), max_size=8),
    )
    def test_damaged_bytes_give_an_image_or_an_image_error(self, kind, cut, flips):
        data = bytearray(photo(kind))
        for where, value in flips:
            data[int(where * len(data))] ^= value
        with contextlib.suppress(ImageError):
            assert read_image(bytes(data[: int(cut * len(data))])).mode == "RGB"

    def test_warnings_do_not_escape_from_threads(self):
        data = saved(Image.fromarray(PIXELS), "TIFF")
        broken = data[:4] + b"\xff\xff\xff\xff" + data[8:]
        palette = Image.new("P", (9, 9), 3)
        palette.putpalette([10] * 768)
        odd = saved(palette, transparency=bytes(range(10)))
        start = threading.Barrier(4)

        def work(_):
            start.wait()
            for source in [odd, broken, data] * 20:
                with contextlib.suppress(ImageError):
                    read_image(source)

        with warnings.catch_warnings(record=True) as seen, ThreadPoolExecutor(4) as pool:
            warnings.simplefilter("always")
            list(pool.map(work, range(4)))
        assert seen == []


class TestFinding:
    def test_images_anywhere_in_order(self, tmp_path):
        names = ["b/c/2.JPG", "b/c/10.png", "a.webp", "b.gif", "b/odd, name\n🐦.jpeg", "=cmd.tif"]
        for name in [*names, ".hidden.jpg", ".folder/x.jpg", "b/.DS_Store"]:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo("PNG"))
        found, problems = find_images(tmp_path)
        assert found == sorted(tmp_path / name for name in names)
        assert problems == []
        assert all(read_image(path).size == (30, 20) for path in found)

    def test_names_that_are_not_unicode(self, tmp_path):
        name = os.fsencode(tmp_path) + b"/\xff\xfe.jpg"
        try:
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(photo())
        except OSError:
            pytest.skip("file names are Unicode here")
        (found,), _ = find_images(tmp_path)
        assert read_image(found).size == (30, 20)

    def test_what_is_not_an_image_is_reported(self, tmp_path):
        inside, outside = tmp_path / "in", tmp_path / "out"
        for folder in (inside / "real", outside):
            folder.mkdir(parents=True)
            (folder / "x.jpg").write_bytes(photo())
        (inside / "notes.txt").write_text("hello")
        (inside / "README").write_text("hello")
        (inside / "up.lnk").symlink_to(inside)
        (inside / "real" / "round").symlink_to("..")
        (inside / "self.jpg").symlink_to("self.jpg")
        (inside / "gone.jpg").symlink_to("nowhere.jpg")
        (inside / "out.jpg").symlink_to(outside / "x.jpg")
        (inside / "away").symlink_to(outside)
        (inside / "twin").symlink_to("real")
        (inside / "good.jpg").symlink_to(inside / "real" / "x.jpg")
        os.mkfifo(inside / "pipe.jpg")
        found, problems = find_images(inside)
        assert [str(path.relative_to(inside)) for path in found] == ["good.jpg", "real/x.jpg"]
        kinds = {os.path.relpath(problem.name, inside): problem.kind for problem in problems}
        assert kinds == {
            "notes.txt": "unsupported file",
            "README": "unsupported file",
            "up.lnk": "symlink loop",
            "real/round": "symlink loop",
            "self.jpg": "symlink loop",
            "gone.jpg": "broken link",
            "out.jpg": "link leaves the folder",
            "away": "link leaves the folder",
            "twin": "linked folder",
            "pipe.jpg": "not a regular file",
        }
        assert list(kinds) == sorted(kinds, key=lambda name: str(inside / name))

    def test_a_folder_may_be_a_link_itself(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "x.jpg").write_bytes(photo())
        (tmp_path / "real" / "y.jpg").symlink_to("x.jpg")
        (tmp_path / "link").symlink_to("real")
        found, problems = find_images(tmp_path / "link")
        assert found == [tmp_path / "link" / "x.jpg", tmp_path / "link" / "y.jpg"]
        assert problems == []

    def test_a_folder_that_cannot_be_listed(self, tmp_path, monkeypatch):
        (tmp_path / "closed").mkdir()
        (tmp_path / "x.jpg").write_bytes(b"")
        scan = os.scandir

        def refuse(path):
            if str(path).endswith("closed"):
                raise PermissionError(13, "Permission denied")
            return scan(path)

        monkeypatch.setattr(os, "scandir", refuse)
        found, problems = find_images(tmp_path)
        assert len(found) == 1
        assert Counter(problem.kind for problem in problems) == {"unreadable folder": 1}

    def test_no_folder(self, tmp_path):
        with pytest.raises(InputError, match="not there"):
            find_images(tmp_path / "absent")
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="a file"):
            find_images(tmp_path / "file")


def test_suffixes_are_lower_case_and_the_usual_ones_are_there():
    assert {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff"} <= SUFFIXES
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in SUFFIXES)

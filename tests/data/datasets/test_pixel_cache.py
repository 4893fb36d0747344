"""Pixels in a file are those in memory, whatever became of the file or of the images before."""

from __future__ import annotations

import io
import os
import sys
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.data.datasets import cached, decoded, open_images, pixel_cache
from likelyshot.errors import InputError
from processes import Child


@pytest.fixture
def written(monkeypatch):
    """Count how often something is decoded."""
    real, calls = pixel_cache.decode, []

    def decode(*arguments, **options):
        calls.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(pixel_cache, "decode", decode)
    return calls


def same(one, other):
    return (
        torch.equal(one.pixels, other.pixels)
        and torch.equal(one.labels, other.labels)
        and (one.classes, one.problems) == (other.classes, other.problems)
    )


def test_it_is_decoded_once_and_read_from_the_file(folder, tmp_path, written, monkeypatch):
    images, steps = open_images(folder), []
    first = cached(images, 7, tmp_path / "cache", progress=steps.append)
    assert same(first, decoded(images, 7))
    assert sum(steps) == 150
    assert len(steps) > 1
    monkeypatch.setattr(pixel_cache, "output_folder", None)  # a folder that can only be read will do
    again = cached(open_images(folder), 7, tmp_path / "cache", progress=steps.append)
    assert same(again, first)
    assert sum(steps) == 150
    assert len(written) == 1
    names = sorted(path.suffix for path in (tmp_path / "cache").iterdir())
    assert names == [".json", ".npy"]  # and nothing temporary


def test_the_file_is_plain_and_never_written_through(folder, tmp_path):
    found = cached(open_images(folder), 7, tmp_path / "cache")
    [path] = (tmp_path / "cache").glob("*.npy")
    before = path.read_bytes()
    plain = np.load(path)
    assert (plain.shape, plain.dtype) == ((150, 3, 7, 7), np.uint8)
    assert np.array_equal(plain, found.pixels.numpy())
    found.pixels.zero_()
    assert path.read_bytes() == before


def test_every_change_is_seen(folder, tmp_path, written):
    cache = tmp_path / "cache"

    def count(size=7):
        cached(open_images(folder), size, cache)
        return len(written)

    assert count() == 1
    file = folder / "a" / "000.png"
    Image.new("RGB", (9, 9), "red").save(file)
    assert count() == 2
    assert np.array_equal(cached(open_images(folder), 7, cache).pixels[0, 0], np.full((7, 7), 255))
    os.utime(file, ns=(1, 1))
    assert count() == 3
    file.rename(folder / "b" / "000.png")
    assert count() == 4
    assert count(size=8) == 5
    assert count() == 5


def test_the_classes_belong_to_it(folder, tmp_path):
    """The same images by other names of their classes are another data set."""
    names = open_images(folder).names
    for label in ("bird", "plane"):
        (tmp_path / label).mkdir()
        rows = [f"{name},{label}" for name in names]
        (tmp_path / label / "train.csv").write_text("\n".join(["filename,label", *rows]))
        images = open_images(folder, split="train", splits=tmp_path / label)
        found = cached(images, 7, tmp_path / "cache")
        assert same(found, decoded(images, 7))
        assert found.classes == (label,)
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


def test_an_archive_is_known_by_its_size_and_time(folder, tmp_path, written):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*.png"):
            archive.write(file, file.relative_to(folder))
    for _ in range(2):
        assert same(cached(open_images(path), 7, tmp_path / "cache"), decoded(open_images(folder), 7))
    assert len(written) == 1
    os.utime(path, ns=(1, 1))
    cached(open_images(path), 7, tmp_path / "cache")
    assert len(written) == 2


def damaged(data):
    foreign = io.BytesIO()
    np.save(foreign, np.zeros((150, 3, 7, 7), np.float32))
    return {
        "truncated": data[:-1],
        "longer": data + b"x",
        "empty": b"",
        "no npy": b"something else" * 100,
        "of another shape": data.replace(b"(150, 3, 7, 7)", b"(7, 150, 3, 7)"),
        "of another kind": data.replace(b"|u1", b"|i1"),
        "foreign": foreign.getvalue(),
    }


@pytest.mark.parametrize("how", damaged(b""))
def test_a_damaged_or_foreign_file_is_decoded_anew(folder, tmp_path, written, how):
    images = open_images(folder)
    expected = decoded(images, 7)
    cached(images, 7, tmp_path / "cache")
    [path] = (tmp_path / "cache").glob("*.npy")
    path.write_bytes(damaged(path.read_bytes())[how])
    assert same(cached(images, 7, tmp_path / "cache"), expected)
    assert len(written) == 2
    cached(images, 7, tmp_path / "cache")
    assert len(written) == 2


@pytest.mark.parametrize("notes", [None, b"", b"[1, 2]", b'{"500": ["a", "b"]}', b'{"0": 3}', b"[" * 100_000])
def test_pixels_without_sound_notes_are_decoded_anew(folder, tmp_path, written, notes):
    images = open_images(folder)
    cached(images, 7, tmp_path / "cache")
    [path] = (tmp_path / "cache").glob("*.json")
    path.unlink() if notes is None else path.write_bytes(notes)
    assert same(cached(images, 7, tmp_path / "cache"), decoded(images, 7))
    assert len(written) == 2


def test_rows_and_labels_stay_right_where_images_were_left_out(folder, tmp_path, written):
    names = open_images(folder).names
    (folder / names[3]).write_bytes(b"")
    (folder / names[70]).write_text("no image")
    (folder / names[149]).write_text("no image")
    images = open_images(folder, skip_unreadable=True)
    expected = decoded(images, 7)
    assert [problem.name for problem in expected.problems] == [names[3], names[70], names[149]]
    for _ in range(2):
        found = cached(images, 7, tmp_path / "cache")
        assert same(found, expected)
        assert found.pixels.shape == (147, 3, 7, 7)
    assert len(written) == 1
    # and whoever does not want them left out hears of them, from the file too
    with pytest.raises(InputError, match=r"cannot read 3 of the images, 'a/009.png' \(empty file\)"):
        cached(open_images(folder), 7, tmp_path / "cache")
    assert len(written) == 1


def test_many_unreadable_images_in_a_row(folder, tmp_path):
    for name in open_images(folder).names[64:140]:  # a whole chunk and more
        (folder / name).write_bytes(b"")
    images = open_images(folder, skip_unreadable=True)
    for _ in range(2):
        assert same(cached(images, 7, tmp_path / "cache"), decoded(images, 7))
    assert len(decoded(images, 7)) == 74


def test_what_cannot_be_used_leaves_nothing(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    (folder / open_images(folder).names[3]).write_bytes(b"")
    with pytest.raises(InputError, match="cannot read 1 of the images"):
        cached(open_images(folder), 7, cache)
    assert list(cache.iterdir()) == []

    def interrupted(images, size, keep, **options):
        keep(np.zeros((2, 3, size, size), np.uint8))
        raise KeyboardInterrupt

    def full(images, size, keep, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pixel_cache, "decode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached(open_images(folder), 7, cache)
    monkeypatch.setattr(pixel_cache, "decode", full)
    with pytest.raises(InputError, match=r"cannot write .* \(No space left on device\): choose another place"):
        cached(open_images(folder), 7, cache)
    assert list(cache.iterdir()) == []
    usage = type("Usage", (), {"free": 150 * 3 * 49 - 1})
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: usage)
        with pytest.raises(InputError, match=r"expected 0.0 GB for the pixels, but 0.0 GB are free in .*cache"):
            cached(open_images(folder), 7, cache)
    with pytest.raises(InputError, match="is a file"):
        cached(open_images(folder), 7, folder / "a" / "000.png")
    with pytest.raises(InputError, match="at least 1 pixel"):
        cached(open_images(folder), 0, cache)


MEMORY = """
import re, sys
from pathlib import Path
from likelyshot.data.datasets import cached, decoded, open_images

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

images = open_images(sys.argv[1])
decoded(open_images(sys.argv[2]), 128)  # what the first image alone brings with it
start = peak()
found = cached(images, 128, sys.argv[3])
mapped = peak()
kept = decoded(images, 128)
print(len(found), mapped - start, peak() - mapped)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.processes
def test_memory_stays_bounded_while_it_is_decoded(tmp_path):
    """A made-up set of 101 MB decoded."""
    (tmp_path / "one" / "a").mkdir(parents=True)
    Image.new("RGB", (8, 8), "red").save(tmp_path / "one" / "a" / "x.png")
    data = (tmp_path / "one" / "a" / "x.png").read_bytes()
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for i in range(2048):
            archive.writestr(f"a/{i:04}.png", data)
    child = Child(MEMORY, *(str(tmp_path / name) for name in ("many.zip", "one", "cache")), folder=tmp_path)
    assert child.wait() == 0, child.err
    count, mapped, in_memory = map(float, child.out.split())
    assert count == 2048
    assert mapped < 40
    assert in_memory > 60

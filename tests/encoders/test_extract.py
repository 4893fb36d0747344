"""Features of images and of cached vectors, once computed, are not computed again."""

from __future__ import annotations

import threading
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot import Features, InputError
from likelyshot.data.datasets import decoded, open_images
from likelyshot.data.features import Base, splits
from likelyshot.encoders import networks
from likelyshot.encoders.checkpoints import encoder_checkpoint, save_checkpoint
from likelyshot.encoders.extract import FLOOR, encode, extract, save_splits
from likelyshot.encoders.pixels import centred
from likelyshot.encoders.pretrained import callable_encoder
from processes import Child


@pytest.fixture(autouse=True)
def vectors(monkeypatch, tmp_path):
    """A cache of vectors for each test."""
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "vectors"))
    return tmp_path / "vectors"


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("owl", "jay"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "birds" / name / f"{i}.png")
    return tmp_path / "birds"


def trained(folder, name, params, data, seed=1):
    """A checkpoint as a run leaves it."""
    encoder = networks.build(name, params, seed=seed)
    checkpoint = encoder_checkpoint(encoder, {"recipe": {"data": data}})
    return encoder.eval(), str(save_checkpoint(folder / "best.safetensors", checkpoint))


def pixels(folder, side):
    """All images, as training stores them."""
    return decoded(open_images(folder), side).pixels


def test_features_of_images_are_those_of_the_encoder(images, tmp_path):
    encoder, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 16, "stored": 18})
    output, done = tmp_path / "new" / "f.safetensors", []
    found = extract(images, output, encoder=path, start=lambda total: done.append)
    features = found.features
    assert found.computed
    assert sum(done) == 6
    assert features.classes == ("jay", "owl")
    assert features.labels.tolist() == [0, 0, 0, 1, 1, 1]
    expected = encoder(centred(pixels(images, 18), size=16)).detach()
    torch.testing.assert_close(features.vectors, expected)
    assert Features.load(output).digest == features.digest
    assert list(Features.load(output).paths) == [f"birds/{name}/{i}.png" for name in ("jay", "owl") for i in range(3)]
    assert features.source["encoder"].startswith("best ")


def test_a_checkpoint_says_how_images_are_normalised(images, tmp_path):
    vectors = []
    for more in ({}, {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}):
        encoder, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 16, **more})
        found = extract(images, tmp_path / "f.safetensors", encoder=path)
        assert found.computed  # also the second time, into the same file
        vectors.append(found.features.vectors)
    torch.testing.assert_close(vectors[1], encoder(pixels(images, 16) / 255).detach())
    assert not torch.allclose(vectors[0], vectors[1])


def test_images_too_small_for_the_encoder_are_refused_before_they_are_read(images, tmp_path):
    _, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 15})
    (images / "owl" / "1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="expected images of at least 16 pixels for conv4, got 15"):
        extract(images, tmp_path / "f.safetensors", encoder=path)


@pytest.mark.parametrize(
    "recipe", [None, 3, {}, {"data": 3}, {"data": {"size": "16"}}, {"data": {"size": 10**9}}, {"data": {"mean": [0.5]}}]
)
def test_a_checkpoint_that_does_not_say_how_is_refused(images, tmp_path, recipe):
    encoder = networks.build("conv4", {"widths": [4, 4, 4, 8]})
    path = save_checkpoint(tmp_path / "best.safetensors", encoder_checkpoint(encoder, {"recipe": recipe}))
    with pytest.raises(
        InputError, match=r"(expected|is missing).* in the checkpoint .*best.safetensors|is missing in the checkpoint"
    ):
        extract(images, tmp_path / "f.safetensors", encoder=str(path))


def test_nothing_is_computed_twice_and_every_change_is_seen(images, tmp_path):
    output, data = tmp_path / "f.safetensors", {"size": 16}
    _, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, data)

    def run():
        return extract(images, output, encoder=path).computed

    assert run()
    assert not run()
    Image.new("RGB", (20, 20), "red").save(images / "owl" / "1.png")
    assert run()
    assert not run()
    (images / "owl" / "1.png").rename(images / "jay" / "4.png")
    assert run()
    trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, data, seed=2)
    assert run()
    output.write_bytes(b"something else")
    assert run()


def test_a_head_takes_features_of_its_length_only(images, tmp_path):
    raw, output = tmp_path / "raw.safetensors", tmp_path / "f.safetensors"
    save_file({"test.features": torch.rand(4, 5), "test.labels": torch.tensor([0, 1, 0, 1])}, raw)
    encoder, path = trained(tmp_path, "relu_head", {"in_dim": 5, "dim": 3}, {"features": "x"})
    features = extract(raw, output, encoder=path, split="test").features
    expected = encoder(Features.load(raw).vectors).detach()
    expected[(expected == 0).all(1)] = FLOOR
    torch.testing.assert_close(features.vectors, expected)
    assert not extract(raw, output, encoder=path, split="test").computed
    with pytest.raises(InputError, match="takes features, not images"):
        extract(images, tmp_path / "g.safetensors", encoder=path)
    _, path = trained(tmp_path, "relu_head", {"in_dim": 6, "dim": 3}, {"features": "x"})
    with pytest.raises(InputError, match=r"expected features of length 6, as .* was trained on, got 5"):
        extract(raw, tmp_path / "g.safetensors", encoder=path)
    _, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 16})
    for encoder in (path, "conv4_cifar_fs"):
        with pytest.raises(InputError, match="takes images, got the features"):
            extract(raw, tmp_path / "g.safetensors", encoder=encoder)
    assert not (tmp_path / "g.safetensors").exists()


def test_a_pretrained_encoder(images, tmp_path, monkeypatch):
    seen = []

    def colours(pictures):
        seen.extend(pictures)
        return [np.asarray(picture).mean((0, 1)) for picture in pictures]

    encoder = callable_encoder(colours, "mean colour")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    seen.clear()
    output = tmp_path / "f.safetensors"
    found = extract(images, output)
    features = found.features
    assert found.computed
    assert len(seen) == 6
    owl = np.asarray(Image.open(images / "owl" / "1.png")).mean((0, 1))
    torch.testing.assert_close(features.vectors[4], torch.from_numpy(owl).float())
    assert not extract(images, output).computed
    assert len(seen) == 6
    # an unreadable image is an error, or left out and counted
    (images / "owl" / "1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"1\.png"):
        extract(images, output)
    features = extract(images, output, skip_unreadable=True).features
    assert features.labels.tolist() == [0, 0, 0, 1, 1]
    assert features.source["left_out"] == "1 unreadable image"
    assert not extract(images, output, skip_unreadable=True).computed
    with pytest.raises(InputError, match=r"1\.png"):  # although a file of these images is there: it lacks one
        extract(images, output)


@pytest.mark.parametrize("archive", [False, True])
def test_interrupted_it_goes_on_where_it_was(images, tmp_path, monkeypatch, archive):
    path = images
    if archive:
        path = tmp_path / "birds.zip"
        with zipfile.ZipFile(path, "w") as file:
            for image in images.rglob("*.png"):
                file.write(image, image.relative_to(images))

    class Colours:
        """Stops in the batch after `most`."""

        name, digest, kind, dim, signed, batch_size = "colours", "ab" * 32, "image", 3, False, 2

        def __init__(self, most):
            self.most, self.encoded = most, 0

        def prepare(self, image):
            return np.asarray(image).mean((0, 1))

        def encode(self, batch):
            if self.encoded == self.most:
                raise KeyboardInterrupt
            self.encoded += len(batch)
            return np.array(batch, np.float32)

    def run(encoder, cache="user"):
        monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
        told = []
        output = tmp_path / "f.safetensors"
        found = extract(path, output, cache=cache, start=lambda total: told.append)
        return found.features, found.computed, sum(told), encoder.encoded

    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run(Colours(4))
    assert threading.active_count() == threads
    assert not (tmp_path / "f.safetensors").exists()
    features, computed, told, encoded = run(Colours(None))
    assert (computed, told, encoded) == (True, 6, 2)  # the other four were there
    expected = [np.asarray(Image.open(image)).mean((0, 1)) for image in sorted(images.rglob("*.png"))]
    assert features.vectors.numpy() == pytest.approx(np.array(expected), rel=1e-6)
    assert features.labels.tolist() == [0, 0, 0, 1, 1, 1]
    (tmp_path / "f.safetensors").unlink()
    assert run(Colours(None), cache=None)[3] == 6


def test_an_archive_with_a_damaged_image(images, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda all_: [np.asarray(image).mean((0, 1)) for image in all_], "mean colour")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    with zipfile.ZipFile(tmp_path / "birds.zip", "w") as file:
        for image in images.rglob("*.png"):
            file.write(image, image.relative_to(images))
        where = file.getinfo("owl/1.png").header_offset
    data = bytearray((tmp_path / "birds.zip").read_bytes())
    data[where + 200 : where + 210] = bytes(10)
    (tmp_path / "birds.zip").write_bytes(data)
    for skip in (True, False):
        if skip:
            features = extract(tmp_path / "birds.zip", tmp_path / "f.safetensors", skip_unreadable=True).features
            assert features.labels.tolist() == [0, 0, 0, 1, 1]
        else:
            with pytest.raises(
                InputError, match=r"cannot read 1 of the images, 'owl/1.png' \(damaged in the archive\)"
            ):
                extract(tmp_path / "birds.zip", tmp_path / "g.safetensors")


def test_an_encoder_of_texts_is_refused(images, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda texts: [[len(text)] for text in texts], "length", kind="text")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    with pytest.raises(InputError, match="expected an encoder of images, but length is one of texts"):
        extract(images, tmp_path / "f.safetensors", encoder="length")


def test_a_vector_of_zeros_is_lifted_and_training_goes_on_in_its_mode():
    encoder = networks.build("relu_head", {"in_dim": 4, "dim": 3})
    with torch.no_grad():
        encoder.linear.bias -= 100
    encoder.train()
    assert torch.equal(encode(encoder, torch.rand(5, 4).split(2)), torch.full((5, 3), FLOOR))
    assert encoder.training
    with torch.no_grad():
        encoder.linear.bias += float("inf")
    with pytest.raises(InputError, match="the encoder gives infinity or NaN"):
        encode(encoder, torch.rand(5, 4).split(2))


def test_a_vector_of_zeros_is_lifted_whatever_the_encoder(images, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda pictures: [[0.0, 0.0]] * len(pictures), "nothing")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    assert extract(images, tmp_path / "f.safetensors").features.vectors.unique().tolist() == [pytest.approx(FLOOR)]


def test_splits_and_base_statistics_share_a_file(tmp_path):
    parts = {
        split: Features.from_arrays(torch.rand(6, 4), [0, 1, 2] * 2, classes=[f"{split}{i}" for i in range(3)])
        for split in ("val", "test")
    }
    base = Base.of(Features.from_arrays(torch.rand(9, 4), [0, 1, 2] * 3))
    path = save_splits(tmp_path / "f.safetensors", parts, base, {"encoder": "e"})
    assert set(splits(path)) == {"val", "test"}
    for split, part in parts.items():
        found = Features.load(path, split=split)
        assert found.digest == part.digest
        assert found.source["encoder"] == "e"
    found = Base.load(path)
    assert torch.equal(found.mean, base.mean)
    assert torch.equal(found.within, base.within)


KILLED = """
import os, signal, sys
from likelyshot.encoders import embed as cache
from likelyshot.encoders.extract import extract
cache.EVERY = -1.0  # every batch is written
left = [int(sys.argv[3])]
def progress(done):
    left[0] -= done
    if left[0] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
extract(sys.argv[1], sys.argv[2], encoder="conv4_cifar_fs", start=lambda total: progress)
"""


@pytest.mark.processes
def test_killed_and_called_again_it_gives_the_same_bytes(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for i in range(75):  # two batches of 32, and a part of one
        (tmp_path / "images" / f"{i % 3}").mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i % 3}" / f"{i}.png")
    output = tmp_path / "a.safetensors"
    extract(tmp_path / "images", tmp_path / "b.safetensors", encoder="conv4_cifar_fs", cache=None)
    child = Child(KILLED, str(tmp_path / "images"), str(output), "40", folder=tmp_path)  # after the first batch
    assert child.wait() == -9, child.err
    assert not output.exists()
    assert list(tmp_path.glob("vectors/embeddings/*.sqlite"))
    extract(tmp_path / "images", output, encoder="conv4_cifar_fs")
    assert output.read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_folder_without_class_folders_is_one_class(images, tmp_path):
    path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 16})[1]
    features = extract(images / "owl", tmp_path / "f.safetensors", encoder=path).features
    assert features.classes == ("owl",)
    assert list(features.paths) == ["owl/0.png", "owl/1.png", "owl/2.png"]
    (images / "stray.png").write_bytes((images / "owl" / "0.png").read_bytes())
    with pytest.raises(InputError, match="1 outside"):  # most are in class folders: a mistake
        extract(images, tmp_path / "f.safetensors", encoder=path)


def test_a_pile_may_have_some_of_its_images_in_folders(images, tmp_path):
    path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"size": 16})[1]
    (images / "owl" / "2024").mkdir()
    (images / "owl" / "0.png").rename(images / "owl" / "2024" / "0.png")
    features = extract(images / "owl", tmp_path / "f.safetensors", encoder=path).features
    assert features.classes == ("owl",)
    assert list(features.paths) == ["owl/1.png", "owl/2.png", "owl/2024/0.png"]

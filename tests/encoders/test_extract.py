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
from likelyshot.data.features import Base, splits
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import encoder_checkpoint, save_checkpoint
from likelyshot.encoders.extract import FLOOR, Pool, encode, extract, extract_pretrained, open_pool, save_splits
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.training.recipes import Data, recipe_from


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


def trained(folder, name, params, data):
    """A checkpoint as a run leaves it."""
    recipe = recipe_from({"data": data, "encoder": {"name": name, "params": params}, "pretrain": {"epochs": 1}})
    encoder = encoders.build(name, params, seed=1)
    return encoder, save_checkpoint(
        folder / "best.safetensors", encoder_checkpoint(encoder, {"recipe": recipe.to_dict()})
    )


def test_features_of_images_are_those_of_the_encoder(images, tmp_path):
    encoder, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"path": "x", "size": 16, "stored": 18})
    output, told = tmp_path / "f.safetensors", []
    features, computed = extract(Data(path=str(images)), None, path, output, start=lambda total: told.append)
    assert computed
    assert sum(told) == 6
    assert features.classes == ("jay", "owl")
    assert features.labels.tolist() == [0, 0, 0, 1, 1, 1]
    pool = open_pool(Data(path=str(images), size=16, stored=18), None)
    assert pool.data.shape == (6, 3, 18, 18)
    for row in range(6):  # one at a time
        expected = encoder.eval()(pool.inputs(torch.tensor([row]))).detach()[0]
        torch.testing.assert_close(features.vectors[row], expected)
    assert Features.load(output).digest == features.digest


def test_pixels_from_a_file_are_those_in_memory(images, tmp_path):
    kept, mapped = (
        open_pool(Data(path=str(images), size=16, cache=cache), None) for cache in ("", str(tmp_path / "c"))
    )
    assert len(list((tmp_path / "c").glob("*.npy"))) == 1
    assert torch.equal(kept.data, mapped.data)
    assert torch.equal(kept.inputs(torch.tensor([4, 1]), seed=3), mapped.inputs(torch.tensor([4, 1]), seed=3))


def test_pixels_are_normalised_as_the_recipe_says(images, tmp_path):
    how = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.25, 2.0)}
    pool = open_pool(Data(path=str(images), size=16, **how), None)
    expected = (pool.data / 255 - torch.tensor(how["mean"]).view(3, 1, 1)) / torch.tensor(how["std"]).view(3, 1, 1)
    torch.testing.assert_close(pool.inputs(torch.arange(6)), expected)
    black = Pool(torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1), ("a",), {}, 16, **how)
    torch.testing.assert_close(black.inputs(torch.tensor([0]), seed=1)[0, :, 0, 0], torch.tensor([-0.2, -0.8, -0.15]))


def test_a_checkpoint_says_how_images_are_normalised(images, tmp_path):
    data = {"path": "x", "size": 16}
    found = []
    for more in ({}, {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}):
        encoder, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {**data, **more})
        features, computed = extract(Data(path=str(images)), None, path, tmp_path / "f.safetensors")
        assert computed  # also the second time, into the same file
        found.append(features.vectors)
    raw = open_pool(Data(path=str(images), size=16), None).data / 255
    torch.testing.assert_close(found[1], encoder.eval()(raw).detach())
    assert not torch.allclose(found[0], found[1])


def test_images_too_small_for_the_encoder_are_refused_before_they_are_read(images, tmp_path):
    _, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"path": "x", "size": 15})
    (images / "owl" / "1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="expected images of at least 16 pixels for conv4, but got 15"):
        extract(Data(path=str(images)), None, path, tmp_path / "f.safetensors")


def test_nothing_is_computed_twice_and_every_change_is_seen(images, tmp_path):
    _, path = trained(tmp_path, "conv4", {"widths": [4, 4, 4, 8]}, {"path": "x", "size": 16})
    output = tmp_path / "f.safetensors"

    def run(data=images):
        return extract(Data(path=str(data)), None, path, output)[1]

    assert run()
    assert not run()
    Image.new("RGB", (20, 20), "red").save(images / "owl" / "1.png")
    assert run()
    assert not run()
    (images / "owl" / "1.png").rename(images / "jay" / "4.png")
    assert run()
    encoder = encoders.build("conv4", {"widths": [4, 4, 4, 8]}, seed=2)
    recipe = recipe_from({"data": {"path": "x", "size": 16}, "encoder": {"name": "conv4"}, "pretrain": {"epochs": 1}})
    save_checkpoint(path, encoder_checkpoint(encoder, {"recipe": recipe.to_dict()}))
    assert run()
    output.write_bytes(b"something else")
    assert run()


def test_a_head_takes_features_and_images_are_refused(images, tmp_path):
    raw = tmp_path / "raw.safetensors"
    save_file({"test.features": torch.rand(4, 5), "test.labels": torch.tensor([0, 1, 0, 1])}, raw)
    encoder, path = trained(tmp_path, "relu_head", {"in_dim": 5, "dim": 3}, {"features": "x"})
    features, _ = extract(Data(features=str(raw)), "test", path, tmp_path / "f.safetensors")
    expected = encoder(Features.load(raw).vectors).detach()
    expected[(expected == 0).all(1)] = FLOOR
    torch.testing.assert_close(features.vectors, expected)
    with pytest.raises(InputError, match="expected a features file, which the encoder was trained on"):
        extract(Data(path=str(images)), None, path, tmp_path / "g.safetensors")
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
    features, computed = extract_pretrained(Data(path=str(images)), None, "mean colour", output)
    assert computed
    assert len(seen) == 6
    owl = np.asarray(Image.open(images / "owl" / "1.png")).mean((0, 1))
    torch.testing.assert_close(features.vectors[4], torch.from_numpy(owl).float())
    assert not extract_pretrained(Data(path=str(images)), None, "mean colour", output)[1]
    assert len(seen) == 6
    # an unreadable image is an error, or left out and counted
    (images / "owl" / "1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"1\.png"):
        extract_pretrained(Data(path=str(images)), None, "mean colour", output)
    features, _ = extract_pretrained(Data(path=str(images), skip_unreadable=True), None, "mean colour", output)
    assert features.labels.tolist() == [0, 0, 0, 1, 1]
    assert features.source["left_out"] == "1 unreadable images"
    with pytest.raises(InputError, match="expected images for a pre-trained encoder"):
        extract_pretrained(Data(features="f"), None, "mean colour", output)


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
        found = extract_pretrained(
            Data(path=str(path)), None, "colours", output, cache=cache, start=lambda total: told.append
        )
        return *found, sum(told), encoder.encoded

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
        arguments = Data(path=str(tmp_path / "birds.zip"), skip_unreadable=skip), None, "mean colour"
        if skip:
            features, _ = extract_pretrained(*arguments, tmp_path / "f.safetensors")
            assert features.labels.tolist() == [0, 0, 0, 1, 1]
        else:
            with pytest.raises(InputError, match=r"1 that are not, 'owl/1.png' \(damaged in the archive\)"):
                extract_pretrained(*arguments, tmp_path / "g.safetensors")


def test_an_encoder_of_texts_is_refused(images, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda texts: [[len(text)] for text in texts], "length", kind="text")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    with pytest.raises(InputError, match="expected an encoder of images, but length is one of texts"):
        extract_pretrained(Data(path=str(images)), None, "length", tmp_path / "f.safetensors")


def test_a_vector_of_zeros_is_lifted_and_training_goes_on_in_its_mode():
    encoder = encoders.build("relu_head", {"in_dim": 4, "dim": 3})
    with torch.no_grad():
        encoder.linear.bias -= 100
    pool = Pool(torch.rand(5, 4), torch.zeros(5, dtype=torch.int64), ("a",), {})
    encoder.train()
    assert torch.equal(encode(encoder, pool, batch_size=2).vectors, torch.full((5, 3), FLOOR))
    assert encoder.training
    with torch.no_grad():
        encoder.linear.bias += float("inf")
    with pytest.raises(InputError, match="expected finite features"):
        encode(encoder, pool)


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

"""Features of images and of cached vectors, once computed, are not computed again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot import Features, InputError, encoders
from likelyshot.checkpoints import encoder_checkpoint, save_checkpoint
from likelyshot.extraction import FLOOR, Pool, encode, extract, extract_pretrained, open_pool, save_splits
from likelyshot.features import Base, splits
from likelyshot.pretrained import callable_encoder
from likelyshot.recipes import Data, recipe_from


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
    monkeypatch.setattr("likelyshot.extraction.open_encoder", lambda name, device: encoder)
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


def test_an_encoder_of_texts_is_refused(images, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda texts: [[len(text)] for text in texts], "length", kind="text")
    monkeypatch.setattr("likelyshot.extraction.open_encoder", lambda name, device: encoder)
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

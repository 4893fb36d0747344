"""Encoders of our own training, opened by the file they are in."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot import InputError
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import Checkpoint, encoder_checkpoint, load_checkpoint, save_checkpoint
from likelyshot.encoders.extract import encode
from likelyshot.encoders.pixels import centred
from likelyshot.encoders.pretrained import identity, open_encoder
from likelyshot.training.recipes import recipe_from


def saved(folder, name, params, data):
    recipe = recipe_from({"data": data, "encoder": {"name": name, "params": params}, "finetune": {"epochs": 1}})
    encoder = encoders.build(name, params, seed=1).eval()
    facts = {"recipe": recipe.to_dict()}
    return encoder, str(save_checkpoint(folder / "best.safetensors", encoder_checkpoint(encoder, facts)))


def test_it_encodes_as_training_does(tmp_path):
    network, path = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, {"path": "images", "size": 32, "stored": 36})
    pixels = torch.randint(256, (3, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = encode(network, [centred(pixels, size=32)]).numpy()
    encoder = open_encoder(path)
    images = [Image.fromarray(np.ascontiguousarray(image.numpy().transpose(1, 2, 0))) for image in pixels]
    found = encoder.encode([encoder.prepare(image) for image in images])
    assert (encoder.name, encoder.dim, encoder.signed, encoder.kind) == (path, 8, False, "image")
    assert found == pytest.approx(expected, abs=1e-5)


def test_it_normalises_as_training_does(tmp_path):
    (tmp_path / "b").mkdir()
    data, params = {"path": "images", "size": 16}, {"widths": [4, 4, 8, 8]}
    how = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.25, 2.0]}
    _, plain = saved(tmp_path, "conv4", params, data)
    network, path = saved(tmp_path / "b", "conv4", params, {**data, **how})
    image = Image.effect_noise((16, 16), 60).convert("RGB")
    pixels = torch.from_numpy(np.asarray(image).transpose(2, 0, 1) / 255.0).float()
    expected = (pixels - torch.tensor(how["mean"]).view(3, 1, 1)) / torch.tensor(how["std"]).view(3, 1, 1)
    encoder = open_encoder(path)
    found = encoder.encode([encoder.prepare(image)])
    assert found == pytest.approx(network(expected[None]).detach().numpy(), abs=1e-5)
    assert encoder.digest != open_encoder(plain).digest


def test_a_checkpoint_from_before_there_was_a_choice(tmp_path):
    network, path = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, {"path": "images", "size": 16, "stored": 18})
    now = open_encoder(path)
    checkpoint = load_checkpoint(path)
    facts = json.loads(json.dumps(checkpoint.facts))
    for key in ("mean", "std", "cache"):
        del facts["recipe"]["data"][key]
    save_checkpoint(path, Checkpoint(checkpoint.tensors, facts))
    before = open_encoder(path)
    image = Image.effect_noise((18, 18), 60).convert("RGB")
    assert np.array_equal(now.encode([now.prepare(image)]), before.encode([before.prepare(image)]))
    # models remember the digest of their encoder: it is what it was then
    assert before.digest == now.digest == identity(["checkpoint", "conv4", "18", "16"], network.state_dict())


def test_images_too_small_for_it_are_refused(tmp_path):
    _, path = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, {"path": "images", "size": 8})
    with pytest.raises(InputError, match="expected images of at least 16 pixels for conv4, got 8"):
        open_encoder(path)


def test_other_weights_have_another_digest(tmp_path):
    (tmp_path / "b").mkdir()
    data = {"path": "images", "size": 32}
    _, one = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, data)
    _, two = saved(tmp_path / "b", "conv4", {"widths": [4, 4, 8, 4]}, data)
    assert open_encoder(one).digest == open_encoder(one).digest != open_encoder(two).digest


def test_a_head_has_no_images(tmp_path):
    _, path = saved(tmp_path, "relu_head", {"in_dim": 6, "dim": 4}, {"features": "f.safetensors"})
    with pytest.raises(InputError, match="takes features, not images: use it with likelyshot extract"):
        open_encoder(path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        open_encoder(str(tmp_path / "nowhere.safetensors"))

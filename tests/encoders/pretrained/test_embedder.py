from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.encoders.pretrained import SLIMMEST, callable_encoder, identity, need, open_encoder
from likelyshot.errors import InputError


def sizes(images):
    return [image.size for image in images]


def test_a_function_is_an_encoder():
    encoder = callable_encoder(sizes, "size")
    vectors = encoder.encode([encoder.prepare(Image.new("RGB", size)) for size in ((3, 4), (5, 6))])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[3, 4], [5, 6]]
    assert (encoder.name, encoder.kind, encoder.dim, encoder.signed) == ("size", "image", 2, False)


def test_signs_are_seen():
    assert callable_encoder(lambda images: [[1.0, -1.0]] * len(images), "a").signed
    letters = callable_encoder(lambda texts: torch.tensor([[len(text) - 1e3] for text in texts]), "b", kind="text")
    assert (letters.signed, letters.dim, letters.encode(["abc"]).tolist()) == (True, 1, [[-997]])


def test_digests_tell_encoders_apart():
    digests = [
        callable_encoder(sizes, "size").digest,
        callable_encoder(sizes, "other").digest,
        callable_encoder(lambda texts: [[1]] * len(texts), "size", kind="text").digest,
    ]
    assert len(set(digests)) == 3
    assert callable_encoder(sizes, "size").digest == digests[0]
    state = {"a": torch.arange(4.0), "b": torch.zeros(2, 2)}
    changed = [
        state,
        {**state, "a": torch.arange(4.0) + 1e-6},
        {**state, "b": torch.zeros(4)},
        {"b": state["b"], "c": state["a"]},
    ]
    assert len({identity(["x"], s) for s in changed} | {identity(["y"], state), identity(["x"])}) == 6
    assert identity(["x"], dict(reversed(state.items()))) == identity(["x"], state)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], [1.0, 2.0, 3.0], [[]] * 3, [["a"]] * 3, None, [[1], [1, 2], [1]]])
def test_functions_that_give_no_vectors(bad):
    with pytest.raises(InputError, match="expected"):
        callable_encoder(lambda images: bad, "bad")


def test_lengths_are_checked():
    encoder = callable_encoder(lambda images: [[1.0] * (5 if len(images) == 2 else 4)] * len(images), "fickle")
    with pytest.raises(InputError, match="length 4 from fickle, got 5"):
        encoder.encode([None, None])


def test_very_long_images_lose_their_ends():
    encoder = callable_encoder(sizes, "size")
    assert encoder.prepare(Image.new("RGB", (SLIMMEST, 1))).size == (SLIMMEST, 1)
    strip = np.zeros((2, 100, 3), np.uint8)
    strip[:, 50] = 255
    middle = np.asarray(encoder.prepare(Image.fromarray(strip)))
    assert middle.shape == (2, 2 * SLIMMEST, 3)
    assert middle[0, SLIMMEST].tolist() == [255] * 3
    assert encoder.prepare(Image.new("RGB", (1, 50_000))).size == (1, SLIMMEST)


@pytest.mark.parametrize("name", ["efficientnet_lite", "timm", "timm:", "nope:x", "", ":", "/no/such/folder"])
def test_unknown_names_list_what_there_is(name):
    known = "Known: clip:, conv4_cifar_fs, efficientnet_lite0, efficientnet_lite2, sentence:, timm:, transformers:"
    with pytest.raises(InputError, match=known):
        open_encoder(name)


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(InputError, match="pip install timm"):
        open_encoder("timm:resnet18")
    with pytest.raises(InputError, match="pip install some-thing"):
        need("no_such_package", "some-thing")

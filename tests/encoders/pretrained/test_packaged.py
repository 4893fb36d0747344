"""The small trained encoder that comes with the package."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from likelyshot import Features, cli
from likelyshot.data.packaged import CHECKPOINTS
from likelyshot.encoders.checkpoints import load_checkpoint
from likelyshot.encoders.pretrained import open_encoder

NAME = "conv4_cifar_fs"


def drawn(kind: int, seed: int) -> Image.Image:
    """A noisy sky, meadow or brick wall with something on it."""
    chance = np.random.default_rng([kind, seed])
    base = np.array([(120, 170, 230), (70, 140, 60), (150, 70, 50)][kind]) + chance.normal(0, 15, 3)
    image = Image.fromarray((base + chance.normal(0, 20, (40, 48, 3))).clip(0, 255).astype(np.uint8))
    x, y = chance.integers(4, 24, 2)
    ImageDraw.Draw(image).ellipse((x, y, x + 12, y + 10), fill=tuple(int(v) for v in chance.integers(0, 255, 3)))
    return image


def test_it_is_small_and_says_where_it_comes_from():
    assert CHECKPOINTS[NAME].stat().st_size < 1_000_000
    facts = load_checkpoint(CHECKPOINTS[NAME]).facts
    assert facts["recipe"]["finetune"]["metric"] == "mll"
    assert facts["validation_accuracy"] > 0.4  # five ways: chance is 0.2
    paths = [
        facts["recipe"][table][key] for table, key in (("data", "path"), ("encoder", "weights"), ("run", "output"))
    ]
    assert not any(path.startswith("/") for path in paths)


def test_its_features_are_non_negative_and_tell_things_apart():
    encoder = open_encoder(NAME)
    assert (encoder.name, encoder.dim, encoder.signed, encoder.kind) == (NAME, 64, False, "image")
    vectors = encoder.encode([encoder.prepare(drawn(kind, seed)) for kind in range(3) for seed in range(8)])
    assert vectors.shape == (24, 64)
    assert (vectors >= 0).all()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    means = unit.reshape(3, 8, 64).mean(1)
    assert ((unit @ means.T).argmax(1) == np.repeat(range(3), 8)).mean() > 0.9
    alone = encoder.encode([encoder.prepare(drawn(1, 3))])
    assert alone[0] == pytest.approx(vectors[11], abs=1e-5)


def test_extract_by_its_name(tmp_path, monkeypatch, capsys):
    for kind in range(2):
        for seed in range(3):
            folder = tmp_path / "images" / f"class {kind}"
            folder.mkdir(parents=True, exist_ok=True)
            drawn(kind, seed).save(folder / f"{seed}.png")
    arguments = ["extract", str(tmp_path / "images"), "--encoder", NAME, "-o", str(tmp_path / "f.safetensors")]
    monkeypatch.setattr("sys.argv", ["likelyshot", *arguments, "--no-cache", "--json"])
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(cli.main())
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["dim"] == 64
    found = Features.load(tmp_path / "f.safetensors")
    assert (found.dim, len(found), found.classes) == (64, 6, ("class 0", "class 1"))
    assert found.source["encoder"] == NAME

"""Commands in parts and `likelyshot merge` against one command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot.data.features import Features
from likelyshot.data.results import PER_TASK


@pytest.fixture
def features(tmp_path, monkeypatch):
    """A features file, in the folder where commands run."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    vectors = torch.empty(200, 8).exponential_(generator=generator) + torch.eye(10, 8)[labels]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("likelyshot.evaluation.evaluate.CACHE_BYTES", 4 * 8 * 25 * 5)  # a few tasks a chunk
    return Features.from_arrays(vectors, labels).save(tmp_path / "f.safetensors")


def in_parts(run, *command, count=2):
    for number in range(1, count + 1):
        code, out, err = run(*command, "--part", f"{number}/{count}")
        assert code == 0, err
        assert f"part {number} of {count}" in " ".join(out.split())
    return out


def documents(folder, pattern):
    return {path.name: json.loads(path.read_text()) for path in folder.glob(pattern)}


SMALL = ("--ways", 3, "--tasks", 20, "--shots", 1)


def test_evaluate(run, features, tmp_path):
    command = ("evaluate", features, "--method", "mll", "cosine", *SMALL, "--total", 12)
    run(*command, "-o", "one")
    said = in_parts(run, *command, "-o", "two")
    assert "likelyshot merge two" in " ".join(said.split())
    code, out, _ = run("merge", "two")
    assert code == 0
    assert "Wrote the results of evaluate to two" in out
    assert (tmp_path / "two" / "report.html").exists()
    one, two = (documents(tmp_path / name, "*way*mll*.json") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, document in one.items():
        assert {key: document["per_task"][key] for key in PER_TASK} == two[name]["per_task"]
        for key in ("config", "reliability", "confused"):
            assert document[key] == two[name][key]


def test_sweep(run, features, tmp_path):
    command = ("sweep", features, "--grid", "lambda_max=20,40", *SMALL, "--per-class", 4)
    run(*command, "-o", "one")
    in_parts(run, *command, "-o", "two")
    assert run("merge", "two")[0] == 0
    one, two = (documents(tmp_path / name, "sweep.json")["sweep.json"] for name in ("one", "two"))
    for document in (one, two):
        for row in document["rows"]:
            del row["seconds"]
    for key in ("grid", "best", "rows", "config"):
        assert one[key] == two[key]


def test_classify_and_predict(run, features, tmp_path):
    run("fit", "-s", features, "-o", "model.safetensors")
    for command in (("classify", "-s", features, "-q", features), ("predict", "model.safetensors", features)):
        name = command[0]
        assert run(*command, "-o", f"{name}.csv")[0] == 0
        in_parts(run, *command, "-o", f"{name}-parts")
        code, out, _ = run("merge", f"{name}-parts", "-o", "merged.csv")
        assert (code, out) == (0, "Wrote 200 answers to merged.csv\n")
        assert (tmp_path / "merged.csv").read_bytes() == (tmp_path / f"{name}.csv").read_bytes()


@pytest.fixture
def images(tmp_path, monkeypatch):
    """70 images of two classes, in blocks of 32."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("likelyshot.encoders.blocks.BLOCK", 1)
    for number in range(70):
        path = tmp_path / "images" / f"class {number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(path)
    return tmp_path / "images"


def test_a_part_embeds_its_own_images_only(run, images, tmp_path, monkeypatch):
    from likelyshot.encoders import blocks

    (images / "class 0" / "broken.png").write_bytes(b"no")
    (tmp_path / "few" / "a").mkdir(parents=True)
    (tmp_path / "few" / "b").mkdir()
    for number in range(6):
        (images / f"class {number % 2}" / f"{number}.png").rename(tmp_path / "few" / "ab"[number % 2] / f"{number}.png")
    seen = []
    embed = blocks.embed
    monkeypatch.setattr(blocks, "embed", lambda items, *a, **k: seen.extend(items) or embed(items, *a, **k))
    given = ("--encoder", "conv4_cifar_fs", "--no-cache")
    run("fit", "-s", "few", "-o", "model.safetensors", *given)
    for command in (("classify", "-s", "few", "-q", "images", *given), ("predict", "model.safetensors", "images")):
        name = command[0]
        assert run(*command, "-o", f"{name}.csv", "--no-cache", "--all-probabilities")[0] == 0
        seen.clear()
        in_parts(run, *command, "-o", name, "--no-cache", "--all-probabilities", count=3)
        assert len(seen) == len(set(seen)) == 65
        code, _, err = run(*command, "-o", name, "--part", "1/3")
        assert (code, "but it has others" in err) == (2, True)  # without all probabilities
        *_, other, last = sorted((tmp_path / name / "_vectors").glob("block-*"))
        data = last.read_bytes()
        last.unlink()
        code, _, err = run("merge", name, "-o", "merged.csv")
        assert (code, "part 3 of 3 is not finished: run the command with --part 3/3 again" in err) == (2, True)
        last.write_bytes(other.read_bytes())
        code, _, err = run("merge", name, "-o", "merged.csv")
        assert (code, f"{last.name} is of another run: remove it, and run the part again" in err) == (2, True)
        last.write_bytes(data)
        code, out, err = run("merge", name, "-o", "merged.csv")
        assert code == 0, err
        assert "Wrote 64 answers to merged.csv" in out
        assert "broken.png" in out
        assert (tmp_path / "merged.csv").read_bytes() == (tmp_path / f"{name}.csv").read_bytes()


def test_extract(run, images, tmp_path):
    command = ("extract", "images", "--encoder", "conv4_cifar_fs", "--no-cache")
    run(*command, "-o", "one.safetensors")
    run(*command, "-o", "two.safetensors", "--part", "2/2")
    code, _, err = run("merge", "two.safetensors.parts")
    assert code == 2
    assert "part 1 of 2 is not finished: run extract with --part 1/2 again" in err
    said = in_parts(run, *command, "-o", "two.safetensors")
    assert "0 blocks of images; 2 were finished before" in " ".join(said.split())
    assert run("merge", "two.safetensors.parts")[0] == 0
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    out = run(*command, "-o", "two.safetensors")[1]
    assert "of these images already (nothing computed" in out
    assert "Wrote" not in out
    assert not (tmp_path / "two.safetensors.parts").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("evaluate", "f.safetensors", "--part", "1/2"), "expected a folder for the results of a part: give -o FOLDER"),
        (("evaluate", "f.safetensors", "-o", "out", "--part", "3/2"), "expected a part like 2/8"),
        (("classify", "-s", "f.safetensors", "-q", "f.safetensors", "--part", "1/2"), "for the answers of a part"),
        (("classify", "-s", "x", "-q", "y", "-o", "z", "--gallery", "a.html", "--part", "1/2"), "leave out --gallery"),
        (("merge", "nothing"), "but nothing does not exist: check the path"),
        (("merge", "nothing", "-o", "a.csv"), "but nothing does not exist: check the path"),
        (("merge", ".", "-o", "a.csv"), "wrote with --part, but . has no such parts: check the path"),
        (
            ("sweep", "f.safetensors", "--ray", "127.0.0.1:1"),
            "cluster at 127.0.0.1:1, but nothing answers",
        ),
    ],
)
def test_what_makes_no_sense_is_a_sentence(run, features, command, words):
    if "--ray" in command:
        pytest.importorskip("ray")
    code, _, err = run(*command)
    assert code == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1

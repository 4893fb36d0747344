"""The commands classify, fit and predict as their users meet them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot.cli.own_data import stages
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.own_data.model import Model


def tones(images):
    arrays = [np.asarray(image) // 32 for image in images]
    return [[(array[..., c] == tone).mean() for c in range(3) for tone in range(8)] for array in arrays]


@pytest.fixture(autouse=True)
def encoder(monkeypatch):
    """A small encoder of our own in place of the default."""
    small = callable_encoder(tones, "tones")
    monkeypatch.setattr("likelyshot.own_data.pipeline.open_encoder", lambda name, device: small)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with four labelled images of each of two colours, and a pile of 24 and some trouble."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)

    def paint(path, colour):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.array(colour) + generator.normal(0, 25, (12, 16, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)

    for name, colour in (("blue", (40, 60, 200)), ("red", (210, 50, 40))):
        for i in range(4):
            paint(tmp_path / "labelled" / name / f"{i}.png", colour)
        for i in range(12):
            paint(tmp_path / "pile" / f"{name} {i}.png", colour)
    (tmp_path / "pile" / "empty.jpg").write_bytes(b"")
    (tmp_path / "pile" / "odd\nname.txt").write_text("")
    return tmp_path


@pytest.fixture
def files(features, tmp_path, monkeypatch):
    """Vectors: a few with labels, and a pile."""
    monkeypatch.chdir(tmp_path)
    few = torch.cat([torch.arange(40 * k, 40 * k + 5) for k in range(4)])
    np.savez("few.npz", features=features.vectors[few].numpy(), labels=features.labels[few].numpy())
    np.save("pile.npy", features.vectors[:160].numpy())
    return tmp_path


def test_classify_images(run, place):
    options = ("--gallery", "gallery.html", "--copy-to", "sorted", "--link-to", "linked")
    code, out, _ = run("classify", "--support", "labelled", "--query", "pile", "-o", "out.csv", *options)
    assert code == 0
    with open("out.csv", newline="") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert all(row["predicted"] in row["path"] for row in rows)
    lines = out.splitlines()
    assert lines[0] == "8 labelled examples of 2 classes (4 per class), embedded by tones."
    assert lines[1].startswith("Expected accuracy of likelihood: 100 %")
    assert "24 items, classified together by likelihood_mixture (transductive), since there are 20 or more." in lines
    assert any(line.startswith("Expected accuracy of likelihood_mixture on this pile: 100 %") for line in lines)
    assert [row["reject"] for row in rows].count("true") == 1
    assert "Answers: 24 in out.csv; 1 is rejected as belonging to no class." in lines
    assert {"Classes: blue 12, red 11, rejected 1.", "Classes: red 12, blue 11, rejected 1."} & set(lines)
    assert any(
        line.startswith(
            "Method: likelihood_mixture (Likelihood mixture), chosen for a pile of 24 items; it learns from"
        )
        for line in lines
    )
    right = (
        r"Accuracy: expect \d\d to 100 % of the answers to be right \(95 % interval; best estimate 100 %\), "
        "judging by 8 labelled examples "
    )
    assert any(re.match(right, line) for line in lines)
    assert "Copies: 24 images by class in sorted." in lines
    assert "Links: 24 images by class in linked." in lines
    assert "Gallery: gallery.html; open it in a browser." in lines
    again = "classify again with --support labelled corrections.csv"
    assert f"Next: correct what is wrong in the gallery, save it, and {again}" in lines
    assert lines[-1].endswith("likelyshot fit --support labelled -o model.safetensors")
    assert "2 problems; everything else was processed:" in lines
    assert "  1 x empty file: 'pile/empty.jpg'" in lines
    assert r"  1 x unsupported file: 'pile/odd\nname.txt'" in lines
    assert (place / "gallery.html").read_text().startswith("<!DOCTYPE html>")
    assert len(list((place / "sorted").rglob("*.png"))) == len(list((place / "linked").rglob("*.png"))) == 24


def test_the_summary_says_what_was_asked_for_and_what_helps(run, place, monkeypatch):
    monkeypatch.setattr("likelyshot.cli.own_data.ENOUGH", 0.95)  # one wrong label is less than that
    (place / "labelled" / "blue" / "3.png").write_bytes((place / "pile" / "red 1.png").read_bytes())
    code, out, _ = run("classify", "-s", "labelled", "-q", "pile", "-m", "cosine", "--reject", 0.2)
    assert code == 0
    lines = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    assert lines["Answers"] == "24 in predictions.csv; none is rejected as belonging to no class."
    assert lines["Classes"] == "blue 13, red 11."  # a labelled item keeps its label, right or wrong
    assert lines["Method"] == "cosine (Cosine), as asked; it classifies every item on its own."
    assert lines["Next"].endswith("-m cosine --reject 0.2 --gallery gallery.html")
    assert lines["Better"] == "label more examples of the classes that are confused, in labelled."
    run("fit", "-s", "labelled")
    code, out, err = run("predict", "model.safetensors", "pile")
    assert (code, len(out.splitlines())) == (0, 24)
    assert "Answers: 24 printed; " in err


def test_with_one_example_per_class_a_second_one_is_what_helps(run, place):
    for picture in (place / "labelled").rglob("[123].png"):
        picture.unlink()
    code, out, _ = run("classify", "-s", "labelled", "-q", "pile")
    lines = dict(line.split(": ", 1) for line in out.splitlines() if ": " in line)
    assert code == 0
    assert lines["Accuracy"] == "cannot be estimated, since no class has two labelled examples."
    second = "label a second example of every class: that helps most, and lets the accuracy be estimated."
    assert lines["Better"] == second
    assert "Later" not in lines
    code, out, _ = run("classify", "-s", "labelled", "-q", "pile/red 1.png")
    assert (code, "Classes: red 1." in out.splitlines()) == (0, True)  # classes without items are not listed


def test_texts_are_sorted_as_texts(run, place, monkeypatch):
    letters = callable_encoder(lambda batch: [[1 + text.count(c) for c in "ab"] for text in batch], "ab", kind="text")
    monkeypatch.setattr("likelyshot.own_data.pipeline.open_encoder", lambda name, device: letters)
    for name in ("a", "b"):
        for i in range(2):
            (place / "texts" / name).mkdir(parents=True, exist_ok=True)
            (place / "texts" / name / f"{i}.txt").write_text(name * (3 + i))
    code, out, _ = run("classify", "-s", "texts", "-q", "texts", "--copy-to", "sorted")
    assert (code, "Copies: 4 texts by class in sorted." in out.splitlines()) == (0, True)


def test_answers_that_are_used_as_labels_are_named(run, place):
    unchecked = (
        "Some labels are answers of an earlier run: if nobody has checked them, the expected accuracy is too high."
    )
    code, out, _ = run("classify", "-s", "labelled", "-q", "pile", "--copy-to", "sorted")
    assert (code, unchecked in out) == (0, False)
    for source in ("predictions.csv", "sorted"):
        code, out, _ = run("classify", "-s", source, "-q", "pile", "-o", "again.csv")
        assert (code, unchecked in out.splitlines()) == (0, True)
    (place / "corrections.csv").write_text("path,label,predicted\npile/red 1.png,red,blue\n")
    code, out, _ = run("classify", "-s", "labelled", "corrections.csv", "-q", "pile")
    assert (code, unchecked in out) == (0, False)
    same = "Found 1 item of the pile also among the labelled examples, such as 'pile/red 1.png'."
    assert same in out.splitlines()


def test_the_demonstration(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("classify", "--demo", "--no-cache")
    assert code == 0
    folder = tmp_path / "likelyshot-demo"
    assert {path.name for path in folder.iterdir()} == {
        *("README.txt", "labelled", "pile", "truth.csv"),
        *("predictions.csv", "gallery.html"),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["likelyshot-demo"]
    steps = [line for line in out.splitlines() if line.startswith("Step ")]
    assert [step[:12] for step in steps] == ["Step 1 of 3:", "Step 2 of 3:", "Step 3 of 3:"]
    assert steps[1].endswith("likelyshot classify --support likelyshot-demo/labelled --query likelyshot-demo/pile")
    assert out.splitlines()[-1].strip().startswith("likelyshot classify --support labelled/ --query pile/")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    code, _, err = run("classify", "--demo", "--demo-folder", "mine")
    assert (code, "has other files" in err) == (2, True)
    code, _, err = run("classify", "--demo", "-s", "mine")
    assert (code, "expected --demo alone" in err) == (2, True)
    code, _, err = run("classify", "-s", "mine")
    assert (code, "or try --demo" in err) == (2, True)


def test_nothing_is_sorted_into_the_pile(run, place):
    code, _, err = run("classify", "-s", "labelled", "-q", "pile", "--copy-to", "pile/sorted")
    assert code == 2
    assert "expected a folder outside the pile" in err
    assert not (place / "predictions.csv").exists()


def test_json_is_one_document_and_has_all(run, place):
    code, out, err = run("classify", "-s", "labelled", "-q", "pile", "-o", "out.parquet", "--reject", 0.2, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["items"] == 24
    assert document["predicted"] == {"blue": 12, "red": 12}
    assert document["method"] == "likelihood_mixture"
    assert document["reject"] == 0.2
    assert document["expectation"]["accuracy"] == 1
    assert document["expectation"]["method"] == "likelihood_mixture"
    assert document["expectation"]["with_pile"]
    assert sorted(problem["kind"] for problem in document["problems"]) == ["empty file", "unsupported file"]
    assert "held out" in err


def test_fit_then_predict_without_the_labelled_images(run, place):
    run("classify", "-s", "labelled", "-q", "pile", "-o", "before.csv")
    code, out, _ = run("fit", "--support", "labelled", "-o", "model.safetensors", "--json")
    assert code == 0
    assert json.loads(out)["examples"] == {"blue": 4, "red": 4}
    (place / "labelled").rename(place / "gone")
    code, out, _ = run("predict", "model.safetensors", "pile", "-o", "after.csv", "--json")
    assert code == 0
    assert json.loads(out)["items"] == 24
    assert (place / "before.csv").read_bytes() == (place / "after.csv").read_bytes()


def test_the_summary_of_predict_offers_no_option_that_it_lacks(run, place):
    assert run("fit", "-s", "labelled")[0] == 0
    _, out, _ = run("predict", "model.safetensors", "pile", "-o", "p.csv")
    assert "Method: likelihood_mixture" in out
    assert "--method" not in out
    assert "--method NAME takes another one" in run("classify", "-s", "labelled", "-q", "pile")[1]


def test_predict_one_image_on_standard_output(run, place):
    run("fit", "--support", "labelled")
    code, out, err = run("predict", "model.safetensors", "pile/red 1.png")
    assert code == 0
    assert json.loads(out)["predicted"] == "red"
    assert "1 item, classified one by one by likelihood (inductive)." in err
    code, out, _ = run("predict", "model.safetensors", "pile", "--no-cache")
    assert len([json.loads(line) for line in out.splitlines()]) == 24


def test_a_stream_goes_on_after_bad_lines(run, place, monkeypatch):
    run("fit", "--support", "labelled")
    lines = "pile/red 1.png\nnothing.png\n\npile/empty.jpg\npile/blue 3.png\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    code, out, err = run("predict", "model.safetensors", "-", "--reject", 0)
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.get("predicted", row.get("error")) for row in rows] == ["red", "missing file", "empty file", "blue"]
    assert "Each line is classified on its own by likelihood (inductive)." in err


def test_a_second_run_embeds_nothing(run, place, monkeypatch):
    run("classify", "-s", "labelled", "-q", "pile", "-o", "one.csv")

    def never(images):
        raise AssertionError

    kept = callable_encoder(tones, "tones")
    object.__setattr__(kept, "function", never)
    monkeypatch.setattr("likelyshot.own_data.pipeline.open_encoder", lambda name, device: kept)
    code, _, _ = run("classify", "-s", "labelled", "-q", "pile", "-o", "two.csv")
    assert code == 0
    assert (place / "one.csv").read_bytes() == (place / "two.csv").read_bytes()


def test_vectors_with_every_option(run, files, validation):
    validation.save("val.safetensors")
    options = ("--val", "val.safetensors", "--base", "val.safetensors", "--param", "iterations=5", "--seed", 3)
    code, out, _ = run(
        "classify", "-s", "few.npz", "-q", "pile.npy", "-o", "out.jsonl", *options, "--rectify", "--json"
    )
    assert code == 0
    assert json.loads(out)["rectified"]
    assert len((files / "out.jsonl").read_text().splitlines()) == 160
    code, out, _ = run("classify", "-s", "few.npz", "-q", "pile.npy", "-m", "simpleshot", "--base", "val.safetensors")
    assert code == 0
    assert "160 items, classified one by one by simpleshot (inductive)." in out
    assert (files / "predictions.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["classify", "-s", "few.npz", "-q", "nowhere"], "nothing is at 'nowhere'"),
        (["classify", "-s", "nowhere", "-q", "pile.npy"], "nothing is at 'nowhere'"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-o", "out.xlsx"], ".csv, .parquet or .jsonl"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-o", "no/where.csv"], "create it first"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--gallery", "."], "is a folder"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--gallery", "no/where.html"], "create it first"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--gallery", "page.pdf"], "a page that ends in .html"),
        (["classify", "a few", "pile.npy"], "likelyshot classify --support 'a few' --query pile.npy"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--copy-to", "few.npz"], "is a file"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--copy-to", "sorted"], "expected files to sort"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-m", "mll", "cosine"], "expected one method, got 2"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-m", "mlll"], "did you mean 'mll'"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-p", "iterations=many"], "must be a whole number"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "--reject", "2"], "rejection rate"),
        (["classify", "-s", "few.npz", "-q", "pile.npy", "-m", "simpleshot"], "give base features"),
        (["fit", "-s", "few.npz", "-o", "model.bin"], "ending in .safetensors"),
        (["predict", "few.npz", "pile.npy"], "expected a model of likelyshot"),
        (["predict", "nowhere", "pile.npy"], "likelyshot fit"),
        (["predict", "few.npz", "pile.npy", "--json"], "name one with -o"),
        (["predict", "few.npz", "-", "-o", "out.csv"], "standard output"),
        (["predict", ".", "nowhere"], "expected a model of likelyshot"),  # the pile before the model
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_2(run, files, arguments, words):
    code, out, err = run(*arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    "arguments",
    [
        ["classify", "-s", "few.npz", "-q", "pile.npy", "-o", "a.csv", "--gallery", "pipe.html"],
        ["classify", "-s", "few.npz", "-q", "pile.npy", "-o", "pipe.csv"],
        ["fit", "-s", "few.npz", "-o", "pipe.safetensors"],
        ["label", "pile.npy", "-o", "pipe.csv", "--export", "features"],
    ],
)
def test_nothing_is_written_if_a_place_is_a_pipe(run, files, arguments):
    for ending in ("html", "csv", "safetensors"):
        os.mkfifo(f"pipe.{ending}")
    before = sorted(files.iterdir())
    code, _, err = run(*arguments)
    assert (code, "is a device or a pipe: give the name of a file" in err) == (2, True)
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("classify -s few.csv -q pile.csv -o few.csv", "few.csv"),
        ("classify -s few.csv -q predictions.csv", "predictions.csv"),  # the default of -o
        ("classify -s few.csv -q pile.csv -o link.csv", "pile.csv"),
        ("predict model.safetensors pile.csv -o pile.csv", "pile.csv"),
        ("fit -s model.safetensors", "model.safetensors"),
        ("extract f.safetensors -o f.safetensors", "f.safetensors"),
    ],
)
def test_no_input_is_replaced_by_the_output(run, tmp_path, monkeypatch, command, place):
    monkeypatch.chdir(tmp_path)
    for name in ("few.csv", "pile.csv", "predictions.csv", "model.safetensors", "f.safetensors"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "link.csv").symlink_to("pile.csv")
    code, out, err = run(*command.split())
    assert (code, out) == (2, "")
    assert f"expected another place for the output than {place}, which is read: choose another -o" in err
    assert all(path.read_text() == "mine" for path in tmp_path.iterdir())


def test_columns_can_be_named(run, files):
    few = np.load("few.npz")
    lines = [",".join(map(str, [*row, label])) for row, label in zip(few["features"], few["labels"], strict=True)]
    header = ",".join([*(f"f{i}" for i in range(12)), "species"])
    (files / "few.csv").write_text("\n".join([header, *lines]))
    code, _, err = run("classify", "-s", "few.csv", "-q", "few.csv")
    assert code == 2
    assert "--label-column" in err
    for command in (
        ["classify", "-s", "few.csv", "-q", "few.csv", "--label-column", "species"],
        ["fit", "-s", "few.csv", "--label-column", "species"],
        ["predict", "model.safetensors", "few.csv", "--label-column", "species"],
    ):
        assert run(*command)[0] == 0
    code, _, err = run("classify", "-s", "few.csv", "-q", "few.csv", "--label-column", "spices")
    assert code == 2
    assert "did you mean 'species'" in err


def test_base_features_are_never_the_test_split(run, files, features, validation):
    arrays = {"test_features": features.vectors, "test_labels": features.labels}
    arrays |= {"val_features": validation.vectors, "val_labels": validation.labels}
    save_file(arrays, "both.safetensors")
    code, _, err = run("classify", "-s", "few.npz", "-q", "pile.npy", "-m", "simpleshot", "--base", "both.safetensors")
    assert code == 2
    assert "expected base features in both.safetensors" in err


@pytest.mark.parametrize("command", ["classify", "fit", "predict"])
def test_help_has_examples(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"likelyshot {command}" in out


def test_who_has_read_enough_of_a_stream_is_left_in_peace(tmp_path):
    """The pipe breaks after the first line, as by `| head -1`."""
    script = """
import likelyshot.own_data.pipeline
from likelyshot import cli
from likelyshot.cli.own_data import stages
from likelyshot.own_data.model import Model
from likelyshot.encoders.pretrained import callable_encoder

lengths = callable_encoder(lambda texts: [[1 + len(text), 2, 3] for text in texts], "lengths", kind="text")
likelyshot.own_data.pipeline.open_encoder = lambda name, device: lengths
cli.main()
"""
    model = Model.fit(
        [[2, 2, 3], [3, 2, 3], [8, 2, 3], [9, 2, 3]], ["short", "short", "long", "long"], encoder="lengths"
    )
    model.save(tmp_path / "model.safetensors")
    with subprocess.Popen(
        [sys.executable, "-c", script, "predict", "model.safetensors", "-", "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdin.write(b"\xff\n")  # no UTF-8
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["predicted"] == "short"  # before the second line is sent
        process.stdout.close()
        process.stdin.write(b"abc\n" * 10)
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(60) == 0


def test_progress_shows_the_speed_and_the_workers(monkeypatch):
    from likelyshot import machine
    from likelyshot.cli import shared

    said, clock = [], iter([0.0, 0.5, 2.0, 2.1, 3.0])
    monkeypatch.setattr(shared.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(shared.Progress, "update", lambda bar, task, **what: said.append(what.get("description")))
    monkeypatch.setattr(shared.Progress, "advance", lambda bar, task, steps: None)
    monkeypatch.setattr(shared, "_show_only", lambda bar, task: None)
    joined = type("Cluster", (), {"workers": 3})()
    with shared.running() as (_, start):
        progress = stages(start)("embedding the pile", 100)
        for steps in (10, 30, 5):  # too early to say, said, and said just now
            progress(steps)
        with machine.sent_to(joined):
            progress(45)
    assert said == ["embedding the pile", "embedding the pile, 20/s", "embedding the pile, 30/s on 3 workers"]


def test_what_was_confused_is_printed(run, place):
    (place / "labelled" / "blue" / "3.png").write_bytes((place / "pile" / "red 1.png").read_bytes())
    code, out, _ = run("fit", "--support", "labelled", "-o", "m.safetensors")
    assert code == 0
    assert "Mistakes on held-out examples: blue taken for red (1 of 4)." in out
    cells = [line.replace("│", " ").split() for line in out.splitlines() if "│ 1 blue" in line or "│ 2 red" in line]
    assert cells == [["1", "blue", "3", "1"], ["2", "red", "·", "4"]]

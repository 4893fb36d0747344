"""The command line as its users meet it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot import Calibration, Result, calibrate, sample_tasks
from likelyshot.cli import spread
from likelyshot.cli.shared import SUFFIXES, running
from likelyshot.data.features import READERS, Features
from likelyshot.data.tasks import Balanced
from likelyshot.evaluation.reproduce import protocols
from likelyshot.methods import METHODS
from likelyshot.methods.binding import needs
from processes import Child


@pytest.fixture(scope="module")
def file(features, validation, tmp_path_factory):
    """A features file with all three splits."""
    path = tmp_path_factory.mktemp("cli") / "f.safetensors"
    tensors = {}
    for split, part in (("train", validation), ("val", validation), ("test", features)):
        tensors |= {f"{split}.features": part.vectors.clone(), f"{split}.labels": part.labels.clone()}
    names = {split: list(features.classes) for split in ("train", "val", "test")}
    save_file(tensors, path, {"classes": json.dumps(names)})
    return path


QUICK = ("--tasks", 20, "--ways", 3)


def test_without_a_command_it_says_what_to_start_with(run):
    _, out, err = run()
    assert "Start with: likelyshot classify --demo" in out + err
    for command in ("classify", "evaluate", "train"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert "<bool>" not in out  # behind a flag, it would ask for a value
        assert "<list" not in out.partition("Options")[2]


def test_evaluate_prints_a_table(run, file):
    code, out, _ = run("evaluate", file, "--method", "mll", "euclidean", "--shots", 1, 5, *QUICK)
    assert code == 0
    assert "f.safetensors (test): 3-way 1-shot, Dirichlet(2), 75 queries, 20 tasks" in out
    assert "3-way 5-shot" in out
    assert "minus mll" in out


@pytest.mark.parametrize(
    "form",
    [
        ["--method", "mll", "cosine"],
        ["--method", "mll", "--method", "cosine"],
        ["-m", "mll,cosine"],
    ],
)
def test_json_is_one_document_and_nothing_else(run, file, form):
    code, out, err = run("evaluate", file, *form, "--shots", "2", *QUICK, "--seed", 7, "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["method"] for row in rows] == ["mll", "cosine"]
    wanted = [
        "method",
        "ways",
        "shots",
        "query",
        "tasks",
        "seed",
        "mean",
        "ci95",
        "balanced_accuracy",
        "macro_f1",
        "seconds",
    ]
    for row in rows:
        assert set(wanted) <= row.keys()
        assert (row["ways"], row["shots"], row["tasks"], row["seed"], row["query"]) == (
            3,
            2,
            20,
            7,
            "dirichlet",
        )
        assert 0 < row["mean"] <= 1
    assert "accuracy" in err


def test_a_file_after_several_values_is_still_the_file(run, file):
    code, out, _ = run("evaluate", "--method", "mll", "cosine", file, "--shots", 1, *QUICK, "--json")
    assert code == 0
    assert len(json.loads(out)) == 2


def test_all_methods_and_what_is_missing(run, file, features, tmp_path):
    quick = ("--shots", 1, *QUICK, "-p", "steps=20", "-p", "lr_ici.per_round=50")
    code, out, _ = run("evaluate", file, "--method", "all", *quick, "--json")
    assert code == 0
    rows = json.loads(out)
    assert [row["method"] for row in rows] == [name for name in METHODS if "head" not in needs(name)]
    for row in rows:
        assert set(row["minus"]) == {"mll", "mll_transductive"}
        assert row["minus"]["mll"]["mean"] == pytest.approx(row["mean"] - rows[2]["mean"])
    alone = features.save(tmp_path / "alone.safetensors")
    code, out, err = run("evaluate", alone, "--method", "all", *quick, "--json")
    assert code == 0
    assert "simpleshot" not in {row["method"] for row in json.loads(out)}
    assert err.replace("\n", " ").count("Skipped simpleshot: simpleshot needs the mean of base features") == 1
    signed = Features.from_arrays(features.vectors - 0.2, features.labels).save(tmp_path / "signed.safetensors")
    code, out, err = run("evaluate", signed, "--method", "all", *quick, "--json")
    assert code == 0
    assert {row["method"] for row in json.loads(out)} & {"mll", "pt_map", "tim"} == {"tim"}
    assert "Skipped mll: mll needs non-negative features" in err.replace("\n", " ")
    code, out, err = run("evaluate", alone, "--method", "combined", "--shots", 1, *QUICK)
    assert (code, out) == (2, "")
    assert "--val" in err


def test_statistics_from_other_files(run, features, validation, tmp_path):
    alone, other = features.save(tmp_path / "a.safetensors"), validation.save(tmp_path / "b.safetensors")
    code, out, _ = run(
        "evaluate",
        alone,
        "-m",
        "combined",
        "simpleshot",
        "--val",
        other,
        "--base",
        other,
        "--shots",
        1,
        *QUICK,
        "--json",
    )
    assert code == 0
    assert len(json.loads(out)) == 2
    tasks = sample_tasks(validation.labels, n_tasks=20, ways=3, shots=1, query=Balanced(5))
    saved = calibrate(validation, tasks).save(tmp_path / "c.json")
    run_it = ("evaluate", alone, "-m", "combined", "--calibration", saved, "--tasks", 20, "--ways")
    assert run(*run_it, 3, "--shots", 1)[0] == 0
    code, _, err = run(*run_it, 3, "--shots", 5)
    assert code == 2
    assert "made for 1" in err
    assert "shots, these tasks have 5" in err


@pytest.fixture(scope="module")
def three(features, validation, tmp_path_factory):
    """Three files of the same images, by networks that differ."""
    folder = tmp_path_factory.mktemp("three")
    for number, name in enumerate(("euclidean", "cosine", "mll")):
        tensors = {"train.mean": torch.zeros(12)}
        for split, part in (("val", validation), ("test", features)):
            tensors |= {f"{split}.features": part.vectors.roll(number, 0), f"{split}.labels": part.labels.clone()}
        save_file(tensors, folder / f"{name}.safetensors")
    return [folder / f"{name}.safetensors" for name in ("euclidean", "cosine", "mll")]


def test_a_network_for_each_metric(run, three, tmp_path):
    methods = ("euclidean", "cosine", "mll", "combined", "simpleshot")
    code, out, err = run("evaluate", *three, "--method", *methods, "--shots", 1, "--json", "-o", tmp_path, *QUICK)
    assert code == 0
    assert "3 networks (test): 3-way 1-shot, Dirichlet(2), 75 queries, 20 tasks" in err
    rows = {row["method"]: row["mean"] for row in json.loads(out)}
    for path, method in zip(three, methods, strict=False):
        alone = json.loads(run("evaluate", path, "--method", method, "--shots", 1, "--json", *QUICK)[1])
        assert rows[method] == alone[0]["mean"]
        used = Result.load(*tmp_path.glob(f"dirichlet_3way_1shot_{method}_*.json")).config["features"]
        assert [one["file"] for one in used] == [path.name]
    alone = json.loads(run("evaluate", three[2], "--method", "simpleshot", "--shots", 1, "--json", *QUICK)[1])
    assert rows["simpleshot"] == alone[0]["mean"]
    used = Result.load(*tmp_path.glob("dirichlet_3way_1shot_combined_*.json")).config
    assert [one["file"] for one in used["features"]] == [path.name for path in three]
    assert len(used["networks"]) == 3
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Results on the features of 3 networks</h1>" in page
    assert "<li>Features: euclidean.safetensors + cosine.safetensors + mll.safetensors" in page
    [calibration] = tmp_path.glob("calibration_3way_1shot_*.json")
    given = ("--calibration", calibration, "--method", "combined", "--shots", 1, "--json")
    assert json.loads(run("evaluate", *three, *given, *QUICK)[1])[0]["mean"] == rows["combined"]


def test_networks_must_fit_the_metrics(run, three, file, tmp_path):
    code, _, err = run("evaluate", *three[:2], "--method", "mll", *QUICK)
    assert (code, "one for each of euclidean, cosine, mll, but got 2" in err) == (2, True)
    two = ("--method", "combined", "mll", "--param", "combined.metrics=cosine,mll", "--shots", 1)
    assert run("evaluate", *three[1:], *two, *QUICK)[0] == 0
    code, _, err = run("evaluate", *three, "--val", file, "--method", "combined", *QUICK)
    assert (code, "expected --val 3 times" in err) == (2, True)
    every = [word for path in three for word in ("--val", path)]
    assert run("evaluate", *three, *every, "--method", "combined", "--shots", 1, *QUICK)[0] == 0


def test_a_sweep_takes_the_network_of_its_method(run, three, tmp_path):
    for method, grid, files in (("cosine", "normalise=yes,no", three[1:2]), ("combined", "lambda_max=40,80", three)):
        given = ("--method", method, "--grid", grid, "--shots", 1, *QUICK, "-o", tmp_path)
        validation = [word for path in three for word in ("--val", path)] if method == "combined" else []
        assert run("sweep", *three, *validation, *given)[0] == 0
        used = json.loads((tmp_path / "sweep.json").read_text())["config"]["features"]
        assert [one["file"] for one in used] == [path.name for path in files]
        assert {one["split"] for one in used} == {"val"}


def test_parameters_reach_the_method(run, file):
    def mean(*params):
        code, out, _ = run("evaluate", file, "-m", "mll", "--shots", 1, *QUICK, "--json", *params)
        assert code == 0
        return json.loads(out)[0]

    assert mean("--param", "lambda_max=80")["params"]["lambda_max"] == 80
    assert mean("--param", "mll.lambda_max=80", "--no-normalise")["params"] == {
        "lambda_max": 80,
        "normalise": False,
        "shrinkage": 0.0,
    }
    assert mean("--query", "balanced", "--per-class", 4)["per_class"] == 4
    assert mean("--alpha", 0.5, "--total", 30)["alpha"] == 0.5
    assert mean("--split", "val")["mean"] != mean()["mean"]
    assert mean("--overlap")["overlap"] is True


def test_results_are_written(run, file, tmp_path):
    code, _, _ = run("evaluate", file, "-m", "mll", "combined", "--shots", 1, *QUICK, "-o", tmp_path / "out")
    assert code == 0
    saved = Calibration.load(*(tmp_path / "out").glob("calibration_3way_1shot_*.json"))
    assert (saved.ways, saved.shots) == (3, 1)
    result = Result.load(*(tmp_path / "out").glob("dirichlet_3way_1shot_mll_*.json"))
    assert len(result.accuracy) == 20
    assert json.loads((tmp_path / "out" / "evaluate.json").read_text())["rows"][0]["mean"] == result.mean


def test_two_commands_into_one_folder_stay_apart(run, file, tmp_path):
    for alpha in (1, 5):
        settings = ("--alpha", alpha, "--shots", 1, *QUICK)
        assert run("evaluate", file, "-m", "mll", "cosine", *settings, "-o", tmp_path)[0] == 0
    stored = [Result.load(path) for path in tmp_path.glob("dirichlet_*.json")]
    assert sorted(result.config["query"]["alpha"] for result in stored) == [1, 1, 5, 5]
    page = (tmp_path / "report.html").read_text()
    assert "Dirichlet(5)" in page
    assert "Dirichlet(1)" not in page  # that was another command
    assert run("evaluate", file, "-m", "mll", "cosine", *settings, "-o", tmp_path)[0] == 0
    assert len(list(tmp_path.glob("dirichlet_*.json"))) == 4


def test_the_split_under_test_is_no_validation_for_itself(run, file, tmp_path):
    few = ("--shots", 1, "--per-class", 5, "--query", "balanced", *QUICK)
    for command in (("evaluate", file, "--split", "val"), ("sweep", file, "--grid", "rule=youden,closest")):
        code, _, err = run(*command, "-m", "combined", *few, "-o", tmp_path / "no")
        assert code == 2
        assert "combined needs score statistics of validation classes: give validation features (--val FILE)" in err
        assert "or a features file with a split called val, and test another of its splits (--split test)" in err
        for remedy in (("--val", file), ("--split", "test")):
            assert run(*command, *remedy, "-m", "combined", *few, "-o", tmp_path / remedy[0])[0] == 0
    code, out, _ = run("evaluate", file, "--split", "val", "-m", "mll", *few, "--json")
    assert (code, json.loads(out)[0]["temperature"]) == (0, 1.0)
    code, out, _ = run("evaluate", file, "-m", "mll", *few, "--json")
    assert json.loads(out)[0]["temperature"] != 1.0


@pytest.mark.parametrize("name", ["nofile.npz", "folder/features", "NOFILE.CSV"])
def test_a_missing_file_after_the_methods_is_not_a_method(run, name):
    code, _, err = run("evaluate", "--method", "mll", "cosine", name, *QUICK)
    assert code == 2
    assert "unknown method" not in err
    assert Path(name).name in err


def test_values_with_separators_are_still_values():
    assert spread(["train", "x", "--set", "a=/b", "c=/d.npz"]) == ["train", "x", "--set", "a=/b", "--set", "c=/d.npz"]
    assert set(SUFFIXES) <= set(READERS)


def test_known_class_shares_on_the_command_line(run, file):
    shares = ("-m", "pt_map", "-p", "marginals=0.2,0.3,0.5", "--shots", 1, *QUICK, "--json")
    code, out, _ = run("evaluate", file, *shares)
    assert (code, json.loads(out)[0]["params"]["marginals"]) == (0, [0.2, 0.3, 0.5])


def test_sweep_writes_json_and_a_plot(run, file, tmp_path):
    code, out, _ = run(
        "sweep", file, "--grid", "lambda_max=10:30:10", "--shots", 1, *QUICK, "--per-class", 5, "-o", tmp_path
    )
    assert code == 0
    assert "f.safetensors (val)" in out
    assert out.endswith(f"Wrote sweep.json and sweep.svg to {tmp_path}\n")
    stored = json.loads((tmp_path / "sweep.json").read_text())
    assert stored["grid"] == {"lambda_max": [10, 20, 30]}
    assert (tmp_path / "sweep.svg").read_text().startswith("<?xml")
    code, out, err = run(
        "sweep", file, "-m", "mll_transductive", "--grid", "iterations=0,2", "eta=0.3:0.7:0.4", "--shots", 1, *QUICK,
        "--per-class", 5, "-o", tmp_path, "--json",
    )  # fmt: skip
    assert code == 0
    assert len(json.loads(out)) == 4
    assert err.endswith(f"Wrote sweep.json and sweep.svg to {tmp_path}, in place of an earlier sweep\n")


def test_explore_writes_a_page_and_figures(run, file, tmp_path, monkeypatch):
    monkeypatch.setattr("likelyshot.report.figures.FORMATS", ("svg",))
    monkeypatch.setattr("likelyshot.evaluation.explore.MOST_ON_MAP", 20)  # the map takes longest
    page, figures = tmp_path / "new" / "page.html", tmp_path / "figures"
    code, out, _ = run("explore", file, *QUICK, "-o", page, "--figures", figures, "--json")
    assert code == 0
    assert json.loads(out)["about"]["images"] == 320
    assert "likelyshot explore" in page.read_text()
    assert {"features.svg", "scores.svg"} <= {path.name for path in figures.iterdir()}


def test_explore_shows_a_folder_of_images_on_a_map(run, tmp_path):
    for name, shade in (("dark", 40), ("light", 210)):
        for i in range(3):
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 40), (shade, shade, 20 * i)).save(tmp_path / "photos" / name / f"{i}.png")
    options = ["--encoder", "conv4_cifar_fs", "--tasks", "5", "-o"]
    run("explore", str(tmp_path / "photos"), *options, str(tmp_path / "classes.html"))
    run("explore", str(tmp_path / "photos" / "dark"), *options, str(tmp_path / "pile.html"))
    for page, name, sections in (("classes", "photos/light/2.png", 5), ("pile", "dark/2.png", 1)):
        text = (tmp_path / f"{page}.html").read_text()
        assert name in text
        assert text.count("data:image/jpeg") == 6 if page == "classes" else 3
        assert text.count('<section id="section-') == sections


def test_explore_takes_as_many_ways_as_there_are_unless_told(run, features, tmp_path):
    few = features.labels < 3
    save_file({"features": features.vectors[few], "labels": features.labels[few]}, tmp_path / "few.safetensors")
    arguments = ("explore", tmp_path / "few.safetensors", "--tasks", 5, "-o", tmp_path / "page.html")
    assert run(*arguments)[0] == 0
    code, _, err = run(*arguments, "--ways", 4)
    assert (code, "expected at least 4 classes" in err) == (2, True)


def test_explore_refuses_before_it_writes(run, file, features, tmp_path):
    code, _, err = run("explore", file, *QUICK, "-o", tmp_path)
    assert code == 2
    assert "is a folder: give the name of a file" in err
    signed = Features.from_arrays(features.vectors - 0.2, features.labels).save(tmp_path / "signed.safetensors")
    code, _, err = run("explore", signed, *QUICK, "-o", tmp_path / "p.html")
    assert code == 2
    assert "--rectify" in err
    assert not (tmp_path / "p.html").exists()
    assert run("explore", signed, "--rectify", *QUICK, "-o", tmp_path / "p.html")[0] == 0


def test_list_names_needs_and_papers(run):
    code, out, _ = run("list", "--json")
    assert code == 0
    rows = {row["method"]: row for row in json.loads(out)}
    assert rows["simpleshot"]["needs"] == ["base_mean"]
    assert "Hess" in rows["mll"]["paper"]
    code, out, _ = run("list")
    assert code == 0
    assert "mll_transductive" in out


def test_help_has_examples(run):
    for command in ("reproduce", "evaluate", "sweep", "explore"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"likelyshot {command}" in out
        assert "💯" not in out  # what rich makes of :100:
    code, out, _ = run("--version")
    assert out.startswith("likelyshot 0.")


def bad_inputs(folder):
    """Arguments of evaluate that cannot work, with a part of what must be said."""
    good = np.abs(np.random.default_rng(0).normal(size=(60, 6))).astype(np.float32)
    labels = np.arange(60) % 6

    def write(name, vectors, labels=labels):
        np.savez(folder / f"{name}.npz", features=vectors, labels=labels)
        return folder / f"{name}.npz"

    def with_(value):
        bad = good.copy()
        bad[3] = value
        return bad

    (folder / "truncated.safetensors").write_bytes(b"\x40\x00\x00\x00\x00\x00\x00\x00{")
    (folder / "foreign.safetensors").write_bytes(b"GIF89a not features at all")
    (folder / "empty.npz").write_bytes(b"")
    (folder / "locked").write_text("a file")
    fine = write("good", good)
    small = ["--tasks", 5, "--ways", 3, "--shots", 1, "--total", 9]
    return {
        "nan": ([write("nan", with_(np.nan)), *small], "NaN"),
        "infinite": ([write("inf", with_(np.inf)), *small], "infinity"),
        "negative": ([write("negative", -good), *small, "-m", "mll", "-o", folder / "new"], "--rectify"),
        "zero": ([write("zero", with_(0)), *small], "all zeros"),
        "one class": ([write("one", good, labels * 0), *small], "one class only"),
        "few samples": (
            [write("few", good, np.r_[np.arange(58) % 5, 5, 5]), *small, "--shots", 3],
            "class '5' has 2 images",
        ),
        "lengths": ([write("lengths", good, labels[:-1]), *small], "one label per row"),
        "no labels": ([_no_labels(folder, good), *small], "no labels: add them, or name a file (--labels FILE)"),
        "image": ([_image(folder), *small], "likelyshot extract FOLDER -o F.safetensors makes one of images"),
        "missing": ([folder / "nothing.npz", *small], "check the path"),
        "folder": ([folder, *small], f"it is a folder: if it has images, likelyshot extract {folder} -o F"),
        "truncated": ([folder / "truncated.safetensors", *small], "truncated.safetensors"),
        "foreign": ([folder / "foreign.safetensors", *small], "foreign.safetensors"),
        "empty": ([folder / "empty.npz", *small], "empty"),
        "unwritable": ([fine, *small, "-o", folder / "locked"], "is a file"),
        "unwritable below": ([fine, *small, "-o", "/proc/nowhere"], "choose another folder"),
        "method": ([fine, *small, "-m", "mlll"], "did you mean 'mll'"),
        "no method": ([fine, *small, "-m", ""], "expected the name of a method"),
        "parameter": ([fine, *small, "-m", "mll", "-p", "lambda_mx=3"], "did you mean 'lambda_max'"),
        "parameter of another": ([fine, *small, "-m", "mll", "-p", "cosine.normalise=no"], "not evaluated"),
        "no equals": ([fine, *small, "-p", "lambda_max"], "NAME=VALUE"),
        "value": ([fine, *small, "-m", "mll", "-p", "lambda_max=big"], "must be a number"),
        "bad value": ([fine, *small, "-m", "mll", "-p", "lambda_max=-3"], "must be a number from"),
        "tasks": ([fine, *small, "--tasks", 0], "--tasks"),
        "alpha": ([fine, *small, "--alpha", -1], "alpha"),
        "alpha nan": ([fine, *small, "--alpha", "nan"], "alpha"),
        "total": ([fine, *small, "--total", 0], "total"),
        "per class": ([fine, *small[:-2], "--query", "balanced", "--per-class", 0], "per_class"),
        "too many queries": ([fine, *small[:-2], "--query", "balanced", "--per-class", 20], "10 images"),
        "total of balanced queries": ([fine, *small, "--query", "balanced"], "add --query dirichlet"),
        "per class of other queries": ([fine, *small, "--per-class", 3], "add --query balanced"),
        "too large a total": ([fine, *small, "--total", 900], "images"),
        "ways": ([fine, *small, "--ways", 9], "add some, or ask for fewer ways"),
        "one way": ([fine, *small, "--ways", 1], "ways"),
        "shots": ([fine, *small, "--shots", 0], "shots"),
        "many shots": ([fine, *small, "--shots", 2**70], "shots"),
        "large seed": ([fine, *small, "--seed", 2**70], "--seed"),
        "many queries": ([fine, *small, "--total", 2**70], "queries are needed"),
        "seed": ([fine, *small, "--seed", -1], "seed"),
        "device": ([fine, *small, "--device", "abacus"], "--device cpu"),
        "meta device": ([fine, *small, "--device", "meta"], "--device cpu"),
        "split": ([fine, *small, "--split", "test"], "split"),
        "not a number": ([fine, *small, "--tasks", "many"], "--tasks"),
        "plan": ([fine, *small, "--query", "uniform"], "uniform"),
        "option": ([fine, *small, "--taks", "3"], "--tasks"),
    }


def _no_labels(folder, vectors):
    alone = folder / "alone"
    alone.mkdir()
    np.save(alone / "x.npy", vectors)
    return alone / "x.npy"


def _image(folder):
    (folder / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    return folder / "photo.jpg"


@pytest.mark.parametrize("case", [
    "nan", "infinite", "negative", "zero", "one class", "few samples", "lengths", "no labels", "image", "missing",
    "folder", "truncated", "foreign", "empty", "unwritable", "unwritable below", "method", "no method", "parameter",
    "parameter of another", "no equals", "value", "bad value", "tasks", "alpha", "alpha nan", "total", "per class",
    "too many queries", "too large a total", "ways", "one way", "shots", "many shots", "large seed", "many queries",
    "seed", "device", "meta device", "split", "not a number", "plan", "option",
])  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_code_2(run, tmp_path, case):
    arguments, message = bad_inputs(tmp_path)[case]
    before = sorted(tmp_path.rglob("*"))
    code, out, err = run("evaluate", *arguments)
    flat = " ".join(err.replace("│", " ").split())
    assert code == 2
    assert out == ""
    assert message in flat
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("bad", [["--tasks", 0], ["--seed", -1], ["--device", "abacus"]])
def test_reproduce_refuses_nonsense_before_it_writes(run, tmp_path, bad):
    code, out, err = run("reproduce", *bad, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert bad[0].strip("-") in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("lambda_max", "NAME=FIRST:LAST:STEP"),
        ("lambda_max=1:2:0", "1 to 1,000 points"),
        ("lambda_max=10:1:1", "1 to 1,000 points"),
        ("lambda_mx=1,2", "did you mean 'lambda_max'"),
        ("lambda_max=a,b", "must be a number"),
        ("lambda_max=", "NAME=FIRST:LAST:STEP"),
        ("lambda_max=2,2.0", "got one twice"),
    ],
)
def test_a_bad_grid_is_refused(run, file, tmp_path, grid, message):
    code, out, err = run("sweep", file, "--grid", grid, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_sweep_of_several_methods_or_three_parameters_is_refused(run, file, tmp_path):
    assert run("sweep", file, "-m", "all", "-o", tmp_path / "out")[0] == 2
    grid = ["--grid", "eta=0.5", "iterations=1", "lambda_max=40"]
    code, _, err = run("sweep", file, "-m", "mll_transductive", *grid, "-o", tmp_path / "out")
    assert code == 2
    assert "one or two parameters" in err
    for given, message in (
        (("-m", "mll", "cosine"), "a sweep takes one method, got 2"),
        (("-m", "protonet"), "protonet has no parameters to sweep over: choose another method"),
        (("--grid", "lambda_max=1,2", "lambda_max=3"), "got lambda_max twice"),
        (("--grid", "lambda_max=1,2", "--param", "lambda_max=3"), "lambda_max is in the grid and fixed by another"),
    ):
        code, _, err = run("sweep", file, *given, "-o", tmp_path / "out")
        assert (code, message in err) == (2, True), err


def test_signed_features_with_rectify(run, tmp_path):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 4
    signed = Features.from_arrays(torch.randn(60, 6, generator=generator), labels).save(tmp_path / "s.safetensors")
    code, _, _ = run("evaluate", signed, "-m", "mll", "--rectify", "--tasks", 5, "--ways", 3, "--total", 9)
    assert code == 0


@pytest.mark.processes
def test_ctrl_c_leaves_no_half_written_file_and_a_second_run_goes_on(run, monkeypatch, tmp_path):
    code = [
        "import faulthandler, signal",
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # processes that are forked ignore it",
        "faulthandler.dump_traceback_later(200)  # where it hangs, if it does",
        "from likelyshot.evaluation import reproduce, run",
        "run.CALIBRATION_TASKS, reproduce.LAMBDA_MAX = 50, (20.0, 40.0)  # as much as a second run needs",
        "rows = ('euclidean', 'cosine', 'mll', 'mll_transductive')",
        "tables = {'imbalanced': (reproduce.protocols(False)['imbalanced'][0], rows)}",
        "reproduce.protocols = lambda full: tables",
        "from likelyshot.cli import main",
        "main()",
    ]
    arguments = ["reproduce", "--tasks", "30", "-o", str(tmp_path / "out")]
    cells = tmp_path / "out" / "cells"
    child = Child("\n".join(code), *arguments, folder=tmp_path)
    deadline = time.monotonic() + 120
    while not (cells.is_dir() and len(list(cells.glob("*.json"))) >= 2):
        assert child.process.is_alive(), child.err
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(child.process.pid, signal.SIGINT)
    assert child.wait() == 130, child.err
    assert "Traceback" not in child.err
    finished = sorted(cells.iterdir())
    assert not [path.name for path in tmp_path.rglob(".*")]
    for path in finished:
        Result.load(path)
    tables = {
        "imbalanced": (protocols(full=False)["imbalanced"][0], ("euclidean", "cosine", "mll", "mll_transductive"))
    }
    monkeypatch.setattr("likelyshot.evaluation.run.CALIBRATION_TASKS", 50)
    monkeypatch.setattr("likelyshot.evaluation.reproduce.LAMBDA_MAX", (20.0, 40.0))
    monkeypatch.setattr("likelyshot.evaluation.reproduce.protocols", lambda full: tables)
    code, out, err = run(*arguments, "--json")
    assert code == 0
    assert len(json.loads(out)) == 4 * 2
    assert f"{len(finished)} finished cells were reused" in err
    assert "other data sets and" in err.replace("\n", " ")


def test_a_ctrl_c_that_was_lost_is_found_at_the_next_step(interruptible):
    def work():
        with running(False) as (_, start):
            progress, _ = start(2)
            progress(1)
            with contextlib.suppress(KeyboardInterrupt):  # as Python does while it finalises an object
                signal.raise_signal(signal.SIGINT)
            progress(1)

    with pytest.raises(SystemExit) as stopped:
        work()
    assert stopped.value.code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_an_interrupted_import_breaks_is_no_bug(interruptible):
    def work():
        with running(False):
            with contextlib.suppress(KeyboardInterrupt):  # as numpy does while it is imported
                signal.raise_signal(signal.SIGINT)
            raise AttributeError("module 'numpy' has no attribute 'nonzero'")

    with pytest.raises(SystemExit) as stopped:
        work()
    assert stopped.value.code == 130


def test_the_split_under_test_is_no_base_for_itself(run, file):
    arguments = ("evaluate", file, "-m", "simpleshot", "--tasks", 3, "--ways", 3, "--total", 9, "--shots", 1)
    assert run(*arguments)[0] == 0
    code, _, err = run(*arguments, "--split", "train")
    assert code == 2
    assert "simpleshot needs the mean of base features" in err
    assert run(*arguments, "--split", "train", "--base", file)[0] == 0  # asked for


def test_damaged_base_features_matter_only_to_methods_that_need_them(run, features, tmp_path):
    tensors = {"train.features": torch.full((4, 12), float("nan")), "train.labels": torch.arange(4) % 2}
    tensors |= {"test.features": features.vectors.clone(), "test.labels": features.labels.clone()}
    save_file(tensors, tmp_path / "f.safetensors")
    arguments = (tmp_path / "f.safetensors", "--tasks", 3, "--ways", 3, "--total", 9, "--shots", 1)
    assert run("evaluate", *arguments, "-m", "cosine")[0] == 0
    code, _, err = run("evaluate", *arguments, "-m", "simpleshot")
    assert code == 2
    assert err.count("f.safetensors") == 1


def test_a_fault_of_the_validation_features_is_told_as_theirs(run, file, features, tmp_path):
    few = features.labels < 2
    save_file({"features": features.vectors[few], "labels": features.labels[few]}, tmp_path / "few.safetensors")
    code, _, err = run(
        *("evaluate", file, "-m", "combined", "--tasks", 3, "--ways", 3, "--total", 9),
        *("--val", tmp_path / "few.safetensors"),
    )
    assert code == 2
    assert "combined cannot be calibrated on the validation features: expected at least 3 classes" in err


def test_a_sweep_of_a_method_without_lambda_max_asks_for_a_grid(run, file, tmp_path):
    code, _, err = run("sweep", file, "-m", "bd_cspn", "--tasks", 3, "-o", tmp_path / "s")
    assert code == 2
    assert "expected --grid NAME=A,B,C, as bd_cspn has no lambda_max: its parameters are tau" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.processes
def test_a_full_disk_is_told_in_a_sentence(tmp_path):
    child = Child("from likelyshot.cli import main; main()", "list", "--json", folder=tmp_path, out=Path("/dev/full"))
    assert child.wait() == 2
    assert child.err.startswith("likelyshot: cannot write all of the output (No space left on device)")
    assert child.err.count("\n") == 1


LONG = "a" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", LONG],
        ["report", f"{LONG}/results"],
        ["report", "b/" * 3000],
        ["explore", f"{LONG}.npz"],
        ["fit", "--support", LONG, "-o", "model.safetensors"],
        ["predict", f"{LONG}.safetensors", "pile.csv"],
        ["classify", "--support", "labelled", "--query", LONG],
        ["classify", "--demo", "--demo-folder", LONG],
        ["merge", LONG],
        ["extract", LONG, "-o", "x.safetensors"],
        ["train", f"{LONG}.toml"],
        ["label", LONG],
    ],
)
def test_a_name_that_is_too_long_is_refused_in_a_short_sentence(run, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.strip().startswith("likelyshot: ")
    assert len(err.strip().splitlines()) == 1
    assert len(err) < 500
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([LONG * 9], "No such command"),
        ([f"--{LONG * 9}"], "No such option"),
        (["sweep", f"--{LONG * 9}"], "No such option"),
        (["evaluate", "--query", LONG * 9], "is not one of 'dirichlet', 'balanced'"),
        (["reproduce", *["ab"] * 999, "c\x1b[2J"], "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_repeated_in_short(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert len(err.splitlines()) < 15
    assert "\x1b[2J" not in err


@pytest.mark.parametrize(
    "command", ["classify -s few -q", "predict model.safetensors", "label", "explore", "extract -o f.safetensors"]
)
def test_a_pattern_without_quotes_is_told_what_to_do(run, command):
    code, _, err = run(*command.split(), *(f"pile/{number}.jpg" for number in range(100)))
    flat = " ".join(err.replace("│", " ").split())
    assert code == 2
    assert "To give several files, name their folder" in flat
    assert ("put quotes around the pattern" in flat) == (not command.startswith("ex"))


def test_an_error_is_the_only_line(run, tmp_path):
    code, out, err = run("explore", tmp_path / "none.npz", "-o", tmp_path / "page.html")
    assert (code, out) == (2, "")
    assert err.startswith("likelyshot: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1


def test_the_rest_of_an_output_is_not_written_if_a_place_is_wrong(run, tmp_path, file):
    (tmp_path / "loop").symlink_to("loop")
    arguments = ("explore", file, "--tasks", 5, "--ways", 3, "-o", tmp_path / "page.html")
    for wrong in ("loop", "loop/figures", LONG, f"{LONG}/figures", "b/" * 3000):
        code, _, err = run(*arguments, "--figures", tmp_path / wrong)
        assert (code, "cannot write to" in err) == (2, True)
        assert not (tmp_path / "page.html").exists()


def test_a_pipe_is_refused_before_anything_is_computed(run, tmp_path, file):
    os.mkfifo(tmp_path / "pipe.html")
    os.mkfifo(tmp_path / "pipe.safetensors")
    for arguments in (
        ("explore", file, "-o", tmp_path / "pipe.html", "--figures", tmp_path / "figures"),
        ("report", "nothing.json", "-o", tmp_path / "pipe.html"),
        ("extract", file, "-o", tmp_path / "pipe.safetensors"),
    ):
        code, _, err = run(*arguments)
        assert (code, "is a device or a pipe: give the name of a file" in err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe.html", "pipe.safetensors"]


@pytest.mark.processes
def test_names_that_no_terminal_can_show_are_written_as_codes(tmp_path, file):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    script = "import sys; from likelyshot.cli import main; sys.stdout.reconfigure(errors='strict'); main()"
    child = Child(script, "evaluate", str(file), *map(str, QUICK), "-m", "mll", "-o", folder, folder=tmp_path)
    assert child.wait() == 0, child.err
    assert "caf\\udce9" in child.out


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["classify", "labelled/", "pile/"], "likelyshot classify --support labelled/ --query pile/"),
        (["classify", "labelled/"], "likelyshot classify --support labelled/ --query PILE"),
        (["fit", "labelled/"], "likelyshot fit --support labelled/"),
    ],
)
def test_paths_without_options_are_told_the_whole_command(run, arguments, command):
    status, _, err = run(*arguments)
    assert status == 2
    assert err.strip().endswith(command)

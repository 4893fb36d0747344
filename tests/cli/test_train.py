"""likelyshot train and likelyshot extract, as their users meet them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from importlib.util import find_spec

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot import Features
from likelyshot.encoders.checkpoints import load_checkpoint
from likelyshot.encoders.pretrained import callable_encoder
from processes import pair

pytestmark = pytest.mark.skipif(find_spec("lightning_fabric") is None, reason="needs the extra train")

RECIPE = """
[data]
features = "{features}"
[encoder]
name = "relu_head"
params = {{ dim = 8, rectify = true }}
[finetune]
epochs = 2
episodes = 5
ways = 3
queries = 4
lr = 1e-2
temperature = 2.0
[validate]
ways = 3
queries = 4
tasks = 10
[run]
output = "{output}"
"""


@pytest.fixture
def recipe(tmp_path):
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for split in ("train", "val", "test"):
        labels = torch.arange(5).repeat_interleave(8)
        centres = torch.randn(5, 6, generator=generator)
        tensors[f"{split}.features"] = centres[labels] + torch.randn(40, 6, generator=generator)
        tensors[f"{split}.labels"] = labels
    save_file(tensors, tmp_path / "f.safetensors")
    path = tmp_path / "r.toml"
    path.write_text(RECIPE.format(features=tmp_path / "f.safetensors", output=tmp_path / "run"))
    return path


def test_train_then_extract_then_evaluate(run, recipe, tmp_path):
    code, out, err = run("train", recipe, "--set", "finetune.epochs=1", "--accelerator", "cpu")
    assert code == 0, err
    assert "finetune: best " in out
    assert f"likelyshot evaluate {tmp_path}/run/features.safetensors" in out
    assert "finetune: epoch 1/1, loss " in err
    assert "images/s" in err
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["finetune"]["epochs"] == 1
    best, output = tmp_path / "run" / "best.safetensors", tmp_path / "e.safetensors"
    arguments = ("extract", tmp_path / "f.safetensors", "--split", "test", "--checkpoint", best, "-o", output)
    code, out, err = run(*arguments)
    assert code == 0, err
    assert "40 x 8 features" in out
    assert "images/s" in out
    made = Features.load(tmp_path / "run" / "features.safetensors", split="test")
    assert torch.equal(Features.load(output).vectors, made.vectors)
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    assert not json.loads(out)["computed"]
    code, out, err = run("evaluate", tmp_path / "run" / "features.safetensors", "--ways", 3, "--tasks", 5, "--total", 9)
    assert code == 0, err


def test_two_processes_of_torchrun_give_the_losses_of_one(run, recipe, tmp_path):
    changes = ("--set", "finetune.episodes_per_step=2", "--set", "finetune.episodes=6", "--set", "run.log_steps=1")
    arguments = ["train", str(recipe), *changes, "--set", f"run.output={tmp_path / 'two'}"]
    machines = ["--accelerator", "cpu", "--devices", "2", "--strategy", "ddp", "--json"]
    children = pair("from likelyshot.cli import main; main()", *arguments, *machines, folder=tmp_path)
    assert [child.wait() for child in children] == [0, 0], children[0].err
    assert json.loads(children[0].out)["parameters"] == 12 * 8 + 8
    assert children[1].out == ""  # reported once, by the first process
    assert run("train", recipe, *changes, "--accelerator", "cpu")[0] == 0
    logs = ((tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("run", "two"))
    steps = [[line for line in map(json.loads, log) if line["event"] == "step"] for log in logs]
    assert len(steps[0]) == 2 * 3
    assert [step["place"] for step in steps[1]] == [step["place"] for step in steps[0]]
    assert [step["loss"] for step in steps[1]] == pytest.approx([step["loss"] for step in steps[0]], rel=1e-5)
    ones, twos = (load_checkpoint(tmp_path / name / "last.safetensors").tensors for name in ("run", "two"))
    for name in ones:
        torch.testing.assert_close(twos[name], ones[name], rtol=1e-4, atol=1e-6)


def test_a_second_run_needs_resume(run, recipe):
    assert run("train", recipe, "--set", "finetune.epochs=1")[0] == 0
    code, _, err = run("train", recipe, "--set", "finetune.epochs=1")
    assert code == 2
    assert "continue with --resume" in err
    code, out, _ = run("train", recipe, "--set", "finetune.epochs=1", "--resume", "--json")
    assert code == 0
    assert json.loads(out)["parameters"] == 12 * 8 + 8


def test_dry_run_shows_everything_and_writes_nothing(run, recipe, tmp_path):
    code, out, _ = run("train", recipe, "--set", "run.seed=7", "--dry-run")
    assert code == 0
    shown = json.loads(out)
    assert shown["recipe"]["run"]["seed"] == 7
    assert shown["recipe"]["pretrain"]["momentum"] == 0.9
    assert shown["encoder"] == {"parameters": 12 * 8 + 8, "dim": 8}
    assert not (tmp_path / "run").exists()


def test_parts_of_the_package_by_name(run):
    parts = ("mini_imagenet", "resnet12", "mll", "--set", "encoder.params.widths=[4, 4, 4, 8]")
    code, out, err = run("train", *parts, "--dry-run")
    assert code == 0, err
    recipe = json.loads(out)["recipe"]
    assert (recipe["encoder"]["name"], recipe["run"]["output"]) == ("resnet12", "runs/mini_imagenet_resnet12_mll")


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_what_is_missing_is_named_with_its_setting(run, tmp_path, monkeypatch, dry):
    monkeypatch.chdir(tmp_path)
    missing = "expected the {0} of the recipe at 'data/{1}', but nothing is there: say where they are with --set {2}\n"
    for parts, words, status in (
        (["resnet12"], "got neither: give one of them, as in --set data.path=IMAGES\n", 2),
        (["cub_head_mll"], missing.format("features", "cub_efficientnet_lite0.safetensors", "data.features=FILE"), 2),
        (["mini_imagenet", "conv4", "mll"], missing.format("images", "mini_imagenet", "data.path=FOLDER"), 0),
    ):
        code, _, err = run("train", *parts, *dry)
        assert code == (status if dry else 2)
        assert err.endswith(words), parts
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "finetune.epoch=1"], "unknown key 'finetune.epoch' in the recipe: did you mean 'epochs'"),
        (["resnet_12"], "unknown recipe 'resnet_12': did you mean 'resnet12'"),
        (["--set", "epochs"], "expected a change as TABLE.KEY=VALUE"),
        (["--set", "encoder.params.in_dim=7"], "expected encoder.params.in_dim = 6, the length of the features, got 7"),
        (["--set", "encoder.name=conv4"], "conv4 takes images, got features"),
        (["--set", "encoder.params.dim=1000000000"], "expected dim from 1 to 16,384"),
        (["--set", "data.features=none.npz"], "nothing is there"),
        (["--accelerator", "abacus"], "cannot train on these devices"),
        (["--accelerator", "hpu"], "cannot train on these devices"),
        (["--strategy", "deepspeed"], "cannot train on these devices"),
        (["--devices", "1000000000"], "expected --devices from 1 to 4,096, got 1000000000"),
        (["--devices", "0"], "expected --devices from 1 to 4,096, got 0"),
        (["--devices", "many"], "expected --devices from 1 to 4,096, got 'many'"),
        (["--devices", "\N{SUPERSCRIPT TWO}"], "expected --devices from 1 to 4,096"),
        (["--devices", "9" * 5000], "expected --devices from 1 to 4,096, got '999999"),
        (["--num-nodes", "-1"], "expected --num-nodes from 1"),
        (["--strategy", "abacus"], "cannot train on these devices"),
    ],
)
def test_bad_input_ends_with_a_sentence(run, recipe, arguments, message):
    code, out, err = run("train", recipe, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_waits_for_the_step_and_says_how_to_go_on(run, recipe, monkeypatch, interruptible, number):
    from likelyshot.training import loop
    from likelyshot.training import run as runs

    def interrupted(recipe, *, stop, **others):
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        raise loop.Stopped

    monkeypatch.setattr(runs, "train", interrupted)
    before = signal.getsignal(number)
    code, _, err = run("train", recipe, "--set", "run.seed=3")
    assert code == 130
    assert f"the run is saved; continue with: likelyshot train {recipe} --set run.seed=3 --resume" in err
    assert signal.getsignal(number) is before


def test_ctrl_c_is_not_put_off_before_the_first_step_nor_twice(run, recipe, monkeypatch, interruptible):
    from likelyshot.training import run as runs

    def at_once(recipe, **others):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    def twice(recipe, *, stop, **others):
        stop()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    for fake in (at_once, twice):
        monkeypatch.setattr(runs, "train", fake)
        code, _, err = run("train", recipe)
        assert code == 130
        assert "the last checkpoint can be used" in err


def test_a_ctrl_c_that_was_lost_ends_the_run_after_a_step(run, recipe, monkeypatch, interruptible):
    from likelyshot.training import loop
    from likelyshot.training import run as runs

    def lost(recipe, *, stop, **others):
        with contextlib.suppress(KeyboardInterrupt):  # as some modules do while they are imported
            signal.raise_signal(signal.SIGINT)
        assert stop()
        raise loop.Stopped

    monkeypatch.setattr(runs, "train", lost)
    code, _, err = run("train", recipe)
    assert (code, "the run is saved; continue with" in err) == (130, True)


def test_extract_refuses_what_it_cannot_write_or_read(run, recipe, tmp_path):
    code, _, err = run("extract", tmp_path / "f.safetensors", "-o", tmp_path / "x.npz")
    assert code == 2
    assert "expected a features file that ends in .safetensors" in err
    code, _, err = run("extract", tmp_path / "nowhere", "-o", tmp_path / "x.safetensors")
    assert code == 2
    assert "is not there" in err
    code, _, err = run("extract", tmp_path / "f.safetensors", "-o", tmp_path / "x.safetensors")
    assert code == 2
    assert "give --checkpoint with a head" in err


def test_extract_keeps_vectors_unless_told_not_to(run, tmp_path, monkeypatch):
    encoder = callable_encoder(lambda images: [image.size for image in images], "size")
    monkeypatch.setattr("likelyshot.encoders.extract.open_encoder", lambda name, device: encoder)
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "vectors"))
    for i in range(3):
        (tmp_path / "images" / f"{i}").mkdir(parents=True)
        Image.new("RGB", (9, 5 + i)).save(tmp_path / "images" / f"{i}" / "x.png")
    for option, kept in (("--no-cache", False), ("--cache", True)):
        output = tmp_path / f"f{option}.safetensors"
        code, out, err = run("extract", tmp_path / "images", "--encoder", "size", option, "-o", output)
        assert code == 0, err
        assert "3 x 2 features" in out
        assert Features.load(output).vectors.tolist() == [[9, 5], [9, 6], [9, 7]]
        assert (tmp_path / "vectors").exists() == kept


def test_a_run_that_cannot_begin_leaves_nothing(run, tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('[data]\npath = "nowhere"\n[encoder]\nname = "conv4"\n[pretrain]\nepochs = 1\n')
    code, _, err = run("train", recipe, "--set", f"run.output={tmp_path / 'out'}")
    assert (code, "'nowhere', but nothing is there: say where they are with --set data.path=" in err) == (2, True)
    assert not (tmp_path / "out").exists()

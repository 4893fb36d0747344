"""Whole runs: what they leave, and that a run which was killed ends as if it had not been."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from likelyshot import Features, InputError
from likelyshot.data.datasets.sources import Folder
from likelyshot.data.features import Base, splits
from likelyshot.encoders.checkpoints import Checkpoint, load_checkpoint, load_encoder, save_checkpoint
from likelyshot.training.loop import Stopped
from likelyshot.training.machines import Machines
from likelyshot.training.run import train
from processes import Child, pair

pytestmark = pytest.mark.skipif(find_spec("lightning_fabric") is None, reason="needs the extra train")

CPU = Machines(accelerator="cpu", devices=1)
SHORT = {"pretrain.epochs": 1, "finetune.epochs": 0}


def events(folder, kind):
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    timed = ("seconds", "images_per_second")
    return [{key: value for key, value in line.items() if key not in timed} for line in lines if line["event"] == kind]


def same_tensors(one, other):
    one, other = load_checkpoint(one).tensors, load_checkpoint(other).tensors
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_leaves_checkpoints_log_features_and_summary(head_table, changed, tmp_path):
    shown, said = [], []
    summary = train(changed(head_table), machines=CPU, show=lambda *seen: shown.append(seen), say=said.append)
    folder = tmp_path / "run"
    assert {path.name for path in folder.iterdir()} >= {
        "recipe.json",
        "environment.json",
        "log.jsonl",
        "pretrained.safetensors",
        "best.safetensors",
        "last.safetensors",
        "features.safetensors",
        "summary.json",
    }
    assert json.loads((folder / "summary.json").read_text()) == summary
    epochs = events(folder, "epoch")
    assert [(event["stage"], event["epoch"]) for event in epochs] == [
        ("pretrain", 0),
        ("pretrain", 1),
        ("pretrain", 2),
        ("finetune", 0),
        ("finetune", 1),
        ("finetune", 2),
    ]
    for stage in ("pretrain", "finetune"):
        best = max(event["validation_accuracy"] for event in epochs if event["stage"] == stage)
        assert summary["stages"][stage]["validation_accuracy"] == best
    # stage 2 begins with the best encoder of stage 1
    assert epochs[3]["validation_accuracy"] == summary["stages"]["pretrain"]["validation_accuracy"]
    assert said == ["reading the data", "pretrain", "finetune", "features"]
    stage, state, validated = shown[-1]
    assert (stage.name, state.best) == ("finetune", summary["stages"]["finetune"]["validation_accuracy"])
    assert validated == epochs[-1]["validation_accuracy"]

    # the features are those of the best encoder, in a file that evaluate reads
    file = folder / "features.safetensors"
    assert set(splits(file)) == {"val", "test"}
    encoder, _ = load_encoder(folder / "best.safetensors")
    raw = Features.load(head_table["data"]["features"], split="test")
    test = Features.load(file, split="test")
    assert test.classes == raw.classes
    torch.testing.assert_close(test.vectors, encoder(raw.vectors).detach())
    train_raw = Features.load(head_table["data"]["features"], split="train")
    torch.testing.assert_close(Base.load(file).mean, encoder(train_raw.vectors).detach().mean(0))


KILLED = """
import json, os, signal, sys
from likelyshot.training.recipes import recipe_from
from likelyshot.training.machines import Machines
from likelyshot.training.run import train
steps = []
def stop():
    steps.append(1)
    if len(steps) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return False
train(recipe_from(json.loads(sys.argv[1])), machines=Machines("cpu", 1), stop=stop)
"""


def test_killed_in_mid_epoch_and_resumed_it_ends_with_the_same_weights(images_table, changed, tmp_path):
    undisturbed, killed = changed(images_table, **{"run.output": str(tmp_path / "a")}), changed(images_table)
    train(undisturbed, machines=CPU)
    # 4 steps an epoch, and one question more at its end: the 8th question comes in the middle of the second
    child = Child(KILLED, json.dumps(killed.to_dict()), "8", folder=tmp_path)
    assert child.wait() == -9, child.err
    folder = tmp_path / "run"
    assert load_checkpoint(folder / "last.safetensors").facts["standing"]["epoch"] == 1
    assert len(events(folder, "step")) > 4

    # and once more it is stopped, in the middle of the second stage, after its second step, which is not yet logged
    def stop():
        return (folder / "best.safetensors").exists() and len(events(folder, "step")) == 8 + 1

    with pytest.raises(Stopped):
        train(killed, machines=CPU, resume=True, stop=stop)
    facts = load_checkpoint(folder / "last.safetensors").facts
    assert (facts["stage"], facts["standing"]["epoch"], facts["standing"]["step"]) == ("finetune", 0, 2)
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"place": [2, 0')  # as a crash in the middle of a line leaves it

    train(killed, machines=CPU, resume=True)
    for name in ("last", "best", "pretrained"):
        assert same_tensors(tmp_path / "a" / f"{name}.safetensors", folder / f"{name}.safetensors"), name
    for split in ("val", "test"):
        one, other = (Features.load(place / "features.safetensors", split=split) for place in (tmp_path / "a", folder))
        assert one.digest == other.digest
    for kind in ("step", "epoch"):
        assert events(tmp_path / "a", kind) == events(folder, kind)


def test_pixels_from_a_file_train_the_same_weights(images_table, changed, tmp_path):
    train(changed(images_table, **{"run.output": str(tmp_path / "a")}), machines=CPU)
    mapped, said = changed(images_table, **{"data.cache": str(tmp_path / "pixels")}), []
    train(mapped, machines=CPU, say=said.append)
    assert "reading the data, 56 images" in said  # 32 to train on and 24 to validate with
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "pixels").iterdir()}
    assert len(files) == 2 * 3  # train, val and test, with their notes
    for name in ("last", "best", "pretrained"):
        assert same_tensors(tmp_path / "a" / f"{name}.safetensors", tmp_path / "run" / f"{name}.safetensors"), name
    for kind in ("step", "epoch"):
        assert events(tmp_path / "a", kind) == events(tmp_path / "run", kind)
    said.clear()
    train(mapped, machines=CPU, resume=True, say=said.append)
    assert said == ["reading the data", "finetune", "features"]  # nothing is decoded again
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "pixels").iterdir()}
    train(changed(images_table, **{"data.cache": str(tmp_path / "elsewhere")}), machines=CPU, resume=True)


def test_a_run_of_an_earlier_version_is_resumed(images_table, changed, tmp_path):
    """Its recipe lacks the keys that came later; what they stand at by default is what it did."""
    recipe = changed(images_table, **SHORT)
    train(recipe, machines=CPU)
    last = tmp_path / "run" / "last.safetensors"
    checkpoint = load_checkpoint(last)
    facts = json.loads(json.dumps(checkpoint.facts))
    for part, key in (("data", "mean"), ("data", "std"), ("data", "cache"), ("run", "sync_batchnorm")):
        del facts["recipe"][part][key]
    save_checkpoint(last, Checkpoint(checkpoint.tensors, facts))
    train(recipe, machines=CPU, resume=True)
    other = {**SHORT, "data.mean": [0.5, 0.5, 0.5]}
    with pytest.raises(InputError, match=r"data.mean was \[0.485, 0.456, 0.406\] and is \[0.5, 0.5, 0.5\]"):
        train(changed(images_table, **other), machines=CPU, resume=True)


def test_a_finished_run_resumes_to_nothing(head_table, changed, tmp_path):
    recipe = changed(head_table, **{"finetune.epochs": 0})
    first = train(recipe, machines=CPU)
    before = (tmp_path / "run" / "last.safetensors").read_bytes()
    assert train(recipe, machines=CPU, resume=True) == first
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == before
    assert len(events(tmp_path / "run", "epoch")) == 3


def test_the_seed_decides_and_the_caller_keeps_his_random_numbers(head_table, changed, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(changed(head_table, **{"run.output": str(tmp_path / name), "run.seed": seed}), machines=CPU)
    assert torch.equal(torch.rand(3), expected)
    files = [tmp_path / name / "last.safetensors" for name in "abc"]
    assert same_tensors(files[0], files[1])
    assert not same_tensors(files[0], files[2])


def test_it_stops_early_when_nothing_gets_better(head_table, changed, tmp_path):
    # at such a rate nothing moves, so that epoch 0 stays the best
    still = {"finetune.epochs": 9, "finetune.patience": 2, "finetune.lr": 1e-12, "pretrain.epochs": 0}
    summary = train(changed(head_table, **still), machines=CPU)
    assert summary["stages"]["finetune"]["epoch"] == 0
    assert len(events(tmp_path / "run", "epoch")) == 3


def test_half_precision_is_close(images_table, changed, tmp_path):
    for name, precision in (("a", "32"), ("b", "bf16")):
        choice = {"run.output": str(tmp_path / name), "run.precision": precision}
        train(changed(images_table, **SHORT, **choice), machines=CPU)
    one, other = (events(tmp_path / name, "step") for name in "ab")
    losses = [[event["loss"] for event in part] for part in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)
    assert losses[0] != losses[1]


SHARED = """
import json, os, sys
from likelyshot import InputError
from likelyshot.data.datasets import pixel_cache
from likelyshot.training.recipes import recipe_from
from likelyshot.training.machines import Machines
from likelyshot.training.run import train
real = pixel_cache.decode
def decode(images, *arguments, **options):
    with open(sys.argv[2], "a") as file:
        file.write(os.environ.get("LOCAL_RANK", "0") + " " + images.split + "\\n")
    return real(images, *arguments, **options)
pixel_cache.decode = decode
try:
    train(recipe_from(json.loads(sys.argv[1])), machines=Machines("cpu", 2, 1, "ddp"))
except InputError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("sound", [True, False])
def test_of_two_processes_the_first_decodes_and_the_other_waits(images_table, changed, tmp_path, sound):
    decoded = tmp_path / "decoded"
    images = shutil.copytree(images_table["data"]["path"], tmp_path / "images")
    if not sound:
        (images / "train" / "train1" / "3.png").write_bytes(b"no image")
    short = {**SHORT, "data.path": str(images), "data.cache": str(tmp_path / "c")}
    recipe = json.dumps(changed(images_table, **short).to_dict())
    children = pair(SHARED, recipe, str(decoded), folder=tmp_path)
    codes = [child.wait() for child in children]
    if sound:
        assert codes == [0, 0], children[0].err
        assert decoded.read_text().splitlines() == ["0 train", "0 val", "0 test"]
        assert len(events(tmp_path / "run", "step")) == 4
    else:  # what the first one meets, both say
        assert codes == [1, 1]
        assert all(
            "cannot read 1 of the images, 'train/train1/3.png' (not an image)" in child.err for child in children
        )
        assert decoded.read_text().splitlines() == ["0 train"]
        assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_not_overwritten(head_table, changed):
    recipe = changed(head_table, **{"finetune.epochs": 0})
    train(recipe, machines=CPU)
    with pytest.raises(InputError, match="continue with --resume, or choose another folder"):
        train(recipe, machines=CPU)
    with pytest.raises(InputError, match=r"pretrain.lr was 0.05 and is 0.1. Put it back"):
        train(changed(head_table, **{"finetune.epochs": 0, "pretrain.lr": 0.1}), machines=CPU, resume=True)


def test_a_truncated_checkpoint_is_refused_and_stays(head_table, changed, tmp_path):
    recipe = changed(head_table, **{"finetune.epochs": 0})
    train(recipe, machines=CPU)
    last = tmp_path / "run" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"last.safetensors is something else or damaged"):
        train(recipe, machines=CPU, resume=True)


def test_a_full_disk_leaves_the_last_good_checkpoint(head_table, changed, tmp_path, monkeypatch):
    import os

    real, written = os.fsync, []

    def fsync(handle):
        written.append(1)
        if len(written) == 8:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    recipe = changed(head_table, **{"run.checkpoint_seconds": 0})
    with pytest.raises(InputError, match=r"cannot write .* \(No space left on device\)"):
        train(recipe, machines=CPU)
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / "run" / "last.safetensors").facts["stage"] == "pretrain"
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    train(recipe, machines=CPU, resume=True)
    undisturbed = changed(head_table, **{"run.output": str(tmp_path / "b")})
    train(undisturbed, machines=CPU)
    assert same_tensors(tmp_path / "b" / "last.safetensors", tmp_path / "run" / "last.safetensors")


def test_weights_of_another_architecture_are_refused(head_table, changed, tmp_path):
    train(changed(head_table, **{"finetune.epochs": 0}), machines=CPU)
    best = str(tmp_path / "run" / "best.safetensors")
    other = {"run.output": str(tmp_path / "other"), "pretrain.epochs": 0}
    encoder = {"name": "relu_head", "weights": best}
    with pytest.raises(InputError, match=r"has others: linear.weight is \(8, 24\) instead of \(9, 24\)"):
        train(changed({**head_table, "encoder": {**encoder, "params": {"dim": 9, "rectify": True}}}, **other))
    started = {**head_table, "encoder": {**encoder, "params": {"dim": 8, "rectify": True}}}
    train(changed(started, **other), machines=CPU)
    first = events(tmp_path / "other", "epoch")[0]
    assert first["validation_accuracy"] == load_checkpoint(best).facts["validation_accuracy"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data.features": "nowhere.safetensors"},
            r"expected the features of the recipe at 'nowhere.safetensors', but nothing is there",
        ),
        ({"pretrain.batch_size": 61}, "expected at least pretrain.batch_size = 61 training images, got 60"),
        ({"finetune.metric": "mlll"}, "unknown method 'mlll': did you mean 'mll'"),
        ({"finetune.ways": 7}, "expected at least 7 classes .* fewer ways: see finetune.ways, finetune.shots"),
        ({"validate.ways": 7}, "expected at least 7 classes .* fewer ways: see validate.ways, validate.shots"),
        ({"finetune.episodes": 1}, "expected finetune.episodes of at least episodes_per_step"),
        ({"encoder.name": "relu_heads"}, "unknown encoder 'relu_heads': did you mean 'relu_head'"),
        ({"validate.params": {"lambda": 3}}, "mll has no parameter 'lambda'"),
        ({"pretrain.lr": 1e6, "pretrain.weight_decay": 1e6}, "the loss became (nan|inf)"),
    ],
)
def test_bad_input_is_told_in_a_sentence(head_table, changed, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        train(changed(head_table, **changes), machines=CPU)
    assert not (tmp_path / "run" / "best.safetensors").exists()  # it does not take a stage to find out


def test_images_too_small_for_the_encoder_are_refused_before_anything_is_read(images_table, changed, tmp_path):
    with pytest.raises(InputError, match="expected images of at least 16 pixels for resnet12, got 15"):
        train(changed(images_table, **{"data.size": 15, "data.path": "/nowhere"}), machines=CPU)
    assert not (tmp_path / "run").exists()


def test_batchnorm_is_not_synchronised_on_cpus(images_table, changed, tmp_path, monkeypatch):
    recipe = changed(images_table, **{**SHORT, "run.sync_batchnorm": True})
    two = SimpleNamespace(world_size=2, device=torch.device("cpu"))
    with monkeypatch.context() as patch:
        patch.setattr("likelyshot.training.run.start_fabric", lambda machines, precision: two)
        with pytest.raises(InputError, match=r"expected CUDA devices for run.sync_batchnorm with 2 processes, got cpu"):
            train(recipe)
    assert not (tmp_path / "run").exists()
    train(recipe, machines=CPU)  # one process has nothing to synchronise
    train(changed(images_table, **{**SHORT, "run.output": str(tmp_path / "b")}), machines=CPU)
    assert same_tensors(tmp_path / "run" / "last.safetensors", tmp_path / "b" / "last.safetensors")


def test_the_image_folder_is_scanned_once(images_table, changed, monkeypatch):
    scans = []
    names = Folder.names
    monkeypatch.setattr(Folder, "names", lambda folder: scans.append(folder) or names(folder))
    train(changed(images_table, **SHORT), machines=CPU)
    assert len(scans) == 1


@pytest.mark.parametrize(
    "change",
    [{"standing": 3}, {"standing": {"epoch": "x"}}, {"stage": "other"}, {"images": None}, {"recipe": {"data": 3}}],
    ids=lambda change: next(iter(change)),
)
def test_a_checkpoint_with_other_facts_is_refused(head_table, changed, tmp_path, change):
    recipe = changed(head_table, **{"finetune.epochs": 0})
    train(recipe, machines=CPU)
    last = tmp_path / "run" / "last.safetensors"
    checkpoint = load_checkpoint(last)
    save_checkpoint(last, Checkpoint(checkpoint.tensors, {**checkpoint.facts, **change}))
    with pytest.raises(InputError, match=r" in the (checkpoint .*last|recipe)"):
        train(recipe, machines=CPU, resume=True)


def test_a_missing_image_folder_is_told(images_table, changed):
    with pytest.raises(InputError, match="at '/nowhere', but nothing is there"):
        train(changed(images_table, **{"data.path": "/nowhere"}), machines=CPU)

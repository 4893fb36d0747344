"""Training the heads of methods, from the recipe to the table."""

from __future__ import annotations

import pytest
import torch

from likelyshot import InputError, load_head
from likelyshot.data.features import Features
from likelyshot.data.tasks import Balanced
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import load_checkpoint
from likelyshot.evaluation.run import Job, read_networks, run
from likelyshot.heads.starts import TRAINED
from likelyshot.training.loop import Stopped, _optimiser
from likelyshot.training.machines import Machines
from likelyshot.training.pool import open_data, read_pool
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train
from likelyshot.training.stages import Share, finetuning

CPU = Machines("cpu")


@pytest.fixture
def frozen(features_file, tmp_path):
    """A head over vectors as they are."""
    return {
        "data": {"features": str(features_file)},
        "encoder": {"name": "identity"},
        "finetune": {
            "epochs": 3,
            "episodes": 40,
            "episodes_per_step": 2,
            "ways": 3,
            "queries": 4,
            "metric": "feat",
            "optimiser": "adamw",
            "head_lr": 1e-2,
            "temperature": 0.1,
            "clip": 10.0,
        },
        "validate": {"ways": 3, "queries": 5, "tasks": 50},
        "run": {"output": str(tmp_path / "run"), "log_steps": 1, "checkpoint_seconds": 1e6},
    }


@pytest.mark.parametrize("name", TRAINED)
def test_training_a_head_lowers_the_loss_and_the_features_carry_it(name, frozen, changed, tmp_path):
    temperature = 1.0 if name in ("versa", "leo", "anil", "meta_lstm", "tpn", "sib", "matching_fce") else 0.1
    rate = 1e-3 if name in ("versa", "ctm") else 1e-2
    recipe = changed(frozen, **{"finetune.metric": name, "finetune.temperature": temperature, "finetune.head_lr": rate})
    summary = train(recipe, machines=CPU)
    pool = read_pool(open_data(recipe.data, ("train",))["train"], recipe)
    stage = finetuning(recipe, encoders.build("identity", {"in_dim": 12}), pool)
    plan = stage.plan(0)

    def loss():
        return sum(stage.outcome(stage.module, plan, step, 0, Share()).loss.item() for step in range(stage.steps))

    untrained = loss()
    tensors = load_checkpoint(tmp_path / "run" / "last.safetensors").tensors
    weights = {key: value for key, value in tensors.items() if not key.startswith("optimiser.")}
    stage.module.load_state_dict(weights)
    assert loss() < untrained
    head = load_head(tmp_path / "run" / "best.safetensors")
    assert (head.name, head.dim, head.trained["ways"], head.digest) == (name, 12, 3, summary["head"]["digest"])
    networks = read_networks([tmp_path / "run" / "features.safetensors"], methods=[name, "euclidean"])
    (tasks,) = networks.draw(20, 3, [1], Balanced(5))
    other = f"{name}:{tmp_path / 'run' / 'best.safetensors'}"
    results = [result for _, result in run([Job(one, {}, tasks) for one in (name, other)], networks)]
    assert [result.method for result in results] == [name, f"{name} (run)"]
    assert results[0].accuracy.tolist() == results[1].accuracy.tolist()
    assert results[0].config["params"]["head"]["digest"] == head.digest[:16]


def test_a_run_that_was_stopped_ends_with_the_same_head(frozen, changed, tmp_path):
    whole = changed(frozen, **{"run.output": str(tmp_path / "whole"), "finetune.regulariser": 0.1})
    train(whole, machines=CPU)
    parts = changed(frozen, **{"finetune.regulariser": 0.1})
    steps = iter(range(1000))
    with pytest.raises(Stopped):
        train(parts, machines=CPU, stop=lambda: next(steps) == 27)
    train(parts, machines=CPU, resume=True)
    digests = {load_head(tmp_path / folder / "best.safetensors").digest for folder in ("whole", "run")}
    assert len(digests) == 1


def test_a_head_over_an_encoder_that_is_trained_too(head_table, changed, tmp_path):
    recipe = changed(head_table, **{"finetune.metric": "feat", "finetune.temperature": 0.1})
    train(recipe, machines=CPU)
    features = Features.load(tmp_path / "run" / "features.safetensors", split="test")
    head = load_head(tmp_path / "run" / "features.safetensors")
    assert head.dim == features.dim == 8
    assert head.trained["encoder"] == features.source["encoder"] == "relu_head trained with feat, seed 0"


def test_maml_trains_a_network_on_images_from_a_conv4(images_table, changed, tmp_path):
    conv4 = {"name": "conv4", "params": {"widths": [4, 4, 4, 4]}}
    before = {"encoder": conv4, "run": {**images_table["run"], "output": str(tmp_path / "conv4")}}
    train(changed({**images_table, **before}, **{"finetune.epochs": 0, "pretrain.epochs": 1}), machines=CPU)
    start = str(tmp_path / "conv4" / "best.safetensors")
    table = {**images_table, "encoder": {"name": "flat", "params": {"side": 16}}}
    recipe = changed(
        table,
        **{
            "pretrain.epochs": 0,
            "finetune.metric": "maml",
            "finetune.head": {"side": 16, "layers": 4, "width": 4},
            "finetune.head_weights": start,
            "finetune.temperature": 1.0,
        },
    )
    train(recipe, machines=CPU)
    file = tmp_path / "run" / "features.safetensors"
    features, head = Features.load(file, split="test"), load_head(file)
    assert head.dim == features.dim == 3 * 16 * 16
    assert head.trained["encoder"] == features.source["encoder"] == "pixels, 16 x 16"
    networks = read_networks([file], methods=["maml"])
    (tasks,) = networks.draw(5, 3, [1], Balanced(3))
    ((_, result),) = run([Job("maml", {}, tasks)], networks)
    assert result.config["params"]["head"]["digest"] == head.digest[:16]


def test_matrices_decay_and_vectors_do_not(frozen, changed):
    recipe = changed(frozen, **{"finetune.weight_decay": 0.5, "finetune.learn_temperature": True})
    pool = read_pool(open_data(recipe.data, ("train",))["train"], recipe)
    stage = finetuning(recipe, encoders.build("identity", {"in_dim": 12}), pool)
    _, matrices, vectors = _optimiser(stage).param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.5, 0.0)
    assert {param.ndim for param in matrices["params"]} == {2}
    assert {param.ndim for param in vectors["params"]} == {1}
    assert len(matrices["params"]) + len(vectors["params"]) == len(list(stage.module.parameters()))


def test_the_regulariser_smoothing_and_imbalance_change_the_loss(frozen, changed):
    def loss(**changes):
        recipe = changed(frozen, **changes)
        pool = read_pool(open_data(recipe.data, ("train",))["train"], recipe)
        stage = finetuning(recipe, encoders.build("identity", {"in_dim": 12}), pool)
        plan = stage.plan(0)
        return stage.outcome(stage.module, plan, 0, 0, Share()).loss.item(), plan

    plain, tasks = loss()
    counts = [row.bincount(minlength=3).tolist() for row in tasks.query_labels.long()]
    assert all(count == [4, 4, 4] for count in counts)
    assert loss(**{"finetune.regulariser": 0.5})[0] > plain
    assert loss(**{"finetune.label_smoothing": 0.5})[0] != plain
    counts = [row.bincount(minlength=3).tolist() for row in loss(**{"finetune.alpha": 1.0})[1].query_labels.long()]
    assert len({tuple(count) for count in counts}) > 3
    assert {sum(count) for count in counts} == {12}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finetune.head": {"rnk": 3}}, "the head of feat has no parameter 'rnk'"),
        ({"finetune.metric": "euclidean", "finetune.head": {"rank": 3}}, "euclidean has no head"),
        ({"finetune.metric": "euclidean", "finetune.regulariser": 0.1}, "euclidean has no regulariser"),
        ({"finetune.metric": "euclidean", "finetune.head_weights": "x.safetensors"}, "leave finetune.head_weights out"),
        ({"finetune.metric": "simpleshot"}, "simpleshot needs base_mean from other data"),
    ],
)
def test_heads_that_cannot_be_are_told(frozen, changed, changes, message):
    with pytest.raises(InputError, match=message):
        train(changed(frozen, **changes), machines=CPU)


def test_a_head_is_refused_on_features_of_another_network(frozen, changed, tmp_path):
    train(changed(frozen, **{"finetune.epochs": 1}), machines=CPU)
    best = tmp_path / "run" / "best.safetensors"
    networks = read_networks(methods=["feat"])  # the packaged ones, of another length
    (tasks,) = networks.draw(5, 3, [1], Balanced(5))
    with pytest.raises(InputError, match="expected vectors of length 12"):
        list(run([Job(f"feat:{best}", {}, tasks)], networks))
    with pytest.raises(InputError, match="feat needs a trained head: train one with likelyshot train"):
        list(run([Job("feat", {}, tasks)], networks))


@pytest.mark.parametrize("name", TRAINED)
def test_every_head_has_a_packaged_recipe(name):
    recipe = load_recipe(f"cub_frozen_{name}")
    assert recipe.finetune.metric == name
    assert torch.tensor(recipe.finetune.temperature) > 0

"""Recipes are typed: what is misspelt or of the wrong kind is an error that says what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from likelyshot import InputError
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.networks import pixels as augment
from likelyshot.training.recipes import load_recipe, recipe_from

RECIPES = Path(__file__).parent.parent / "recipes"
GOOD = {"data": {"path": "images"}, "encoder": {"name": "conv4"}, "pretrain": {"epochs": 3}}


def with_value(table, name, value):
    part, key = name.split(".")
    return {**table, part: {**table.get(part, {}), key: value}}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads_and_keeps_to_the_paper(path):
    recipe = load_recipe(path)
    assert recipe.run.output == f"runs/{path.stem}"
    assert path.stem.endswith(recipe.finetune.metric)
    if recipe.data.path:
        encoders.parameters(recipe.encoder.name, recipe.encoder.params)
    if recipe.finetune.metric == "mll":
        assert recipe.finetune.params["lambda_max"] == 100
    if "imagenet" in path.stem:
        assert recipe.finetune.lr == 1e-4
        assert recipe.pretrain.lr == 0.1
        epochs = (500, 200) if "resnet12" in path.stem else (90, 50)
        assert (recipe.pretrain.epochs, recipe.finetune.epochs) == epochs


def test_the_promised_recipes_are_there():
    imagenet = [
        f"{data}_{net}"
        for data in ("mini_imagenet", "tiered_imagenet")
        for net in ("resnet12", "resnet18", "wrn", "densenet121")
    ]
    others = ["cub_resnet12", "cub_resnet18", "cub_head", "cifar_fs_conv4", "cifar_fs_resnet12"]
    wanted = {f"{name}_{metric}" for name in imagenet + others for metric in ("euclidean", "cosine", "mll")}
    assert {path.stem for path in RECIPES.glob("*.toml")} == wanted


def test_metrics_of_one_network_differ_in_the_metric_only():
    recipes = [load_recipe(RECIPES / f"mini_imagenet_wrn_{metric}.toml").to_dict() for metric in ("euclidean", "mll")]
    for recipe in recipes:
        for key in ("metric", "params", "temperature"):
            recipe["finetune"].pop(key)
        recipe["validate"].pop("params")
        recipe.pop("run")
    assert recipes[0] == recipes[1]


def test_images_are_normalised_by_the_figures_of_feat_for_its_network_only():
    feat = (120.39586422, 115.59361427, 104.54012653), (70.68188272, 68.27635443, 72.54505529)
    for path in RECIPES.glob("*.toml"):
        data = load_recipe(path).data
        if path.stem.startswith("cifar") or "resnet12" not in path.stem:
            assert (data.mean, data.std) == (augment.MEAN, augment.STD)
        else:
            assert [255 * value for value in data.mean] == pytest.approx(feat[0])
            assert [255 * value for value in data.std] == pytest.approx(feat[1])
        assert bool(data.cache) == path.stem.startswith("tiered")


def test_a_recipe_extends_others_and_changes_go_on_top(tmp_path):
    (tmp_path / "a.toml").write_text('[data]\npath = "x"\nsize = 32\n[encoder]\nname = "conv4"\n')
    (tmp_path / "b.toml").write_text("[pretrain]\nepochs = 3\nlr = 1\n[encoder.params]\nwidths = [8, 8, 8, 8]\n")
    (tmp_path / "c.toml").write_text('extends = ["a.toml", "b.toml"]\n[data]\nsize = 40\n')
    changes = ["pretrain.epochs=9", "data.path=/some/where", "encoder.params.in_channels=1", "run.precision=bf16"]
    recipe = load_recipe(tmp_path / "c.toml", changes)
    assert (recipe.data.path, recipe.data.size, recipe.pretrain.epochs, recipe.pretrain.lr) == ("/some/where", 40, 9, 1)
    assert recipe.encoder.params == {"widths": [8, 8, 8, 8], "in_channels": 1}
    assert recipe.run.precision == "bf16"
    assert recipe.run.output == "runs/c"


def test_a_recipe_survives_json():
    recipe = recipe_from(with_value(GOOD, "pretrain.milestones", [1, 2]))
    assert recipe_from(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pretrain.epoch", 3, "unknown key 'pretrain.epoch' in the recipe: did you mean 'epochs'"),
        ("pretrian.epochs", 3, "unknown key 'pretrian' in the recipe: did you mean 'pretrain'"),
        ("pretrain.epochs", "3", "expected a whole number for pretrain.epochs, but got '3'"),
        ("pretrain.epochs", 3.0, "expected a whole number for pretrain.epochs, but got 3.0"),
        ("pretrain.epochs", True, "expected a whole number for pretrain.epochs, but got True"),
        ("pretrain.epochs", -1, "expected pretrain.epochs at least 0, but got -1"),
        ("pretrain.epochs", 0, "expected pretrain.epochs or finetune.epochs above 0"),
        ("pretrain.lr", 0, "expected pretrain.lr above 0, but got 0"),
        ("pretrain.lr", float("nan"), "expected a finite number for pretrain.lr, but got nan"),
        ("pretrain.nesterov", 1, "expected true or false for pretrain.nesterov, but got 1"),
        ("pretrain.schedule", "cosin", "expected a known value of pretrain.schedule, but got 'cosin': did you mean"),
        ("pretrain.milestones", 3, "expected a list for pretrain.milestones, but got 3"),
        ("pretrain.milestones", [3, "4"], "expected a whole number for pretrain.milestones, but got '4'"),
        ("pretrain.label_smoothing", 1.0, "expected pretrain.label_smoothing below 1, but got 1.0"),
        ("finetune.ways", 1, "expected finetune.ways at least 2, but got 1"),
        ("encoder.params", 3, "expected a table for encoder.params, but got 3"),
        ("encoder.name", "", "expected encoder.name in the recipe"),
        ("data.path", "", "expected either data.path or data.features in the recipe, but got neither"),
        ("data.features", "f", "expected either data.path or data.features in the recipe, but got both"),
        ("data.mean", [0.5, 0.5], r"expected three numbers for data.mean, but got \[0.5, 0.5\]"),
        ("data.mean", [120.4, 115.6, 104.5], "expected data.mean below 1, but got 120.4"),
        ("data.std", [0.5, 0.5, 0], "expected data.std above 0, but got 0"),
        ("data.cache", True, "expected text for data.cache, but got True"),
        ("run.sync_batchnorm", 1, "expected true or false for run.sync_batchnorm, but got 1"),
        ("augmentation.crop_scale", [0.5], r"expected augmentation.crop_scale as \[least, most\]"),
    ],
)
def test_what_is_wrong_is_named(name, value, message):
    with pytest.raises(InputError, match=message):
        recipe_from(with_value(GOOD, name, value))


def test_nesterov_needs_momentum():
    table = with_value(with_value(GOOD, "pretrain.nesterov", True), "pretrain.momentum", 0)
    with pytest.raises(InputError, match=r"expected pretrain.momentum above 0 with nesterov"):
        recipe_from(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs=3", "expected a change as TABLE.KEY=VALUE, but got 'epochs=3'"),
        ("pretrain.epochs", "expected a change as TABLE.KEY=VALUE"),
        ("pretrain..epochs=3", "expected a change as TABLE.KEY=VALUE"),
        ("data.path.x=3", "expected a table before the last dot of 'data.path.x', but 'path' is a value"),
        ("pretrain.epochs=many", "expected a whole number for pretrain.epochs, but got 'many'"),
    ],
)
def test_a_change_that_cannot_be_made(tmp_path, text, message):
    path = tmp_path / "r.toml"
    path.write_text('data.path = "x"\nencoder.name = "conv4"\npretrain.epochs = 3\n')
    with pytest.raises(InputError, match=message):
        load_recipe(path, [text])


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the recipe .*nothing.toml \(No such file"):
        load_recipe(tmp_path / "nothing.toml")
    path = tmp_path / "r.toml"
    for content, message in (
        (b"a = = 3", "expected TOML in .*line 1"),
        (b"\xff\xfe", "expected TOML in"),
        (b'extends = "r.toml"', "extends itself"),
        (b"extends = 3", 'expected extends = "FILE" or a list of files'),
        (b"data = 3", r"expected a table \[data\] in the recipe, but got 3"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_recipe(path)

"""Recipes are typed: what is misspelt or of the wrong kind is an error that says what was meant."""

from __future__ import annotations

import hashlib
import itertools
import json
import os

import pytest
import torch

from likelyshot import InputError, heads
from likelyshot.encoders import networks
from likelyshot.encoders.pixels import MEAN, STD
from likelyshot.methods.binding import needs, parameters
from likelyshot.training.recipes import PARTS, load_recipe, recipe_from

#: The combinations of docs/training.md, and a hash of the whole recipe with cosine, euclidean and mll.
COMBINATIONS = {
    ("cifar_fs_conv4",): "c0c78cab c28d3e1e c68f21b0",
    ("cifar_fs_resnet12",): "d5f4f59d 16c7cf0b 265ed07d",
    ("cub_head",): "e7885474 1bac84a7 da3e31f7",
    ("cub", "resnet12"): "023d3641 2f795aa4 c0406d6b",
    ("cub", "resnet18"): "11d2b918 743469cf 335281ab",
    ("mini_imagenet", "densenet121"): "fac94739 b29151e4 37efb1bb",
    ("mini_imagenet", "resnet12"): "a5048dc9 9590a9a6 a3c28e0d",
    ("mini_imagenet", "resnet18"): "6649236e f153d648 b25727cb",
    ("mini_imagenet", "wrn"): "127c880e 14891b6a fcfa4006",
    ("tiered_imagenet", "densenet121"): "fb00f2ca e1c8c729 2c540d98",
    ("tiered_imagenet", "resnet12"): "8ee543c4 4ab7f948 2c6d2b55",
    ("tiered_imagenet", "resnet18"): "af76a2fd a7024794 8ba66d20",
    ("tiered_imagenet", "wrn"): "9c519f8c dfc09151 1ab2e502",
}
#: Settings of heads, which leave these recipes alone.
OF_HEADS = {"head": {}, "head_weights": "", "regulariser": 0.0, "clip": 0.0, "label_smoothing": 0.0, "alpha": 0.0}
#: Methods with a head or a solver of their own, each a part, and with cub_frozen for those that have a head.
TRAINED = {"anil", "ctm", "feat", "leo", "maml", "matching_fce", "meta_lstm", "siamese", "sib", "tpn", "versa"}
SOLVED = {"deepemd", "ridge", "svm"}
#: Those with a recipe for a Conv4 on CIFAR-FS.
CONV4 = {"anil", "ctm", "deepemd", "feat", "maml", "ridge", "svm"}
#: Those with one for the slim ResNet12.
RESNET12 = CONV4 - {"maml"}
#: Those with the published settings for miniImageNet and tieredImageNet. Siamese networks were published for Omniglot.
PUBLISHED = (TRAINED | SOLVED) - {"siamese"}
BASE = 'data.path = "x"\nencoder.name = "conv4"\npretrain.epochs = 3\n'
GOOD = {"data": {"path": "images"}, "encoder": {"name": "conv4"}, "pretrain": {"epochs": 3}}


def with_value(table, name, value):
    part, key = name.split(".")
    return {**table, part: {**table.get(part, {}), key: value}}


@pytest.mark.parametrize("parts", COMBINATIONS, ids=" ".join)
def test_the_combinations_of_the_docs_keep_their_settings(parts):
    """They are published: a change of a part must not change them by accident."""
    hashes = []
    for metric in ("cosine", "euclidean", "mll"):
        names = [*parts, metric] if len(parts) == 2 else [f"{parts[0]}_{metric}"]
        recipe = load_recipe(names)
        assert recipe.run.output == f"runs/{'_'.join((*parts, metric))}"
        assert recipe.finetune.metric == metric
        if recipe.data.path:
            networks.parameters(recipe.encoder.name, recipe.encoder.params)
        written = recipe.to_dict()
        assert {key: written["finetune"].pop(key) for key in OF_HEADS} == OF_HEADS
        assert written["validate"].pop("alpha") == 0
        hashes.append(hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()[:8])
    assert " ".join(hashes) == COMBINATIONS[parts]


def test_the_settings_of_the_paper():
    for data in ("mini_imagenet", "tiered_imagenet"):
        for net in ("resnet12", "resnet18", "wrn", "densenet121"):
            recipe = load_recipe([data, net, "mll"])
            assert recipe.finetune.params["lambda_max"] == 100
            assert (recipe.pretrain.lr, recipe.finetune.lr) == (0.1, 1e-4)
            epochs = (500, 200) if net == "resnet12" else (90, 50)
            assert (recipe.pretrain.epochs, recipe.finetune.epochs) == epochs


def test_every_part_is_used_by_a_combination():
    used = {part for parts in COMBINATIONS for part in parts} | {"cosine", "euclidean", "mll"}
    for name in sorted(used - {"cifar_fs_conv4", "cifar_fs_resnet12"}):
        assert (PARTS / f"{name}.toml").is_file()
    extended = {"cifar_fs", "conv4", "slim_resnet12"}
    own = {f"{name}_{metric}" for name, *more in COMBINATIONS if not more for metric in ("cosine", "euclidean", "mll")}
    own |= {f"{data}_{name}" for data in ("mini_imagenet", "tiered_imagenet") for name in PUBLISHED} | {"metaoptnet"}
    own |= {f"cub_frozen_{name}" for name in TRAINED} | {f"cifar_fs_conv4_{name}" for name in CONV4}
    own |= {f"cifar_fs_resnet12_{name}" for name in RESNET12}
    assert {path.stem for path in PARTS.glob("*.toml")} == (
        used | extended | own | TRAINED | SOLVED | {"cub_frozen"}
    ) - {
        "cifar_fs_conv4",
        "cifar_fs_resnet12",
    }


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_published_settings_of_the_trained_methods_fit_together(name):
    for data in ("mini_imagenet", "tiered_imagenet"):
        recipe = load_recipe(f"{data}_{name}")
        assert recipe.finetune.metric == name
        place = recipe.data.features or recipe.data.path
        assert data in place
        known = parameters(name)
        assert {*recipe.finetune.params, *recipe.validate.params} <= set(known)
        params = {**recipe.encoder.params, **({"in_dim": 640} if recipe.encoder.name == "identity" else {})}
        with torch.device("meta"):
            dim = networks.build(recipe.encoder.name, params).dim
        if "head" in needs(name):
            size = sum(weight.numel() for weight in heads.build(name, recipe.finetune.head, dim=dim).parameters())
            assert size > 0
    episodes = recipe.finetune.epochs * recipe.finetune.episodes
    assert episodes == {"ridge": 480_000, "svm": 480_000, "maml": 240_000, "tpn": 100_000}.get(name, episodes)


@pytest.mark.parametrize("name", sorted(RESNET12))
def test_the_networks_of_cifar_fs_differ_in_the_encoder_and_in_the_size_of_heads_only(name):
    small, large = (load_recipe(f"cifar_fs_{network}_{name}").to_dict() for network in ("conv4", "resnet12"))
    grid = large["encoder"]["params"].get("grid", 1)
    assert grid == (2 if name in ("ctm", "deepemd") else 1)
    with torch.device("meta"):
        assert networks.build("resnet12", large["encoder"]["params"]).dim == 256 * grid**2
    if "head" in needs(name):
        assert heads.build(name, large["finetune"]["head"], dim=256 * grid**2).trained == {}
    for recipe in (small, large):
        for table, key in (("encoder", "name"), ("encoder", "params"), ("pretrain", "epochs"), ("run", "output")):
            recipe[table].pop(key)
        recipe["finetune"].pop("epochs")
        recipe["finetune"]["head"] = recipe["finetune"]["head"].get("grid")
    assert small == large


def test_metrics_of_one_network_differ_in_the_metric_only():
    recipes = [load_recipe(["mini_imagenet", "wrn", metric]).to_dict() for metric in ("euclidean", "mll")]
    for recipe in recipes:
        for key in ("metric", "params", "temperature"):
            recipe["finetune"].pop(key)
        recipe["validate"].pop("params")
        recipe.pop("run")
    assert recipes[0] == recipes[1]


def test_images_are_normalised_by_the_figures_of_feat_for_its_network_only():
    feat = (120.39586422, 115.59361427, 104.54012653), (70.68188272, 68.27635443, 72.54505529)
    for data, net in itertools.product(("mini_imagenet", "tiered_imagenet", "cub"), ("resnet12", "resnet18", "wrn")):
        recipe = load_recipe([data, net, "mll"])
        if net == "resnet12":
            assert [255 * value for value in recipe.data.mean] == pytest.approx(feat[0])
            assert [255 * value for value in recipe.data.std] == pytest.approx(feat[1])
        else:
            assert (recipe.data.mean, recipe.data.std) == (MEAN, STD)
        assert bool(recipe.data.cache) == (data == "tiered_imagenet")
    assert load_recipe("cifar_fs_resnet12_mll").data.mean == MEAN


def test_a_recipe_extends_others_and_changes_go_on_top(tmp_path):
    (tmp_path / "a.toml").write_text('[data]\npath = "x"\nsize = 32\n[encoder]\nname = "conv4"\n')
    (tmp_path / "b.toml").write_text("[pretrain]\nepochs = 3\nlr = 1\n[encoder.params]\nwidths = [8, 8, 8, 8]\n")
    (tmp_path / "c.toml").write_text('extends = ["a.toml", "b.toml"]\n[data]\nsize = 40\n')
    changes = ["pretrain.epochs=9", "data.path=/some/where", "encoder.params.drop=0.5", "run.precision=bf16"]
    recipe = load_recipe(tmp_path / "c.toml", changes)
    assert (recipe.data.path, recipe.data.size, recipe.pretrain.epochs, recipe.pretrain.lr) == ("/some/where", 40, 9, 1)
    assert recipe.encoder.params == {"widths": [8, 8, 8, 8], "drop": 0.5}
    assert recipe.run.precision == "bf16"
    assert recipe.run.output == "runs/c"


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("run.precision=32", "32"),
        ("run.precision='32'", "32"),
        ("run.output=2026-11-18", "2026-11-18"),
        ("data.path= 1_000", "1_000"),
        ("data.cache=1e3", "1e3"),
        ("validate.method=true", "true"),
    ],
)
def test_a_change_of_text_may_look_like_a_number(tmp_path, change, value):
    path = tmp_path / "r.toml"
    path.write_text(BASE)
    recipe = load_recipe(path, [change])
    table, key = change.partition("=")[0].split(".")
    assert getattr(getattr(recipe, table), key) == value


def test_a_file_may_give_a_whole_number_for_text():
    assert recipe_from(with_value(GOOD, "run.precision", 32)).run.precision == "32"
    assert recipe_from(with_value(GOOD, "encoder.params", {"drop": 1})).encoder.params == {"drop": 1}
    with pytest.raises(InputError, match=r"run.precision in the recipe has the unknown value '16'"):
        recipe_from(with_value(GOOD, "run.precision", 16))


def test_a_recipe_survives_json():
    recipe = recipe_from(with_value(GOOD, "pretrain.milestones", [1, 2]))
    assert recipe_from(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pretrain.epoch", 3, "unknown key 'pretrain.epoch' in the recipe: did you mean 'epochs'"),
        ("pretrian.epochs", 3, "unknown key 'pretrian' in the recipe: did you mean 'pretrain'"),
        ("pretrain.epochs", "3", "expected a whole number for pretrain.epochs in the recipe, got '3': change it"),
        ("pretrain.epochs", 3.0, "expected a whole number for pretrain.epochs in the recipe, got 3.0"),
        ("pretrain.epochs", True, "expected a whole number for pretrain.epochs in the recipe, got True"),
        ("pretrain.epochs", None, "expected a whole number for pretrain.epochs in the recipe, got None"),
        ("pretrain.epochs", -1, "expected a whole number of at least 0 for pretrain.epochs in the recipe, got -1"),
        ("pretrain.epochs", 0, "pretrain.epochs and finetune.epochs are both 0"),
        (
            "pretrain.epochs",
            2**70,
            "expected a whole number of at most 100000 for pretrain.epochs in the recipe, got 1180591620717411303424",
        ),
        ("run.seed", 2**64, "expected a whole number of at most 9223372036854775807 for run.seed"),
        ("pretrain.lr", 0, "expected a number of at least 1e-12 for pretrain.lr in the recipe, got 0"),
        ("pretrain.lr", 1e-300, "expected a number of at least 1e-12 for pretrain.lr in the recipe, got 1e-300"),
        ("pretrain.lr", 1e300, r"expected a number of at most 1000000 for pretrain.lr in the recipe, got 1e\+300"),
        ("pretrain.lr", 10**400, "pretrain.lr in the recipe has a wrong value, .*Number out of range"),
        ("pretrain.lr", None, "expected a number for pretrain.lr in the recipe, got None"),
        ("pretrain.lr", [0.1], r"expected a number for pretrain.lr in the recipe, got \[0.1\]"),
        ("pretrain.lr", float("nan"), "expected a number of at least 1e-12 for pretrain.lr in the recipe, got nan"),
        ("finetune.temperature", 1e-300, "expected a number of at least 1e-06 for finetune.temperature"),
        ("finetune.temperature", 1e300, "expected a number of at most 1000000 for finetune.temperature"),
        ("finetune.temperature", "warm", "expected a number for finetune.temperature in the recipe, got 'warm'"),
        ("pretrain.nesterov", 1, "expected true or false for pretrain.nesterov in the recipe, got 1"),
        (
            "pretrain.schedule",
            "cosin",
            "pretrain.schedule in the recipe has the unknown value 'cosin': did you mean 'cosine'",
        ),
        ("pretrain.schedule", ["cosine"], r"expected text for pretrain.schedule in the recipe, got \['cosine'\]"),
        ("pretrain.milestones", 3, "expected a list for pretrain.milestones in the recipe, got 3"),
        ("pretrain.milestones", [3, "4"], "expected a whole number for pretrain.milestones in the recipe, got '4'"),
        (
            "pretrain.label_smoothing",
            1.0,
            "expected a number below 1 for pretrain.label_smoothing in the recipe, got 1.0",
        ),
        ("finetune.ways", 1, "expected a whole number of at least 2 for finetune.ways in the recipe, got 1"),
        ("encoder.params", 3, "expected a table for encoder.params in the recipe, got 3"),
        ("encoder.name", "", "encoder.name is missing in the recipe"),
        ("data.path", "", "expected either data.path or data.features in the recipe, got neither: give one of"),
        ("data.path", ["a"] * 100, r"expected text for data.path in the recipe, got .*\.\.\.\]: change it"),
        ("data.features", "f", "expected either data.path or data.features in the recipe, got both: leave one out"),
        ("data.mean", [0.5, 0.5], r"expected a list of length 3 for data.mean in the recipe, got \[0.5, 0.5\]"),
        ("data.mean", [120.4, 115.6, 104.5], "expected a number below 1 for data.mean in the recipe, got 120.4"),
        ("data.std", [0.5, 0.5, 0], "expected a number of at least 1e-06 for data.std in the recipe, got 0"),
        ("data.cache", True, "expected text for data.cache in the recipe, got True"),
        ("run.sync_batchnorm", 1, "expected true or false for run.sync_batchnorm in the recipe, got 1"),
        ("augmentation.crop_scale", [0.5], r"expected augmentation.crop_scale as \[smallest, largest\]"),
        ("augmentation.crop_scale", [0.5, 0.2], r"got \[0.5, 0.2\]: change it, for example"),
    ],
)
def test_what_is_wrong_is_named(name, value, message):
    with pytest.raises(InputError, match=message):
        recipe_from(with_value(GOOD, name, value))


def test_nesterov_needs_momentum():
    table = with_value(with_value(GOOD, "pretrain.nesterov", True), "pretrain.momentum", 0)
    with pytest.raises(InputError, match=r"pretrain.nesterov needs a momentum above 0"):
        recipe_from(table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs=3", "expected a change as TABLE.KEY=VALUE, got 'epochs=3'"),
        ("pretrain.epochs", "expected a change as TABLE.KEY=VALUE"),
        ("pretrain..epochs=3", "expected a change as TABLE.KEY=VALUE"),
        ("data.path.x=3", "expected text for data.path in the recipe, got {'x': 3}"),
        ("pretrain.epochs=many", "expected a whole number for pretrain.epochs in the recipe, got 'many'"),
        (f"pretrain.epochs={'[' * 100_000}", "the recipe is nested too deeply"),
        (f"encoder.params.{'a.' * 100_000}b=1", "for encoder.params in the recipe, got .*: change it"),
    ],
)
def test_a_change_that_cannot_be_made(tmp_path, text, message):
    path = tmp_path / "r.toml"
    path.write_text(BASE)
    with pytest.raises(InputError, match=message):
        load_recipe(path, [text])


def test_files_that_are_no_recipes(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the recipe '.*nothing.toml' \(it does not exist\)"):
        load_recipe(tmp_path / "nothing.toml")
    with pytest.raises(InputError, match=r"cannot read the recipe"):
        load_recipe("a\0b.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("pipe.toml", ".toml"):  # the second is the folder itself
        with pytest.raises(InputError, match=r"it is not a regular file|it does not exist"):
            load_recipe(tmp_path / name)
    path = tmp_path / "r.toml"
    for content, message in (
        (b"a = = 3", "is not valid TOML .*line 1"),
        (b"\xff\xfe", "is not valid TOML"),
        (b'extends = "r.toml"', "extends itself"),
        (b'extends = "a\\u0000b.toml"', "cannot read the recipe"),
        (b"extends = 3", 'expected extends = "FILE" or a list of files'),
        (b'extends = "resnet_12"', "unknown recipe 'resnet_12': did you mean 'resnet12'"),
        (b"data = 3", r"expected a table for data in the recipe, got 3"),
        (b"a = " + b"[\n" * 45_000, "nested too deeply"),
        (b"a." * 45_000 + b"a = 1", "lines of at most 2,000"),
        (b"# \n" * 50_000, "at most 100,000 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            load_recipe(path)


def test_a_file_is_read_once_however_often_it_is_extended(tmp_path):
    (tmp_path / "0.toml").write_text(BASE)
    for i in range(1, 30):  # without a memory it would be read 2 ** 29 times
        (tmp_path / f"{i}.toml").write_text(f'extends = ["{i - 1}.toml", "{i - 1}.toml"]\n')
    assert load_recipe(tmp_path / "29.toml").data.path == "x"
    for i in range(30, 101):
        (tmp_path / f"{i}.toml").write_text(f'extends = "{i - 1}.toml"\n')
    with pytest.raises(InputError, match="more than 100 files"):
        load_recipe(tmp_path / "100.toml")


def test_parts_by_name_and_by_path(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("[pretrain]\nepochs = 7\n")
    recipe = load_recipe(["mini_imagenet", "conv4", mine, "cosine"])
    assert (recipe.encoder.name, recipe.pretrain.epochs, recipe.finetune.metric) == ("conv4", 7, "cosine")
    assert recipe.run.output == "runs/mini_imagenet_conv4_mine_cosine"
    mine.write_text('extends = ["mini_imagenet", "conv4"]\n')
    assert load_recipe(str(mine)).pretrain.epochs == 24
    with pytest.raises(InputError, match=r"unknown recipe 'mine': .*\. For a file of your own, give a path that ends"):
        load_recipe("mine")


def test_names_that_are_not_utf_8_are_refused(tmp_path):
    change = "run.output=caf\udce9"
    with pytest.raises(InputError, match=r"expected names in UTF-8 in the recipe, got 'caf\\udce9': rename"):
        load_recipe("cub_head_mll", [change])

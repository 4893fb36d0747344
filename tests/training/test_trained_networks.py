"""The tool that trains a network with each method, on images of two tones that are made in a moment."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image
from tools import cells, trained_networks

from likelyshot import Balanced, Dirichlet
from likelyshot.training.machines import Machines
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

SLIM = {"conv4": "encoder.params.widths=[4, 4, 4, 4]", "resnet12": "encoder.params.widths=[4, 4, 4, 4]"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Noise around a colour for each of 5 + 5 + 5 classes, 18 images of 32 x 32 pixels of each."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for name in range(5):
            place, colour = folder / split / f"{split}{name}", rng.integers(60, 196, 3)
            place.mkdir(parents=True)
            for i in range(18):
                pixels = np.clip(colour + rng.normal(0, 50, (32, 32, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    ("network", "names", "rows"),
    [
        ("conv4", ["mll", "anil"], ["MLL", "ANIL"]),
        ("resnet12", ["mll", "ctm", "deepemd"], ["MLL", "CTM", "DeepEMD, four cells"]),
    ],
)
def test_every_seed_has_its_share_and_a_second_call_goes_on(
    network, names, rows, images, tmp_path, monkeypatch, capsys
):
    changes = [f"data.path={images}", "data.splits=", SLIM[network]]
    first = [*changes, "finetune.epochs=0", "pretrain.epochs=1", "pretrain.batch_size=30", "validate.tasks=2"]
    recipe = load_recipe(f"cifar_fs_{network}_euclidean", [*first, f"run.output={tmp_path / 'stage1'}"])
    train(recipe, machines=Machines("cpu"))
    monkeypatch.setattr(trained_networks, "PLANS", {"balanced": Balanced(3), "Dirichlet(2)": Dirichlet(10, 2.0)})
    monkeypatch.setattr(trained_networks, "LAMBDAS", (10.0,))
    stage1, folder = tmp_path / "stage1" / "best.safetensors", tmp_path / "runs"
    call = ["trained_networks", str(images), str(stage1), str(folder), "--network", network, "--seeds", "3", "5"]
    call += ["--tasks", "5", "--slow-tasks", "2", "--adapted-tasks", "0", "--epochs", "1", "--episodes", "1"]
    call += ["--validation-tasks", "2", "--methods", *names]
    for change in changes[1:]:
        call += ["--set", change]
    monkeypatch.setattr(sys, "argv", call)
    trained_networks.main()
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0][2:] for line in table] == rows
    assert [line.split(" | ")[1] for line in table] == ["2" if "EMD" in row else "5" for row in rows]
    runs = sorted(path.name for path in folder.iterdir() if path.name.startswith(network))
    assert runs == sorted(f"{network}_{name}_seed{seed}" for name in names for seed in (3, 5))
    assert len(list((folder / "cells").iterdir())) == len(names) * 4 * 2
    monkeypatch.setattr(trained_networks, "train", None)  # not called again
    monkeypatch.setattr(cells, "evaluate", None)
    trained_networks.main()
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:] == table


def test_tasks_go_to_the_seeds_in_turn(monkeypatch):
    class Scores:
        def __init__(self, value, tasks):
            self.accuracy = value + np.array(tasks)

    monkeypatch.setattr(cells, "scored", lambda method, features, path, tasks: Scores(method, tasks))
    accuracy = cells.shared_out([100.0, 200.0, 300.0], [None] * 3, [None] * 3, list(range(7)))
    np.testing.assert_array_equal(accuracy, [100, 201, 302, 103, 204, 305, 106])
    assert cells.each_seed(accuracy / 100, 3) == "+103.0 +202.5 +303.5"
    assert cells.percent(np.array([0.5, 0.7]), "+") == "+60.00 ± 19.60"

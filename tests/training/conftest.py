"""Tiny data, and recipes that train on it in a moment."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from likelyshot.training.recipes import recipe_from


@pytest.fixture(scope="session")
def features_file(tmp_path_factory):
    """Signed features of 6 + 4 + 4 classes, 10 of each."""
    generator = torch.Generator().manual_seed(0)
    tensors, names = {}, {}
    for split, classes in (("train", 6), ("val", 4), ("test", 4)):
        labels = torch.arange(classes).repeat_interleave(10)
        centres = torch.randn(classes, 12, generator=generator)
        tensors[f"{split}.features"] = centres[labels] + torch.randn(len(labels), 12, generator=generator)
        tensors[f"{split}.labels"] = labels
        names[split] = [f"{split} {i}" for i in range(classes)]
    path = tmp_path_factory.mktemp("features") / "made.safetensors"
    save_file(tensors, path, {"classes": json.dumps(names)})
    return path


@pytest.fixture(scope="session")
def images_folder(tmp_path_factory):
    """Noise around a colour for each of 4 + 3 + 3 classes, 8 images of 20 x 20 pixels of each."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for split, classes in (("train", 4), ("val", 3), ("test", 3)):
        for name in range(classes):
            place, colour = folder / split / f"{split}{name}", rng.integers(60, 196, 3)
            place.mkdir(parents=True)
            for i in range(8):
                pixels = np.clip(colour + rng.normal(0, 50, (20, 20, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    return folder


@pytest.fixture
def head_table(features_file, tmp_path):
    """A ReLU head, both stages."""
    return {
        "data": {"features": str(features_file)},
        "encoder": {"name": "relu_head", "params": {"dim": 8, "rectify": True}},
        "pretrain": {"epochs": 2, "batch_size": 12, "lr": 0.05},
        "finetune": {
            "epochs": 2,
            "episodes": 8,
            "episodes_per_step": 2,
            "ways": 3,
            "queries": 4,
            "lr": 1e-2,
            "optimiser": "adamw",
            "temperature": 2.0,
            "learn_temperature": True,
        },
        "validate": {"ways": 3, "queries": 5, "tasks": 20},
        "run": {"output": str(tmp_path / "run"), "log_steps": 1, "checkpoint_seconds": 1e6},
    }


@pytest.fixture
def images_table(images_folder, tmp_path):
    """A slim ResNet12 with DropBlock, both stages, augmented."""
    return {
        "data": {"path": str(images_folder), "size": 16, "stored": 18},
        "encoder": {"name": "resnet12", "params": {"widths": [4, 4, 4, 8], "drop": 0.2, "dropblock_size": 2}},
        "augmentation": {"crop_scale": [0.4, 1.0]},
        "pretrain": {"epochs": 2, "batch_size": 8, "lr": 0.05, "label_smoothing": 0.1, "schedule": "onecycle"},
        "finetune": {"epochs": 2, "episodes": 4, "ways": 3, "queries": 3, "temperature": 5.0},
        "validate": {"ways": 3, "queries": 3, "tasks": 20},
        "run": {"output": str(tmp_path / "run"), "log_steps": 1, "checkpoint_seconds": 1e6},
    }


@pytest.fixture
def changed():
    """Make a recipe of a table with some keys changed: `changed(table, **{"run.seed": 1})`."""

    def make(table, **changes):
        table = json.loads(json.dumps(table))
        for name, value in changes.items():
            part, key = name.split(".")
            table.setdefault(part, {})[key] = value
        return recipe_from(table)

    return make

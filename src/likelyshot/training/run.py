"""A whole run: folder, processes, stages, features, summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from likelyshot.data.containers import write_document
from likelyshot.data.features import Base, Features
from likelyshot.data.files import output_folder
from likelyshot.data.results import environment
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import Checkpoint, load_checkpoint, load_encoder, restore_module
from likelyshot.encoders.extract import Pool, encode, open_data, open_pool, save_splits
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.errors import InputError
from likelyshot.machine import Progress
from likelyshot.training.finetune import finetuning
from likelyshot.training.keeper import Surroundings, View
from likelyshot.training.log import Log
from likelyshot.training.loop import train_stage
from likelyshot.training.machines import (
    ONE_MACHINE,
    Machines,
    check_synchronised,
    first_alone,
    start_fabric,
    synchronised,
)
from likelyshot.training.pretrain import pretraining
from likelyshot.training.recipes import Recipe, recipe_from
from likelyshot.training.seeds import derived
from likelyshot.training.stage import Stage
from likelyshot.training.validate import validator

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: What may differ between a run and its continuation: where things are, and how often they are noted.
FREE = {
    "run.output",
    "run.checkpoint_seconds",
    "run.log_steps",
    "data.path",
    "data.features",
    "data.cache",
    "encoder.weights",
}

Say = Callable[[str], None]
Show = Callable[[View], None]


def train(
    recipe: Recipe,
    *,
    machines: Machines = ONE_MACHINE,
    resume: bool = False,
    say: Say = lambda what: None,
    show: Show = lambda view: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Run a recipe and give the summary; in `recipe.run.output` it leaves the checkpoints, the log and the features.

    With `resume` it goes on from the last checkpoint there, if there is one, and ends with the same weights as if it
    had never stopped. `stop` is asked after every step: if it says yes, a checkpoint is saved and Stopped raised.
    """
    fabric = start_fabric(machines, recipe.run.precision)
    check_synchronised(recipe.run.sync_batchnorm, fabric.world_size, fabric.device)
    if not recipe.data.features:
        encoders.check_side(recipe.encoder.name, recipe.data.size)
    folder = output_folder(recipe.run.output, make=False)
    last = _find_last(folder, recipe, resume)
    fabric.barrier()  # before the first process writes there
    if not fabric.is_global_zero:
        say, show = (lambda what: None), (lambda view: None)
    say("reading the data")
    pools = _open_pools(recipe, fabric, say)
    _check_test(recipe)
    facts = {"recipe": recipe.to_dict(), "classes": list(pools["train"].classes), "images": len(pools["train"])}
    if last is not None and any(last.facts.get(key) != facts[key] for key in ("classes", "images")):
        raise InputError("expected the training images that the run began with, but got others: check data.path")
    # both stages are made, and so checked, before the first begins
    chosen = [(recipe.pretrain, pretraining), (recipe.finetune, finetuning)]
    makers = [make for settings, make in chosen if settings.epochs]
    stages = [
        make(recipe, start_encoder(recipe, pools["train"], fabric.world_size, fresh=last is None), pools["train"])
        for make in makers
    ]
    for stage in stages:
        _check_share(stage, recipe, fabric.world_size)
    validate = validator(recipe, pools["val"])
    log = None
    output_folder(folder)  # now that there is something to put into it
    if fabric.is_global_zero:
        write_document(folder / "recipe.json", recipe.to_dict())
        write_document(folder / "environment.json", environment())
        log = Log(folder, _place(last))
    around = Surroundings(fabric, folder, recipe.run, facts, log, validate, show, stop)
    done: dict[str, dict[str, Any]] = {}
    best: Path | None = None
    with torch.random.fork_rng(devices=[]):
        for stage in stages:
            if best is not None:
                restore_module(stage.module.encoder, load_checkpoint(best).part("encoder"), str(best))
            best = folder / ("best.safetensors" if stage is stages[-1] else "pretrained.safetensors")
            found = last if last is not None and last.facts["stage"] == stage.name else None
            finished = last is not None and found is None and stage is not stages[-1]  # it is of the later stage
            if not finished:
                say(stage.name)
                train_stage(stage, around, best.name, found)
            fabric.barrier()  # until the best one is written
            done[stage.name] = {key: load_checkpoint(best).facts[key] for key in ("epoch", "validation_accuracy")}
    summary: dict[str, Any] = {}
    if fabric.is_global_zero:
        say("features")
        summary = _finish(recipe, folder, pools, done)
    if log is not None:
        log.close()
    return summary


def start_encoder(recipe: Recipe, train: Pool, world: int, *, fresh: bool) -> Encoder:
    """Build the encoder, with the weights that a fresh run starts from."""
    params = dict(recipe.encoder.params)
    if train.data.ndim == 2:
        params.setdefault("in_dim", train.data.shape[1])
    encoder = encoders.build(recipe.encoder.name, params, seed=derived(recipe.run.seed, 0, 0))
    if recipe.encoder.weights and fresh:
        given = load_checkpoint(recipe.encoder.weights)
        restore_module(encoder, given.part("encoder"), recipe.encoder.weights)
    return _laid_out(synchronised(encoder, world) if recipe.run.sync_batchnorm else encoder, train)


def _laid_out(encoder: Encoder, pool: Pool) -> Encoder:
    """Lay convolutions out channels-last, as the images are: faster on CPUs and on tensor cores."""
    if pool.data.ndim == 4:
        encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    return encoder


def _open_pools(recipe: Recipe, fabric: Fabric, say: Say) -> dict[str, Pool]:
    """Read the training and validation classes; where they go to a file, the first process writes it."""
    count = 0

    def progress(done: int) -> None:
        nonlocal count
        count += done
        say(f"reading the data, {count:,} images")

    def read() -> dict[str, Pool]:
        return {split: _open(recipe, split, fabric.device, progress) for split in ("train", "val")}

    return first_alone(fabric, read) if recipe.data.cache else read()


def _open(recipe: Recipe, split: str, device: torch.device, progress: Progress | None = None) -> Pool:
    return open_pool(recipe.data, split, augmentation=recipe.augmentation, device=device, progress=progress)


def _find_last(folder: Path, recipe: Recipe, resume: bool) -> Checkpoint | None:
    path = folder / "last.safetensors"
    if not path.exists():
        return None
    if not resume:
        raise InputError(
            f"expected an empty folder for the run, but {folder} has a checkpoint: go on with --resume, or choose "
            "another folder with --set run.output=FOLDER"
        )
    last = load_checkpoint(path)
    # a run of an earlier version knows fewer keys: what they stand at by default is what it did
    before, now = _flat(recipe_from(last.facts["recipe"]).to_dict()), _flat(recipe.to_dict())
    changed = sorted(key for key in {*before, *now} - FREE if before.get(key) != now.get(key))
    if changed:
        key = changed[0]
        raise InputError(
            f"expected the recipe that the run in {folder} began with, but {key} was {before.get(key)!r} and is "
            f"{now.get(key)!r}: put it back, or choose another folder with --set run.output=FOLDER"
        )
    return last


def _flat(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


def _place(last: Checkpoint | None) -> tuple[int, int, int] | None:
    if last is None:
        return None
    standing = last.facts["standing"]
    return {"pretrain": 1, "finetune": 2}[last.facts["stage"]], standing["epoch"], standing["step"]


def _check_share(stage: Stage, recipe: Recipe, world: int) -> None:
    key, count = {
        "pretrain": ("pretrain.batch_size", recipe.pretrain.batch_size),
        "finetune": ("finetune.episodes_per_step", recipe.finetune.episodes_per_step),
    }[stage.name]
    if count % world:
        raise InputError(f"expected {key} to be a multiple of the {world} processes, but got {count}: change it")


def _check_test(recipe: Recipe) -> None:
    """Find out that the test classes are there, which are read when all else is done."""
    if recipe.data.features:
        Features.load(recipe.data.features, split="test")
    else:
        open_data(recipe.data, "test")


def _finish(recipe: Recipe, folder: Path, pools: dict[str, Pool], done: dict[str, Any]) -> dict[str, Any]:
    """Extract the features of validation and test classes with the best encoder, and sum up."""
    pools = {**pools, "test": _open(recipe, "test", pools["train"].device)}
    encoder, _ = load_encoder(folder / "best.safetensors")
    encoder = _laid_out(encoder, pools["train"]).to(pools["train"].device)
    base = Base.of(encode(encoder, pools["train"]))
    parts = {split: encode(encoder, pools[split]) for split in ("val", "test")}
    trained_with = recipe.finetune.metric if recipe.finetune.epochs else "cross entropy"
    source = {
        "encoder": f"{recipe.encoder.name} trained with {trained_with}, seed {recipe.run.seed}",
        "dataset": Path(recipe.data.path or recipe.data.features).stem,
    }
    save_splits(folder / "features.safetensors", parts, base, source)
    summary = {
        "encoder": encoders.describe(encoder),
        "parameters": sum(param.numel() for param in encoder.parameters()),
        "stages": done,
        "features": {split: {"images": len(part), "digest": part.digest} for split, part in parts.items()},
    }
    write_document(folder / "summary.json", summary)
    return summary

"""A whole run: folder, processes, stages, features, summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import torch

from likelyshot.data.datasets import ImageSet
from likelyshot.data.features import Base, Features
from likelyshot.data.files import convert, output_folder, write_document
from likelyshot.data.results import Result, environment
from likelyshot.data.tasks import sample_tasks
from likelyshot.encoders import networks
from likelyshot.encoders.checkpoints import Checkpoint, load_checkpoint, load_encoder, restore_module
from likelyshot.encoders.extract import save_splits
from likelyshot.encoders.networks import Encoder
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.heads import head_of, stored
from likelyshot.machine import keep_memory
from likelyshot.methods.binding import bind, needs
from likelyshot.training.log import Log
from likelyshot.training.loop import Show, State, Trainer
from likelyshot.training.machines import (
    ONE_MACHINE,
    Machines,
    check_synchronised,
    first_alone,
    start_fabric,
    synchronised,
)
from likelyshot.training.pool import Pool, encode_pool, open_data, read_pool
from likelyshot.training.recipes import Recipe, recipe_from
from likelyshot.training.stages import (
    Trainee,
    derived,
    encoder_title,
    finetuning,
    pretraining,
    query_plan,
    settings_named,
)

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
    "finetune.head_weights",
}

Say = Callable[[str], None]


class Last(msgspec.Struct, frozen=True):
    """The facts of the checkpoint that a run goes on from."""

    recipe: dict[str, Any]
    classes: list[str]
    images: int
    stage: Literal["pretrain", "finetune"]
    standing: State


def train(
    recipe: Recipe,
    *,
    machines: Machines = ONE_MACHINE,
    resume: bool = False,
    say: Say = lambda what: None,
    show: Show = lambda stage, state, validated: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train an encoder and return the summary; checkpoints, log and features are left in `recipe.run.output`.

    Args:
        recipe: What `load_recipe` returns.
        machines: Devices and processes. Default: one device of this machine.
        resume: Go on from the last checkpoint in the folder, if there is one. The run ends with the same weights as if
            it had never stopped.
        say: Called with a few words when something new begins.
        show: Called with the stage, its state, and the validation accuracy if it was just measured.
        stop: Called after every step. If it returns true, a checkpoint is saved and `Stopped` is raised.
    """
    keep_memory()
    fabric = start_fabric(machines, recipe.run.precision)
    check_synchronised(recipe.run.sync_batchnorm, fabric.world_size, fabric.device)
    networks.check_input(recipe.encoder.name, None if recipe.data.features else recipe.data.size)
    folder = output_folder(recipe.run.output, make=False)
    last = _find_last(folder, recipe, resume)
    fabric.barrier()  # before the first process writes there
    if not fabric.is_global_zero:
        say, show = (lambda what: None), (lambda stage, state, validated: None)
    say("reading the data")
    data = open_data(recipe.data, ("train", "val", "test"))
    pools = _read_pools(recipe, data, fabric, say)
    facts = {"recipe": recipe.to_dict(), "classes": list(pools["train"].classes), "images": len(pools["train"])}
    if last is not None and any(last.facts[key] != facts[key] for key in ("classes", "images")):
        raise InputError("the training images are not those that the run began with: check data.path")
    # both stages are made, and so checked, before the first begins
    makers = [
        make for make, settings in ((pretraining, recipe.pretrain), (finetuning, recipe.finetune)) if settings.epochs
    ]
    encoders = [_start_encoder(recipe, pools["train"], fabric.world_size, fresh=last is None) for _ in makers]
    stages = [
        make(recipe, encoder, pools["train"], fabric.world_size) for make, encoder in zip(makers, encoders, strict=True)
    ]
    validate = _validator(recipe, pools["val"])
    log = None
    output_folder(folder)  # now that there is something to put into it
    if fabric.is_global_zero:
        write_document(folder / "recipe.json", recipe.to_dict())
        write_document(folder / "environment.json", environment())
        log = Log(folder, _place(last))
    trainer = Trainer(fabric, folder, recipe.run, facts, log, validate=validate, show=show, stop=stop)
    done: dict[str, dict[str, Any]] = {}
    best: Path | None = None
    with torch.random.fork_rng(devices=[]):
        for stage in stages:
            if best is not None:
                restore_module(stage.module.encoder, load_checkpoint(best).part("encoder"), str(best))
            best = folder / ("best.safetensors" if stage is stages[-1] else "pretrained.safetensors")
            resumed = last if last is not None and last.facts["stage"] == stage.name else None
            finished = last is not None and resumed is None and stage is not stages[-1]  # it is of the later stage
            if not finished:
                say(stage.name)
                trainer.train(stage, best, resumed)
            fabric.barrier()  # until the best one is written
            done[stage.name] = {key: load_checkpoint(best).facts[key] for key in ("epoch", "validation_accuracy")}
    summary: dict[str, Any] = {}
    if fabric.is_global_zero:
        say("features")
        pools["test"] = read_pool(data["test"], recipe, fabric.device)
        summary = _finish(recipe, folder, pools, done)
    if log is not None:
        log.close()
    return summary


def _start_encoder(recipe: Recipe, train: Pool, world: int, *, fresh: bool) -> Encoder:
    """Build the encoder, with the weights that a fresh run starts from."""
    params = dict(recipe.encoder.params)
    if train.data.ndim == 2:
        dim = train.data.shape[1]
        if params.setdefault("in_dim", dim) != dim:
            raise InputError(
                f"expected encoder.params.in_dim = {dim}, the length of the features, got {params['in_dim']}: "
                "leave it out"
            )
    encoder = networks.build(recipe.encoder.name, params, seed=derived(recipe.run.seed, 0, 0))
    if recipe.encoder.weights and fresh:
        weights = load_checkpoint(recipe.encoder.weights).part("encoder")
        restore_module(encoder, weights, recipe.encoder.weights)
    return _laid_out(synchronised(encoder, world) if recipe.run.sync_batchnorm else encoder, train)


def _laid_out(encoder: Encoder, pool: Pool) -> Encoder:
    """Lay convolutions out channels-last, as the images are: faster on CPUs and on tensor cores."""
    if pool.data.ndim == 4:
        encoder = encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload,unused-ignore]
    return encoder


def _read_pools(recipe: Recipe, data: dict[str, ImageSet | Features], fabric: Fabric, say: Say) -> dict[str, Pool]:
    """Read the training and validation classes; where they go to a file, the first process writes it."""
    count = 0

    def progress(done: int) -> None:
        nonlocal count
        count += done
        say(f"reading the data, {count:,} images")

    def read() -> dict[str, Pool]:
        return {split: read_pool(data[split], recipe, fabric.device, progress) for split in ("train", "val")}

    return first_alone(fabric, read) if recipe.data.cache else read()


def _validator(recipe: Recipe, pool: Pool) -> Callable[[Trainee], Result]:
    """Draw the validation tasks once, and return a function that evaluates an encoder, with its head, on them."""
    settings = recipe.validate
    with settings_named("validate"):
        tasks = sample_tasks(
            pool.labels,
            n_tasks=settings.tasks,
            ways=settings.ways,
            shots=settings.shots,
            query=query_plan(settings),
            seed=settings.seed,
            classes=pool.classes,
        )
    name = settings.method or recipe.finetune.metric
    if "head" not in needs(name):
        method = bind(name, settings.params)
        return lambda trainee: evaluate(method, encode_pool(trainee.encoder, pool), tasks)

    def validate(trainee: Trainee) -> Result:
        # before stage 2 there is no head: prototypes show how good the encoder is
        known = trainee.head is not None
        method = bind(name, settings.params, {"head": trainee.head}) if known else bind("euclidean", {})
        return evaluate(method, encode_pool(trainee.encoder, pool), tasks)

    return validate


def _find_last(folder: Path, recipe: Recipe, resume: bool) -> Checkpoint | None:
    path = folder / "last.safetensors"
    if not path.exists():
        return None
    if not resume:
        raise InputError(
            f"the folder {folder} already has a run: continue with --resume, or choose another folder with "
            "--set run.output=FOLDER"
        )
    last = load_checkpoint(path)
    facts = convert(Last, dict(last.facts), f"the checkpoint {path}")
    # a run of an earlier version knows fewer keys: it did what they do by default
    before, now = _flat(recipe_from(facts.recipe).to_dict()), _flat(recipe.to_dict())
    changed = sorted(key for key in {*before, *now} - FREE if before.get(key) != now.get(key))
    if changed:
        key = changed[0]
        raise InputError(
            f"the run in {folder} began with another recipe: {key} was {before.get(key)!r} and is {now.get(key)!r}. "
            "Put it back, or choose another folder with --set run.output=FOLDER"
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
    state = last.facts["standing"]
    return {"pretrain": 1, "finetune": 2}[last.facts["stage"]], state["epoch"], state["step"]


def _finish(recipe: Recipe, folder: Path, pools: dict[str, Pool], done: dict[str, Any]) -> dict[str, Any]:
    """Write the features of validation and test classes by the best encoder, and the summary."""
    encoder, best = load_encoder(folder / "best.safetensors")
    head = head_of(best)
    encoder = _laid_out(encoder, pools["train"]).to(pools["train"].device)
    base = Base.of(encode_pool(encoder, pools["train"])) if encoder.statistics else None
    parts = {split: encode_pool(encoder, pools[split]) for split in ("val", "test")}
    source = {
        "encoder": encoder_title(recipe, pools["train"]),
        "dataset": Path(recipe.data.path or recipe.data.features).stem,
    }
    save_splits(folder / "features.safetensors", parts, base, source, None if head is None else stored(head))
    summary = {
        "encoder": networks.describe(encoder),
        "parameters": sum(param.numel() for param in encoder.parameters()),
        **({} if head is None else {"head": {**stored(head)[1], "digest": head.digest}}),
        "stages": done,
        "features": {split: {"images": len(part), "digest": part.digest} for split, part in parts.items()},
    }
    write_document(folder / "summary.json", summary)
    return summary

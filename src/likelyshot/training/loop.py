"""The loop over the epochs and steps of a stage, from its start or from where a checkpoint stands."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from likelyshot.encoders.checkpoints import Checkpoint, restore_module, restore_optimiser
from likelyshot.training.keeper import Keeper, Standing, Surroundings
from likelyshot.training.schedule import rate_factor
from likelyshot.training.seeds import derived
from likelyshot.training.stage import Share, Stage


def train_stage(stage: Stage, around: Surroundings, best_file: str, found: Checkpoint | None) -> Standing:
    """Train from the start, or from where a checkpoint of this stage stands; keep the best encoder in `best_file`."""
    optimiser = _optimiser(stage)
    module, fabric_optimiser = around.fabric.setup(stage.module, optimiser)
    standing = Standing()
    if found is not None:
        weights = {name: value for name, value in found.tensors.items() if not name.startswith("optimiser.")}
        restore_module(stage.module, weights, "last.safetensors")
        restore_optimiser(optimiser, found.part("optimiser"), "last.safetensors")
        standing = Standing(**found.facts["standing"])
    threads = torch.get_num_threads()
    keeper = Keeper(stage, around, optimiser, standing, best_file)
    if found is None:
        keeper.validate(0)
        keeper.save()
    while standing.epoch < stage.settings.epochs:
        torch.set_num_threads(threads)  # evaluation runs in threads of its own
        _epoch(stage, around, module, fabric_optimiser, keeper)
        keeper.validate(standing.epoch + 1)
        waited = standing.epoch + 1 - standing.best_epoch
        ended = 0 < stage.settings.patience <= waited
        standing.epoch = stage.settings.epochs if ended else standing.epoch + 1
        standing.step = standing.items = standing.images = 0
        standing.loss = standing.hits = standing.seconds = 0.0
        keeper.save()
        keeper.agree(around.stop())
    return standing


def _optimiser(stage: Stage) -> torch.optim.Optimizer:
    settings = stage.settings
    own = [param for name, param in stage.module.named_parameters() if name.startswith("encoder.")]
    head = [param for name, param in stage.module.named_parameters() if not name.startswith("encoder.")]
    groups: list[dict[str, Any]] = [{"params": own, "start": settings.lr}]
    if head:
        decay = settings.weight_decay if head[0].ndim > 1 else 0.0  # a temperature is not pulled to 1
        groups.append({"params": head, "start": stage.head_lr, "weight_decay": decay})
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )


def _epoch(
    stage: Stage, around: Surroundings, module: nn.Module, optimiser: torch.optim.Optimizer, keeper: Keeper
) -> None:
    standing, fabric = keeper.standing, around.fabric
    share = Share(fabric.global_rank, fabric.world_size)
    plan = stage.plan(standing.epoch)
    module.train()
    total = stage.settings.epochs * stage.steps
    sums = torch.tensor([standing.loss, standing.hits], device=fabric.device)
    before, started = standing.seconds, time.perf_counter()
    for step in range(standing.step, stage.steps):
        done = standing.epoch * stage.steps + step
        factor = rate_factor(stage.settings, done, stage.steps)
        for group in optimiser.param_groups:
            group["lr"] = group["start"] * factor
        stage.module.encoder.set_progress(done / total)
        # for DropBlock; torch.manual_seed sees to all devices, which takes a while, at every step
        sow = torch.default_generator.manual_seed if fabric.device.type == "cpu" else torch.manual_seed
        sow(derived(around.run.seed, stage.number, standing.epoch, step, share.rank))
        optimiser.zero_grad(set_to_none=True)
        seed = derived(around.run.seed, stage.number, standing.epoch, step)
        outcome = stage.outcome(module, plan, step, seed, share)
        fabric.backward(outcome.loss)
        optimiser.step()
        this = torch.stack([outcome.loss.detach(), outcome.hits]).to(sums)
        if share.world > 1:
            this = torch.as_tensor(fabric.all_reduce(this, reduce_op="sum")) / this.new_tensor([share.world, 1])
        sums += this
        standing.step = step + 1
        standing.items += outcome.items * share.world
        standing.images += outcome.images * share.world
        standing.seconds = before + time.perf_counter() - started
        keeper.after_step(sums, this)

"""The loop over the epochs and steps of a stage, with validation, checkpoints, log and a way to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import nn

from likelyshot.data.results import Result
from likelyshot.encoders import networks
from likelyshot.encoders.checkpoints import (
    Checkpoint,
    encoder_checkpoint,
    optimiser_state,
    restore_module,
    restore_optimiser,
    save_checkpoint,
)
from likelyshot.errors import InputError
from likelyshot.heads import stored
from likelyshot.training.log import Log
from likelyshot.training.recipes import Optimisation, Run
from likelyshot.training.stages import Share, Stage, Trainee, derived

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Several processes agree to stop at every such step only: asking costs them a message.
AGREE_STEPS = 10


class Stopped(Exception):  # noqa: N818  (no error: the user asked for it)
    """The run was asked to stop, and has saved its state."""


class State(msgspec.Struct):
    """How far a stage is. Every checkpoint has it, so that a run can go on from there."""

    epoch: int = 0
    step: int = 0  # steps done in this epoch
    best: float = -1.0  # validation accuracy
    best_epoch: int = 0  # epochs done when it was reached
    loss: float = 0.0  # sums over the steps of this epoch
    hits: float = 0.0
    items: int = 0
    images: int = 0
    seconds: float = 0.0  # of training in this epoch

    def means(self) -> dict[str, float]:
        """Return loss and accuracy of this epoch so far, and its speed."""
        return {
            "loss": self.loss / max(self.step, 1),
            "accuracy": self.hits / max(self.items, 1),
            "images_per_second": self.images / max(self.seconds, 1e-9),
        }

    def next_epoch(self, epoch: int) -> None:
        """Begin an epoch."""
        self.epoch = epoch
        self.step = self.items = self.images = 0
        self.loss = self.hits = self.seconds = 0.0


#: Called after steps and validations, with the accuracy that was just measured, if any.
Show = Callable[[Stage, State, float | None], None]


class Trainer:
    """Trains stages one after the other.

    Args:
        fabric: The processes and devices.
        folder: Where checkpoints go.
        settings: The table [run] of the recipe.
        facts: What every checkpoint says of the whole run.
        log: The log, in the first process only.
        validate: Evaluates an encoder, with its head, on the validation tasks.
        show: Called with what a progress display can show.
        stop: Called after every step: whether to save and stop.
    """

    stage: Stage
    state: State
    optimiser: torch.optim.Optimizer
    best_file: Path

    def __init__(
        self,
        fabric: Fabric,
        folder: Path,
        settings: Run,
        facts: Mapping[str, Any],
        log: Log | None,
        *,
        validate: Callable[[Trainee], Result],
        show: Show,
        stop: Callable[[], bool],
    ) -> None:
        self.fabric, self.folder, self.settings, self.facts, self.log = fabric, folder, settings, facts, log
        self.validate, self.show, self.stop = validate, show, stop
        self.saved = time.monotonic()

    def train(self, stage: Stage, best_file: Path, checkpoint: Checkpoint | None = None) -> None:
        """Train a stage from its start, or from a checkpoint of it; the best encoder goes to `best_file`."""
        self.stage, self.state, self.best_file = stage, State(), best_file
        self.optimiser = _optimiser(stage)
        module, optimiser = self.fabric.setup(stage.module, self.optimiser)
        if checkpoint is None:
            self._validate(0)
            self._save()
        else:
            weights = {name: value for name, value in checkpoint.tensors.items() if not name.startswith("optimiser.")}
            restore_module(stage.module, weights, "last.safetensors")
            restore_optimiser(self.optimiser, checkpoint.part("optimiser"), "last.safetensors")
            self.state = msgspec.convert(checkpoint.facts["standing"], State)
        epochs, patience = stage.settings.epochs, stage.settings.patience
        while self.state.epoch < epochs:
            self._epoch(module, optimiser)
            done = self.state.epoch + 1
            self._validate(done)
            self.state.next_epoch(epochs if 0 < patience <= done - self.state.best_epoch else done)
            self._save()
            self._stop_together(self.stop())

    def _epoch(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        stage, state, fabric, seed = self.stage, self.state, self.fabric, self.settings.seed
        share = Share(fabric.global_rank, fabric.world_size)
        plan = stage.plan(state.epoch)
        module.train()
        sums = torch.tensor([state.loss, state.hits], device=fabric.device)
        before, started = state.seconds, time.perf_counter()
        for step in range(state.step, stage.steps):
            done = state.epoch * stage.steps + step
            factor = rate_factor(stage.settings, done, stage.steps)
            for group in optimiser.param_groups:
                group["lr"] = group["start"] * factor
            stage.module.encoder.set_progress(done / (stage.settings.epochs * stage.steps))
            # for DropBlock; torch.manual_seed seeds all devices, which takes a while at every step
            set_seed = torch.default_generator.manual_seed if fabric.device.type == "cpu" else torch.manual_seed
            set_seed(derived(seed, stage.number, state.epoch, step, share.rank))
            optimiser.zero_grad(set_to_none=True)
            outcome = stage.outcome(module, plan, step, derived(seed, stage.number, state.epoch, step), share)
            fabric.backward(outcome.loss)
            if stage.clip:
                fabric.clip_gradients(module, optimiser, max_norm=stage.clip)
            optimiser.step()
            this = torch.stack([outcome.loss.detach(), outcome.hits]).to(sums)
            if share.world > 1:
                this = torch.as_tensor(fabric.all_reduce(this, reduce_op="sum")) / this.new_tensor([share.world, 1])
            sums += this
            state.step = step + 1
            state.items += outcome.items * share.world
            state.images += outcome.images * share.world
            state.seconds = before + time.perf_counter() - started
            self._after_step(sums, this)

    def _after_step(self, sums: torch.Tensor, this: torch.Tensor) -> None:
        """Log, show, save and stop, each when it is time for it."""
        stage, state = self.stage, self.state
        stop = self.stop()
        due = time.monotonic() - self.saved >= self.settings.checkpoint_seconds
        logged = state.step % self.settings.log_steps == 0 or state.step == stage.steps
        # reading a sum makes an accelerator wait, so it is read only where it is needed
        if sums.device.type == "cpu" or logged or due or stop:
            state.loss, state.hits = sums.tolist()
            if not math.isfinite(state.loss):
                raise InputError(
                    f"the loss became {state.loss} in epoch {state.epoch + 1} of {stage.name}, step {state.step}: "
                    f"lower {stage.name}.lr; the last checkpoint can be used"
                )
            self.show(stage, state, None)
        if logged:
            event = {"event": "step", "stage": stage.name, "loss": float(this[0])}
            self._log(state.epoch, state.step, event | {"lr": self.optimiser.param_groups[0]["lr"]})
        if due:
            self._save()
        if self.fabric.world_size == 1 or state.step % AGREE_STEPS == 0:
            self._stop_together(stop)

    def _stop_together(self, stop: bool) -> None:
        """Save and stop if any process was asked to."""
        if self.fabric.world_size > 1:
            requests = self.fabric.all_reduce(torch.tensor(float(stop), device=self.fabric.device), reduce_op="sum")
            stop = float(torch.as_tensor(requests)) > 0
        if stop:
            self._save()
            raise Stopped

    def _validate(self, epochs: int) -> None:
        """Measure the accuracy on the validation classes, in the first process; keep the encoder if it is the best."""
        stage, state = self.stage, self.state
        accuracy = 0.0
        if self.fabric.is_global_zero:
            result = self.validate(stage.module)
            accuracy = result.mean
            event = {"event": "epoch", "stage": stage.name, "epoch": epochs}
            event |= {"validation_accuracy": result.mean, "validation_ci95": result.ci95}
            if epochs:
                event |= state.means()
                event |= {"lr": self.optimiser.param_groups[0]["lr"], "seconds": state.seconds}
            if (temperature := getattr(stage.module, "log_temperature", None)) is not None:
                event["temperature"] = float(temperature.detach().exp())
            self._log(epochs, 0, event)
        accuracy = float(self.fabric.broadcast(accuracy))
        if accuracy > state.best:
            state.best, state.best_epoch = accuracy, epochs
            if self.fabric.is_global_zero:
                facts = {**self.facts, "stage": stage.name, "epoch": epochs, "validation_accuracy": accuracy}
                best = encoder_checkpoint(stage.module.encoder, facts)
                if stage.module.head is not None:
                    tensors, described = stored(stage.module.head)
                    best = Checkpoint({**best.tensors, **tensors}, {**best.facts, "head": described})
                save_checkpoint(self.best_file, best)
        self.show(stage, state, accuracy)

    def _save(self) -> None:
        """Write last.safetensors, in the first process."""
        if self.fabric.is_global_zero:
            tensors = dict(self.stage.module.state_dict())
            tensors |= {f"optimiser.{name}": value for name, value in optimiser_state(self.optimiser).items()}
            facts = {
                **self.facts,
                "stage": self.stage.name,
                "standing": msgspec.to_builtins(self.state),
                "encoder": networks.describe(self.stage.module.encoder),
            }
            save_checkpoint(self.folder / "last.safetensors", Checkpoint(tensors, facts))
        self.saved = time.monotonic()

    def _log(self, epoch: int, step: int, event: dict[str, Any]) -> None:
        if self.log is not None:
            self.log.write((self.stage.number, epoch, step), epoch * self.stage.steps + step, event)


def _optimiser(stage: Stage) -> torch.optim.Optimizer:
    settings = stage.settings
    encoder = [param for name, param in stage.module.named_parameters() if name.startswith("encoder.")]
    head = [param for name, param in stage.module.named_parameters() if not name.startswith("encoder.")]
    groups: list[dict[str, Any]] = [{"params": encoder, "start": settings.lr}]
    if stage.module.head is not None:
        matrices = [param for param in head if param.ndim > 1]
        others = [param for param in head if param.ndim <= 1]  # temperature, biases, gains
        groups.append({"params": matrices, "start": stage.head_lr, "weight_decay": settings.weight_decay})
        groups.append({"params": others, "start": stage.head_lr, "weight_decay": 0.0})
    elif head:
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


def rate_factor(settings: Optimisation, step: int, steps_per_epoch: int) -> float:
    """Return what the learning rate is multiplied by at a step of the whole stage, counted from 0.

    cosine falls to 0 after the last step; step multiplies by `decay` after each milestone, in epochs; onecycle rises
    from 1/25 over the first 30 % of the steps and falls to 1/250,000, both by half a cosine (Smith & Topin 2018, in the
    form of torch's OneCycleLR, with constant momentum).

    >>> settings = Optimisation(epochs=2, schedule="cosine")
    >>> [round(rate_factor(settings, step, 2), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    total = settings.epochs * steps_per_epoch
    if settings.schedule == "cosine":
        return _between(1.0, 0.0, step / total)
    if settings.schedule == "step":
        passed = sum(step >= milestone * steps_per_epoch for milestone in settings.milestones)
        return float(settings.decay**passed)
    if settings.schedule == "onecycle":
        top, last = 0.3 * total - 1, total - 1
        if step <= top:
            return _between(1 / 25, 1.0, step / top)
        return _between(1.0, 1 / 250_000, (step - top) / (last - top))
    return 1.0


def _between(first: float, last: float, fraction: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * fraction)) / 2

"""What a stage leaves behind while it runs: checkpoints, log, progress, and a way to stop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import Checkpoint, encoder_checkpoint, optimiser_state, save_checkpoint
from likelyshot.errors import InputError
from likelyshot.training.log import Log
from likelyshot.training.recipes import Run
from likelyshot.training.stage import Stage
from likelyshot.training.validate import Validator

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Several processes agree to stop at every such step only: asking costs them a message.
AGREE_STEPS = 10


class Stopped(Exception):  # noqa: N818  (no error: the user asked for it)
    """The run was asked to stop, and has saved where it stands."""


@dataclass
class Standing:
    """Where a stage stands; saved with every checkpoint."""

    epoch: int = 0
    step: int = 0  # steps done in this epoch
    best: float = -1.0  # validation accuracy
    best_epoch: int = 0  # epochs done when it was reached
    loss: float = 0.0  # sums over the steps of this epoch
    hits: float = 0.0
    items: int = 0
    images: int = 0
    seconds: float = 0.0  # of training in this epoch


@dataclass(frozen=True)
class View:
    """What a progress display can show."""

    stage: str
    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    images_per_second: float
    best: float  # validation accuracy
    validated: float | None = None  # the accuracy that was just measured


@dataclass(frozen=True)
class Surroundings:
    """What a stage runs in."""

    fabric: Fabric
    folder: Path
    run: Run
    facts: Mapping[str, Any]  # of the whole run, kept in every checkpoint
    log: Log | None  # of the first process only
    validate: Validator
    show: Callable[[View], None]
    stop: Callable[[], bool]  # whether a stop was asked for


class Keeper:
    """Writes what a stage leaves behind: checkpoints, log and progress."""

    def __init__(
        self, stage: Stage, around: Surroundings, optimiser: torch.optim.Optimizer, standing: Standing, best_file: str
    ) -> None:
        self.stage, self.around, self.optimiser, self.standing = stage, around, optimiser, standing
        self.best_file = best_file
        self.saved = time.monotonic()

    def after_step(self, sums: torch.Tensor, this: torch.Tensor) -> None:
        """Log, show, save and stop, each where it is time for it."""
        standing, around, run = self.standing, self.around, self.around.run
        stop = around.stop()
        due = time.monotonic() - self.saved >= run.checkpoint_seconds
        logged = standing.step % run.log_steps == 0 or standing.step == self.stage.steps
        # reading a sum makes an accelerator wait, so it is read only where it is needed
        if sums.device.type == "cpu" or logged or due or stop:
            standing.loss, standing.hits = sums.tolist()
            if not abs(standing.loss) < float("inf"):
                raise InputError(
                    f"expected a finite loss, but it became {standing.loss} in epoch {standing.epoch + 1} of "
                    f"{self.stage.name}, step {standing.step}: lower {self.stage.name}.lr; the last checkpoint is good"
                )
            around.show(self.view())
        if logged and around.log is not None:
            event = {"event": "step", "stage": self.stage.name, "loss": float(this[0])}
            event |= {"lr": self.optimiser.param_groups[0]["lr"]}
            around.log.write(self.place(standing.epoch, standing.step), self.total_step(), event)
        if due:
            self.save()
        if around.fabric.world_size == 1 or standing.step % AGREE_STEPS == 0:
            self.agree(stop)

    def agree(self, stop: bool) -> None:
        """Save and stop if any process was asked to."""
        fabric = self.around.fabric
        if fabric.world_size > 1:
            asked = fabric.all_reduce(torch.tensor(float(stop), device=fabric.device), reduce_op="sum")
            stop = float(torch.as_tensor(asked)) > 0
        if stop:
            self.save()
            raise Stopped

    def validate(self, epochs_done: int) -> None:
        """Measure the accuracy on the validation classes, by the first process; keep the encoder if it is the best."""
        standing, around, stage = self.standing, self.around, self.stage
        accuracy = 0.0
        if around.fabric.is_global_zero:
            result = around.validate(stage.module.encoder)
            accuracy = result.mean
            steps = max(standing.step, 1)
            event = {
                "event": "epoch",
                "stage": stage.name,
                "epoch": epochs_done,
                "validation_accuracy": result.mean,
                "validation_ci95": result.ci95,
            }
            if epochs_done:
                event |= {
                    "loss": standing.loss / steps,
                    "accuracy": standing.hits / max(standing.items, 1),
                    "lr": self.optimiser.param_groups[0]["lr"],
                    "images_per_second": standing.images / max(standing.seconds, 1e-9),
                    "seconds": standing.seconds,
                }
            if (temperature := getattr(stage.module, "log_temperature", None)) is not None:
                event["temperature"] = float(temperature.detach().exp())
            if around.log is not None:
                around.log.write(self.place(epochs_done, 0), epochs_done * stage.steps, event)
        accuracy = float(around.fabric.broadcast(accuracy))
        if accuracy > standing.best:
            standing.best, standing.best_epoch = accuracy, epochs_done
            if around.fabric.is_global_zero:
                facts = {**around.facts, "stage": stage.name, "epoch": epochs_done, "validation_accuracy": accuracy}
                save_checkpoint(around.folder / self.best_file, encoder_checkpoint(stage.module.encoder, facts))
        around.show(dataclasses.replace(self.view(), validated=accuracy))

    def save(self) -> None:
        """Write last.safetensors, by the first process."""
        if self.around.fabric.is_global_zero:
            tensors = dict(self.stage.module.state_dict())
            tensors |= {f"optimiser.{name}": value for name, value in optimiser_state(self.optimiser).items()}
            facts = {
                **self.around.facts,
                "stage": self.stage.name,
                "standing": dataclasses.asdict(self.standing),
                "encoder": encoders.describe(self.stage.module.encoder),
            }
            save_checkpoint(self.around.folder / "last.safetensors", Checkpoint(tensors, facts))
        self.saved = time.monotonic()

    def place(self, epoch: int, step: int) -> tuple[int, int, int]:
        """Say where the stage stands, for the log."""
        return self.stage.number, epoch, step

    def total_step(self) -> int:
        """Count the steps of the stage."""
        return self.standing.epoch * self.stage.steps + self.standing.step

    def view(self) -> View:
        """Say where the stage stands, for a display."""
        standing = self.standing
        return View(
            self.stage.name,
            standing.epoch,
            self.stage.settings.epochs,
            standing.step,
            self.stage.steps,
            standing.loss / max(standing.step, 1),
            standing.hits / max(standing.items, 1),
            standing.images / max(standing.seconds, 1e-9),
            standing.best,
        )

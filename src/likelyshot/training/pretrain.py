"""Stage 1: a linear classifier over the training classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.encoders.extract import Pool
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.errors import InputError
from likelyshot.training.recipes import Recipe
from likelyshot.training.seeds import derived
from likelyshot.training.stage import Outcome, Share, Stage, Trainee


class Classifier(Trainee):
    """Logits of the training classes: (n, c, h, w) -> (n, classes)."""

    def __init__(self, encoder: Encoder, classes: int, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.classifier = nn.Linear(encoder.dim, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Classify."""
        logits: Tensor = self.classifier(self.encoder(inputs))
        return logits


def pretraining(recipe: Recipe, encoder: Encoder, train: Pool) -> Stage:
    """Cross entropy over the training classes; every epoch shuffles anew and drops the incomplete last batch."""
    settings, seed = recipe.pretrain, recipe.run.seed
    if len(train) < settings.batch_size:
        raise InputError(
            f"expected at least pretrain.batch_size = {settings.batch_size} training images, but got {len(train)}: "
            "make the batch smaller"
        )
    steps = len(train) // settings.batch_size

    def plan(epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derived(seed, 1, epoch))
        order = torch.randperm(len(train), generator=generator)
        return order[: steps * settings.batch_size].view(steps, -1)

    def outcome(module: nn.Module, rows: Tensor, step: int, step_seed: int, share: Share) -> Outcome:
        part = share.of(settings.batch_size)
        mine = rows[step][part.start : part.stop]
        inputs = train.inputs(mine, seed=step_seed if settings.augment else None, first=part.start)
        logits = module(inputs).float()
        labels = train.labels[mine].to(logits.device)
        loss = functional.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing, reduction="sum")
        hits = (logits.detach().argmax(-1) == labels).sum()
        return Outcome(loss * share.world / settings.batch_size, hits, len(mine), len(mine))

    module = Classifier(encoder, len(train.classes), derived(seed, 0))
    return Stage("pretrain", 1, settings, module, settings.lr, steps, plan, outcome)

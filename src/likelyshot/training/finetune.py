"""Stage 2: episodes, scored by the metric that will be used (Algorithm 1 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot.data.tasks import Balanced, Tasks, sample_tasks
from likelyshot.encoders.extract import FLOOR, Pool
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.errors import InputError, nearest
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import needs, parameters
from likelyshot.training.recipes import Finetune, Recipe
from likelyshot.training.seeds import derived
from likelyshot.training.stage import Outcome, Share, Stage, Trainee

#: The bound on the rates while training (paper, section III); after it, the best on validation classes is used.
LAMBDA_MAX = 100.0


class Episodic(Trainee):
    """Scores of the queries of episodes, divided by a temperature."""

    def __init__(self, encoder: Encoder, method: Method, settings: Finetune) -> None:
        super().__init__()
        self.encoder, self.method, self.ways = encoder, method, settings.ways
        start = torch.tensor([math.log(settings.temperature)])
        if settings.learn_temperature:
            self.log_temperature = nn.Parameter(start)
        else:
            self.register_buffer("log_temperature", start)
        self.register_buffer("labels", torch.arange(settings.ways).repeat_interleave(settings.shots), persistent=False)

    def forward(self, inputs: Tensor, episodes: int) -> Tensor:
        """Score: inputs (e * (s + q), ...), the s of support first in each episode -> (e, q, k)."""
        features = self.encoder(inputs)
        with torch.autocast(features.device.type, enabled=False):  # a likelihood needs more digits than bfloat16 has
            # without the floor, the direction of a vector of zeros has no gradient
            features = features.float().unflatten(0, (episodes, -1)) + FLOOR
            labels: Any = self.labels
            support, query = features[:, : len(labels)], features[:, len(labels) :]
            scores = self.method(support, labels, query, n_ways=self.ways)
            return scores / self.log_temperature.exp()


def finetuning(recipe: Recipe, encoder: Encoder, train: Pool) -> Stage:
    """Cross entropy of the queries' true classes; every epoch draws new episodes."""
    settings, seed = recipe.finetune, recipe.run.seed
    if settings.episodes < settings.episodes_per_step:
        raise InputError(
            f"expected finetune.episodes of at least episodes_per_step = {settings.episodes_per_step}, but got "
            f"{settings.episodes}: raise it"
        )
    steps, count = settings.episodes // settings.episodes_per_step, settings.episodes_per_step

    def plan(epoch: int) -> Tasks:
        return sample_tasks(
            train.labels,
            n_tasks=steps * count,
            ways=settings.ways,
            shots=settings.shots,
            query=Balanced(settings.queries),
            seed=derived(seed, 2, epoch),
            classes=train.classes,
        )

    def outcome(module: nn.Module, tasks: Tasks, step: int, step_seed: int, share: Share) -> Outcome:
        mine = share.of(count)
        part = tasks[step * count + mine.start : step * count + mine.stop]
        rows = torch.cat([part.support, part.query], dim=1).long()
        first = mine.start * rows.shape[1]
        inputs = train.inputs(rows.flatten(), seed=step_seed if settings.augment else None, first=first)
        scores = module(inputs, len(part)).flatten(0, 1)
        labels = part.query_labels.flatten().long().to(scores.device)
        loss = functional.cross_entropy(scores, labels, reduction="sum") * share.world / (count * part.query.shape[1])
        return Outcome(loss, (scores.detach().argmax(-1) == labels).sum(), len(labels), rows.numel())

    plan(0)  # refuses classes that are too small
    module = Episodic(encoder, training_method(settings.metric, settings.params), settings)
    return Stage("finetune", 2, settings, module, settings.head_lr, steps, plan, outcome)


def training_method(name: str, params: Mapping[str, Any]) -> Method:
    """Bind a method for training, or say why it cannot be trained with."""
    known = parameters(name)
    for key in params:
        if key not in known:
            raise InputError(f"{name} has no parameter {key!r} (finetune.params): {nearest(key, known)}")
    if needs(name):
        raise InputError(
            f"{name} needs {' and '.join(needs(name))} from other data, which change while the encoder is trained: "
            "train with euclidean, cosine or mll"
        )
    bound = {"lambda_max": LAMBDA_MAX, **params} if "lambda_max" in known else dict(params)
    method = partial(METHODS[name], **bound)
    features = torch.linspace(0.1, 1.0, 4 * 3).view(4, 3).requires_grad_()
    scores = method(features[:2], torch.tensor([0, 1]), features[2:], n_ways=2)
    if not scores.requires_grad:
        raise InputError(f"expected a metric with gradients, but {name} has none: train with euclidean, cosine or mll")
    return method

"""The two stages of training: a classifier over the training classes, then episodes scored by a metric."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from likelyshot import heads
from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, sample_tasks
from likelyshot.encoders.checkpoints import load_checkpoint
from likelyshot.encoders.extract import FLOOR
from likelyshot.encoders.networks import Encoder
from likelyshot.encoders.networks.flat import pixels_title
from likelyshot.errors import InputError
from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import REGULARISERS, Head
from likelyshot.methods import Method
from likelyshot.methods.binding import bind, needs, parameters
from likelyshot.training.pool import Pool
from likelyshot.training.recipes import Finetune, Optimisation, Recipe, Validate

#: The bound on the rates while training (paper, section III); after training, the best on validation classes is used.
LAMBDA_MAX = 100.0


class Trainee(nn.Module):
    """An encoder with what a stage trains on top of it."""

    encoder: Encoder
    head: Head | None  # of a metric that is trained


@dataclass(frozen=True)
class Share:
    """Which part of every step this process takes."""

    rank: int = 0
    world: int = 1  # number of processes

    def of(self, count: int) -> range:
        """Return the items of this process among `count`.

        >>> Share(1, 2).of(6)
        range(3, 6)
        """
        return range(self.rank * count // self.world, (self.rank + 1) * count // self.world)


@dataclass(frozen=True)
class Outcome:
    """The result of one step in this process."""

    loss: Tensor  # its mean over all processes is the loss of the whole step
    hits: Tensor  # items that were classified correctly
    items: int  # items that were classified
    images: int  # images that were encoded


@dataclass(frozen=True)
class Stage:
    """A stage: what is trained, and the loss of every step."""

    name: str
    number: int  # in seeds and in the log
    settings: Optimisation
    module: Trainee
    head_lr: float  # of what is not the encoder
    steps: int  # per epoch
    plan: Callable[[int], Any]  # epoch -> what its steps are made of
    outcome: Callable[[nn.Module, Any, int, int, Share], Outcome]  # (module, plan, step, seed, share)
    clip: float = 0.0  # largest norm of the gradient; 0: any


def derived(seed: int, *place: int) -> int:
    """Derive an independent seed for each place, such as (stage, epoch) or (stage, epoch, step, rank).

    >>> derived(0, 1, 2) == derived(0, 1, 2), derived(0, 1, 2) == derived(0, 2, 1)
    (True, False)
    """
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(2, np.uint32)
    return int(state[0]) << 31 | int(state[1]) >> 1  # 63 bits: torch takes signed ones


class Classifier(Trainee):
    """Logits of the training classes: (n, c, h, w) -> (n, classes)."""

    def __init__(self, encoder: Encoder, classes: int, seed: int) -> None:
        super().__init__()
        self.encoder, self.head = encoder, None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.classifier = nn.Linear(encoder.dim, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Classify."""
        logits: Tensor = self.classifier(self.encoder(inputs))
        return logits


def pretraining(recipe: Recipe, encoder: Encoder, train: Pool, world: int = 1) -> Stage:
    """Stage 1: cross entropy over the training classes; every epoch shuffles and drops the incomplete last batch."""
    settings, seed = recipe.pretrain, recipe.run.seed
    _check_share("pretrain.batch_size", settings.batch_size, world)
    if len(train) < settings.batch_size:
        raise InputError(
            f"expected at least pretrain.batch_size = {settings.batch_size} training images, got {len(train)}: lower "
            "pretrain.batch_size"
        )
    steps = len(train) // settings.batch_size

    def plan(epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(derived(seed, 1, epoch))
        order = torch.randperm(len(train), generator=generator)
        return order[: steps * settings.batch_size].view(steps, -1)

    def outcome(module: nn.Module, rows: Tensor, step: int, step_seed: int, share: Share) -> Outcome:
        part = share.of(settings.batch_size)
        batch = rows[step][part.start : part.stop]
        inputs = train.inputs(batch, seed=step_seed if settings.augment else None, first=part.start)
        logits = module(inputs).float()
        labels = train.labels[batch].to(logits.device)
        loss = functional.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing, reduction="sum")
        hits = (logits.detach().argmax(-1) == labels).sum()
        return Outcome(loss * share.world / settings.batch_size, hits, len(batch), len(batch))

    module = Classifier(encoder, len(train.classes), derived(seed, 0))
    return Stage("pretrain", 1, settings, module, settings.lr, steps, plan, outcome)


class Episodic(Trainee):
    """Scores of the queries of episodes, divided by a temperature."""

    def __init__(self, encoder: Encoder, method: Method, settings: Finetune, head: Head | None = None) -> None:
        super().__init__()
        self.encoder, self.method, self.ways, self.head = encoder, method, settings.ways, head
        start = torch.tensor([math.log(settings.temperature)])
        if settings.learn_temperature:
            self.log_temperature = nn.Parameter(start)
        else:
            self.register_buffer("log_temperature", start)
        self.register_buffer("labels", torch.arange(settings.ways).repeat_interleave(settings.shots), persistent=False)

    def forward(self, inputs: Tensor, episodes: int, truth: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Score: inputs (e * (s + q), ...), the s of the support first in each episode -> (e, q, k).

        With the labels of the queries (e, q), the second result has what the head's regulariser says of all examples,
        (e, s + q, k).
        """
        features = self.encoder(inputs)
        with torch.autocast(features.device.type, enabled=False):  # a likelihood needs more digits than bfloat16 has
            # without the floor, the direction of a vector of zeros has no gradient
            features = features.float().unflatten(0, (episodes, -1)) + FLOOR
            labels: Any = self.labels
            support, query = features[:, : len(labels)], features[:, len(labels) :]
            temperature = self.log_temperature.exp()
            scores = self.method(support, labels, query, n_ways=self.ways) / temperature
            if truth is None or self.head is None:
                return scores, None
            every = torch.cat([labels.expand(episodes, -1), truth], dim=1)
            further = REGULARISERS[self.head.name](self.head, l2_normalise(features), every, self.ways)
            return scores, further / temperature


@contextlib.contextmanager
def settings_named(table: str) -> Iterator[None]:
    """Say which table of the recipe decides the tasks that cannot be drawn.

    Args:
        table: The name of the table.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{error}: see {table}.ways, {table}.shots and {table}.queries") from None


def finetuning(recipe: Recipe, encoder: Encoder, train: Pool, world: int = 1) -> Stage:
    """Stage 2: cross entropy of the queries' true classes (Algorithm 1); every epoch draws new episodes."""
    settings, seed = recipe.finetune, recipe.run.seed
    steps, count = settings.episodes // settings.episodes_per_step, settings.episodes_per_step
    _check_share("finetune.episodes_per_step", count, world)
    if not steps:
        raise InputError(
            f"expected finetune.episodes of at least episodes_per_step = {count}, got {settings.episodes}: raise it"
        )

    def plan(epoch: int) -> Tasks:
        return sample_tasks(
            train.labels,
            n_tasks=steps * count,
            ways=settings.ways,
            shots=settings.shots,
            query=query_plan(settings),
            seed=derived(seed, 2, epoch),
            classes=train.classes,
        )

    def outcome(module: nn.Module, tasks: Tasks, step: int, step_seed: int, share: Share) -> Outcome:
        episodes = share.of(count)
        part = tasks[step * count + episodes.start : step * count + episodes.stop]
        rows = torch.cat([part.support, part.query], dim=1).long()
        first = episodes.start * rows.shape[1]
        inputs = train.inputs(rows.flatten(), seed=step_seed if settings.augment else None, first=first)
        truth = part.query_labels.long().to(inputs.device)
        scores, further = module(inputs, len(part), truth if settings.regulariser else None)
        scores, labels = scores.flatten(0, 1), truth.flatten()
        smoothing = settings.label_smoothing
        loss = functional.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="sum")
        loss = loss * share.world / (count * part.query.shape[1])
        if further is not None:
            support = part.support_labels.long().to(truth).expand(len(part), -1)
            every = torch.cat([support, truth], dim=1).flatten()
            other = functional.cross_entropy(further.flatten(0, 1), every, reduction="sum")
            loss = loss + settings.regulariser * other * share.world / (count * rows.shape[1])
        return Outcome(loss, (scores.detach().argmax(-1) == labels).sum(), len(labels), rows.numel())

    with settings_named("finetune"):
        plan(0)  # refuses classes that are too small
    head = _start_head(recipe, encoder, train)
    if settings.regulariser and (head is None or head.name not in REGULARISERS):
        raise InputError(
            f"{settings.metric} has no regulariser: leave finetune.regulariser out, or train {', '.join(REGULARISERS)}"
        )
    method = training_method(settings.metric, settings.params, head, encoder.dim)
    module = Episodic(encoder, method, settings, head)
    return Stage("finetune", 2, settings, module, settings.head_lr, steps, plan, outcome, settings.clip)


def query_plan(settings: Finetune | Validate) -> Balanced | Dirichlet:
    """Say how many queries each class of an episode has."""
    if settings.alpha:
        return Dirichlet(settings.queries * settings.ways, settings.alpha)
    return Balanced(settings.queries)


def _start_head(recipe: Recipe, encoder: Encoder, train: Pool) -> Head | None:
    """Build the head that the metric is trained with; None if it needs none."""
    settings = recipe.finetune
    if "head" not in needs(settings.metric):
        if settings.head or settings.head_weights:
            key = "head" if settings.head else "head_weights"
            raise InputError(f"{settings.metric} has no head: leave finetune.{key} out")
        return None
    params = dict(settings.head)
    if "ways" in heads.parameters(settings.metric, {}):
        params.setdefault("ways", settings.ways)
    head = heads.build(settings.metric, params, dim=encoder.dim, seed=derived(recipe.run.seed, 0, 1))
    if settings.head_weights:
        heads.start_from(head, load_checkpoint(settings.head_weights))
    head.trained = {"ways": settings.ways, "shots": settings.shots}
    if named := encoder_title(recipe, train):
        head.trained["encoder"] = named
    return head


def encoder_title(recipe: Recipe, train: Pool) -> str:
    """Name the encoder of the final vectors; pixels or vectors that do not change have the same name in every run."""
    if recipe.encoder.name == "identity":
        return train.source.get("encoder", "")
    if recipe.encoder.name == "flat":
        return pixels_title(recipe.data.size)
    trained_with = recipe.finetune.metric if recipe.finetune.epochs else "cross entropy"
    return f"{recipe.encoder.name} trained with {trained_with}, seed {recipe.run.seed}"


def training_method(name: str, params: Mapping[str, Any], head: Head | None = None, dim: int = 3) -> Method:
    """Bind a method for training on vectors of length `dim`, or raise InputError if it cannot be trained with."""
    known = parameters(name)
    if missing := [need for need in needs(name) if need != "head" or head is None]:
        raise InputError(
            f"{name} needs {' and '.join(missing)} from other data, which change while the encoder is trained: "
            "train with euclidean, cosine or mll"
        )
    bound = {"lambda_max": LAMBDA_MAX, **params} if "lambda_max" in known else params
    method = bind(name, bound, {"head": head})
    ways = 2 if head is None else head.params.get("ways", 2)
    features = torch.linspace(0.1, 1.0, 2 * ways * dim).view(2 * ways, dim).requires_grad_()
    scores = method(features[:ways], torch.arange(ways), features[ways:], n_ways=ways)
    if not scores.requires_grad:
        raise InputError(f"{name} has no gradients: train with euclidean, cosine or mll")
    return method


def _check_share(key: str, count: int, world: int) -> None:
    if count % world:
        raise InputError(f"expected {key} to be a multiple of the {world} processes, got {count}: change it")

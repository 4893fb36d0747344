"""Few-shot accuracy on the validation classes."""

from __future__ import annotations

from collections.abc import Callable

from likelyshot.data.results import Result
from likelyshot.data.tasks import Balanced, sample_tasks
from likelyshot.encoders.extract import Pool, encode
from likelyshot.encoders.networks.blocks import Encoder
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.methods.binding import bind
from likelyshot.training.recipes import Recipe

Validator = Callable[[Encoder], Result]


def validator(recipe: Recipe, pool: Pool) -> Validator:
    """Draw the validation tasks once, and give a function that evaluates an encoder on them."""
    settings = recipe.validate
    tasks = sample_tasks(
        pool.labels,
        n_tasks=settings.tasks,
        ways=settings.ways,
        shots=settings.shots,
        query=Balanced(settings.queries),
        seed=settings.seed,
        classes=pool.classes,
    )
    name = settings.method or recipe.finetune.metric
    method = bind(name, settings.params)
    return lambda encoder: evaluate(method, encode(encoder, pool), tasks)

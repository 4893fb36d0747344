"""From scores to answers: how sure they may be, and what is too strange to belong to any class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from likelyshot.data.features import Features
from likelyshot.data.tasks import Balanced, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import fit_temperature
from likelyshot.functional.temperature import probabilities
from likelyshot.machine import Progress
from likelyshot.methods import Method
from likelyshot.own_data.answers import Answers

#: Validation tasks that temperatures are fitted on, and their queries of a class at most.
TASKS, QUERIES = 200, 15


@dataclass(frozen=True, eq=False)
class Judge:
    """What the scores of a method on one pile mean.

    >>> judge = Judge(("cat", "dog"), 1.0, lambda rows: rows.sum(-1), 5.0)
    >>> answers = judge.answers(torch.tensor([[3.0], [9.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]), ["a", "b"])
    >>> answers.predicted, answers.reject.tolist()
    (['cat', 'dog'], [False, True])
    """

    classes: tuple[str, ...]
    temperature: float
    novelty: Callable[[Tensor], Tensor]  # rows (q, d) -> (q,), higher is stranger
    threshold: float  # what is stranger belongs to none of the classes

    def answers(self, rows: Tensor, scores: Tensor, names: Sequence[str]) -> Answers:
        """Give probabilities and rejections of rows (q, d) with scores (q, k)."""
        with torch.no_grad():
            strange = self.novelty(rows).double()
            sure = probabilities(scores, self.temperature)
        return Answers(names, self.classes, sure.numpy(), (strange > self.threshold).numpy(), strange.numpy())


def validation_temperatures(
    methods: Mapping[str, Method],
    validation: Features,
    *,
    ways: int,
    shots: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Fit the temperature of every method on tasks of other classes, of so many ways and shots if these allow it."""
    smallest = int(validation.counts.min())
    ways, shots = min(ways, len(validation.classes)), max(1, min(shots, smallest - 1))
    if ways < 2 or smallest < 2:
        got = f"{len(validation.classes)} classes, the smallest of {smallest}"
        raise InputError(f"expected validation features of two classes or more, two rows each, but got {got}: add some")
    tasks = sample_tasks(
        validation.labels,
        n_tasks=TASKS,
        ways=ways,
        shots=shots,
        query=Balanced(min(QUERIES, smallest - shots)),
        seed=seed,
        classes=validation.classes,
    )
    return {name: fit_temperature(method, validation, tasks, progress=progress) for name, method in methods.items()}

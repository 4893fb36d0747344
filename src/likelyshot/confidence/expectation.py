"""What to expect of a method before trusting it, from the labelled examples alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from likelyshot.confidence.temperature import INDUCTIVE, Held, Prior, held_out, prior_of, temperature_of
from likelyshot.errors import InputError
from likelyshot.functional.temperature import probabilities
from likelyshot.methods import Method

#: Two classes can hardly be told apart when this share of their examples is nearer to the other one, two at least.
HARD = 0.25
#: Held-out examples are worth this share of as many independent ones: they are named by supports that overlap. With it,
#: the interval covers the real accuracy as often as it says (tests/test_expectation.py, docs/results/confidence.md).
INDEPENDENT = 0.5
#: A label is doubtful when another class is so many times as probable, by the examples that are left.
DOUBT = 20.0


class HardPair(NamedTuple):
    """Two classes, and the share of their held-out examples that score higher for the other one."""

    one: str
    other: str
    share: float


class Doubt(NamedTuple):
    """A labelled example that the rest of its class disowns."""

    row: int
    label: str
    better: str
    odds: float  # how many times as probable the better label is


@dataclass(frozen=True, eq=False)
class Expectation:
    """Accuracy on labelled examples that were held out, and what to look at; made by `expect`."""

    examples: int  # held out
    accuracy: float  # share named right; NaN if none was held out
    interval: tuple[float, float]  # 95 %, Wilson's with half as many examples
    confusion: Tensor  # (k, k) float64, examples by true and predicted class
    classes: tuple[str, ...]
    single: tuple[str, ...]  # classes with one example, which are never held out
    hard_pairs: tuple[HardPair, ...]  # the hardest first
    doubtful: tuple[Doubt, ...]  # the most doubtful first

    def confused(self, most: int = 5) -> list[tuple[str, str, float, float]]:
        """List true class, class named instead, how many examples and of how many, the most frequent first."""
        wrong = self.confusion.clone().fill_diagonal_(0)
        order = wrong.flatten().argsort(descending=True, stable=True)[:most].tolist()
        pairs = [divmod(place, len(self.classes)) for place in order]
        totals = self.confusion.sum(1)
        return [
            (self.classes[a], self.classes[b], float(wrong[a, b]), float(totals[a]))
            for a, b in pairs
            if wrong[a, b] > 0
        ]

    def words(self, names: Sequence[str] | None = None) -> list[str]:
        """Say it in sentences; `names` are those of the examples, by row."""
        if not self.examples:
            return ["Every class has one example, so that none can be held out: there is no telling the accuracy."]
        low, high = (f"{100 * bound:.0f}" for bound in self.interval)
        said = [
            f"Of the {self.examples} labelled examples that can be held out, {100 * self.accuracy:.0f} % are named "
            f"right by the others (95 % interval {low} to {high} %)."
        ]
        if self.single:
            said.append(f"One example only, so not part of that figure: {', '.join(self.single)}.")
        if astray := self.confused():
            words = ", ".join(
                f"{true} for {named} ({count:.2g} of {total:.0f})" for true, named, count, total in astray
            )
            said.append(f"Taken for another: {words}.")
        for one, other, share in self.hard_pairs:
            said.append(f"Hard to tell apart: {one} and {other} ({100 * share:.0f} % of their examples go astray).")
        for row, label, better, _ in self.doubtful:
            name = f"example {row + 1}" if names is None else names[row]
            said.append(f"Check the label of {name}: it says {label}, the others say {better}.")
        return said


def expect(
    method: Method,
    support: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    *,
    query: Tensor | None = None,
    seed: int = 0,
) -> Expectation:
    """Hold labelled examples out, name them by the others, and tell how well that went (see `held_out`).

    A little pessimistic: the examples are named by a support that lacks them. It speaks of things like the labelled
    examples, in the same class shares. Shapes: support (n, d), labels (n,), query (q, d) for transductive methods.

    >>> from likelyshot.methods import METHODS
    >>> support, labels = torch.tensor([[9.0, 1], [9, 2], [1, 9], [2, 9]]), torch.tensor([0, 0, 1, 1])
    >>> print(*expect(METHODS["cosine"], support, labels, ["flat", "steep"]).words())
    Of the 4 labelled examples that can be held out, 100 % are named right by the others (95 % interval 34 to 100 %).
    """
    held = held_out(method, support, labels, len(classes), query=query, seed=seed)
    return expectation_of(held, labels, classes, prior_of(method))


def expectation_of(held: Held, labels: Tensor, classes: Sequence[str], prior: Prior = INDUCTIVE) -> Expectation:
    """Tell what held-out scores say. Shapes: labels (n,) of the whole support."""
    k = len(classes)
    if held.scores.shape[-1] != k:
        raise InputError(f"expected a name for each of {held.scores.shape[-1]} classes, got {k}: give one each")
    weights, predicted = held.weights, held.scores.argmax(-1)
    confusion = torch.zeros(k * k, dtype=torch.float64)
    confusion = confusion.index_add_(0, (held.labels * k + predicted).cpu(), weights.cpu()).view(k, k)
    examples = int((held.rows.bincount() > 0).sum())
    accuracy = float(confusion.diagonal().sum()) / examples if examples else math.nan
    return Expectation(
        examples=examples,
        accuracy=accuracy,
        interval=wilson(accuracy, INDEPENDENT * examples),
        confusion=confusion,
        classes=tuple(classes),
        single=tuple(name for name, n in zip(classes, labels.bincount(minlength=k).tolist(), strict=True) if n == 1),
        hard_pairs=tuple(sorted(_hard_pairs(held, classes), key=lambda pair: -pair.share)),
        doubtful=tuple(sorted(_doubtful(held, classes, prior), key=lambda doubt: -doubt.odds)),
    )


def wilson(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Give Wilson's interval of a share that was measured on n examples; (0, 1) of none.

    >>> low, high = wilson(1.0, 25)
    >>> round(low, 3), high
    (0.867, 1.0)
    """
    if not n:
        return 0.0, 1.0
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _hard_pairs(held: Held, classes: Sequence[str]) -> list[HardPair]:
    k, labels, weights = len(classes), held.labels.cpu(), held.weights.cpu()
    own = held.scores.gather(-1, held.labels.unsqueeze(-1))
    astray = (held.scores >= own).double().cpu() * weights.unsqueeze(-1)  # (m, k)
    wrong = torch.zeros(k, k, dtype=torch.float64).index_add_(0, labels, astray)
    count = torch.zeros(k, dtype=torch.float64).index_add_(0, labels, weights)
    wrong, total = wrong + wrong.T, count.unsqueeze(0) + count.unsqueeze(1)  # of two classes together
    slack = 1e-9  # weights are fractions that add up to whole numbers but for rounding
    hard = ((wrong >= 2 - slack) & (wrong >= HARD * total - slack)).triu(1)
    return [HardPair(classes[a], classes[b], float(wrong[a, b] / total[a, b])) for a, b in hard.nonzero().tolist()]


def _doubtful(held: Held, classes: Sequence[str], prior: Prior) -> list[Doubt]:
    if not len(held.rows) or held.gap <= 0:
        return []
    p = probabilities(held.scores, temperature_of(held, prior) / held.gap)  # (m, k)
    times = held.rows.bincount().double()  # (n,)
    mean = torch.zeros(len(times), p.shape[-1], dtype=torch.float64).index_add_(0, held.rows, p)
    mean /= times.clamp_min(1).unsqueeze(-1)
    label = torch.zeros_like(held.rows.bincount()).index_copy_(0, held.rows, held.labels)
    own = mean.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    best, better = mean.max(-1)
    odds = best / own.clamp_min(1e-300)
    return [
        Doubt(row, classes[int(label[row])], classes[int(better[row])], float(odds[row]))
        for row in ((times > 0) & (odds >= DOUBT)).nonzero().flatten().tolist()
    ]

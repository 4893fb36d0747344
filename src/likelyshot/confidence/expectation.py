"""What accuracy to expect of a method before trusting it, measured on the labelled examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from likelyshot.confidence.temperature import HeldOut, held_out
from likelyshot.errors import InputError
from likelyshot.functional.scores import probabilities
from likelyshot.methods import Method

#: Two classes are hard to tell apart if at least this share of their examples, and at least two, score higher for the
#: other class.
HARD = 0.25
#: Held-out examples are worth this share of as many independent ones: the supports that classify them overlap. With
#: it, the interval covers the real accuracy as often as it says (test_expectation.py, docs/results/confidence.md).
INDEPENDENT = 0.5
#: An example is held out of a class of n and classified by n - 1: with all n, errors are fewer by this share / n. On
#: validation classes of four networks errors fell by 10 to 45 % at 2 examples a class and by 0 to 20 % at 5
#: (`python -m tools.ahead trust`).
ONE_MORE = 0.5
#: A label is doubtful if another class is this many times as probable, by the other examples.
DOUBT = 20.0
#: Confusions that the sentences name.
NAMED = 5


class HardPair(NamedTuple):
    """Two classes, and the share of their held-out examples that score higher for the other one."""

    one: str
    other: str
    share: float


class Doubt(NamedTuple):
    """A labelled example that looks like one of another class."""

    row: int
    label: str
    better: str
    odds: float  # how many times as probable the better label is


class Confusion(NamedTuple):
    """How many held-out examples of a class are taken for another one, and how many there are."""

    true: str
    predicted: str
    examples: float
    total: float


@dataclass(frozen=True, eq=False)
class Expectation:
    """Accuracy on labelled examples that were held out, and what to look at; made by `expect`."""

    method: str
    examples: int  # held out
    accuracy: float  # expected share classified correctly, with all examples; NaN if none was held out
    interval: tuple[float, float]  # 95 %, Wilson's with half as many examples
    confusion: Tensor  # (k, k) float64, examples by true and predicted class
    classes: tuple[str, ...]
    single: tuple[str, ...]  # classes with one example, which are never held out
    hard_pairs: tuple[HardPair, ...]  # the hardest first
    doubtful: tuple[Doubt, ...]  # the most doubtful first
    with_pile: bool  # whether the examples were held out among items of the pile

    def confused(self) -> list[Confusion]:
        """List the confusions, the most frequent first."""
        wrong = self.confusion.clone().fill_diagonal_(0)
        order = wrong.flatten().argsort(descending=True, stable=True).tolist()
        pairs = [divmod(place, len(self.classes)) for place in order[: int((wrong > 0).sum())]]
        totals = self.confusion.sum(1)
        return [Confusion(self.classes[a], self.classes[b], float(wrong[a, b]), float(totals[a])) for a, b in pairs]

    def summary(self) -> list[str]:
        """Say in sentences what accuracy to expect, of which method, and which classes are confused."""
        if not self.examples:
            return ["Every class has one example, so none can be held out and the accuracy cannot be estimated."]
        low, high = (f"{100 * bound:.0f}" for bound in self.interval)
        where, how = (" on this pile", "held out among items of the pile") if self.with_pile else ("", "held out")
        measured = f"measured on {self.examples} labelled examples that were {how}"
        share = f"{100 * self.accuracy:.0f} % (95 % interval {low} to {high} %)"
        sentences = [f"Expected accuracy of {self.method}{where}: {share}, {measured}."]
        if self.single:
            sentences.append(f"Classes with one example are not part of that figure: {', '.join(self.single)}.")
        if confused := self.confused()[:NAMED]:
            named = ", ".join(f"{true} for {other} ({n:.2g} of {total:.0f})" for true, other, n, total in confused)
            sentences.append(f"Held-out examples taken for another class: {named}.")
        return sentences

    def advice(self, names: Sequence[str] | None = None) -> list[str]:
        """Say in sentences which classes are hard to tell apart and which labels to check.

        Args:
            names: Names of the labelled examples, by row.
        """
        sentences = [
            f"Hard to tell apart: {one} and {other} ({100 * share:.0f} % of their examples look more like the other)."
            for one, other, share in self.hard_pairs
        ]
        for row, label, better, _ in self.doubtful:
            name = f"example {row + 1}" if names is None else names[row]
            sentences.append(f"Check the label of {name}: it is {label}, but the other examples suggest {better}.")
        return sentences


def expect(
    method: Method,
    support: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    *,
    query: Tensor | None = None,
    seed: int = 0,
) -> Expectation:
    """Hold labelled examples out, classify them by the others, and measure the accuracy (see `held_out`).

    Each example is classified by a support that lacks it, which makes more errors than the whole support: with n
    examples a class, errors are reduced by 1 / (2 n). The figure holds for items like the labelled examples, in the
    same proportions of classes.

    Args:
        method: A method with its parameters and statistics bound.
        support: Labelled vectors (n, d).
        labels: Their classes (n,), from 0.
        classes: Names of the classes.
        query: The pile (q, d). Without it, a transductive method sees only held-out examples, as many of each class,
            and one that assumes balanced classes looks better than it is.
        seed: Seed of the splits and of the sample of the pile.

    >>> from likelyshot.methods import METHODS
    >>> support, labels = torch.tensor([[9.0, 1], [9, 2], [1, 9], [2, 9]]), torch.tensor([0, 0, 1, 1])
    >>> print(*expect(METHODS["cosine"], support, labels, ["flat", "steep"]).summary())
    Expected accuracy of cosine: 100 % (95 % interval 34 to 100 %), measured on 4 labelled examples that were held out.
    """
    held = held_out(method, support, labels, len(classes), query=query, seed=seed)
    return expectation_from(held, labels, classes)


def expectation_from(held: HeldOut, labels: Tensor, classes: Sequence[str]) -> Expectation:
    """Measure what held-out scores show. Shapes: labels (n,) of the whole support."""
    k = len(classes)
    if held.scores.shape[-1] != k:
        raise InputError(f"expected a name for each of {held.scores.shape[-1]} classes, got {k}: name each class")
    zeros = held.scores.new_zeros(k * k)
    confusion = zeros.index_add(0, held.labels * k + held.scores.argmax(-1), held.weights).view(k, k).cpu()
    examples = int((held.rows.bincount() > 0).sum())
    shots = labels.bincount().to(held.weights)[held.labels]  # of the class of every held-out example
    wrong = (held.scores.argmax(-1) != held.labels).double() * held.weights * (1 - ONE_MORE / shots)
    accuracy = 1 - float(wrong.sum()) / examples if examples else math.nan
    return Expectation(
        method=held.method,
        examples=examples,
        accuracy=accuracy,
        interval=wilson(accuracy, INDEPENDENT * examples),
        confusion=confusion,
        classes=tuple(classes),
        single=tuple(name for name, n in zip(classes, labels.bincount(minlength=k).tolist(), strict=True) if n == 1),
        hard_pairs=tuple(sorted(_hard_pairs(held, classes), key=lambda pair: -pair.share)),
        doubtful=tuple(sorted(_doubtful(held, classes), key=lambda doubt: -doubt.odds)),
        with_pile=held.with_pile,
    )


def wilson(share: float, n: float) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share that was measured on n examples; (0, 1) without examples.

    >>> low, high = wilson(1.0, 25)
    >>> round(low, 3), high
    (0.867, 1.0)
    """
    if not n:
        return 0.0, 1.0
    z = 1.96
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _hard_pairs(held: HeldOut, classes: Sequence[str]) -> list[HardPair]:
    own = held.scores.gather(-1, held.labels.unsqueeze(-1))
    worse = (held.scores >= own).double() * held.weights.unsqueeze(-1)  # (m, k)
    zeros = held.scores.new_zeros(len(classes), len(classes))
    wrong = zeros.index_add(0, held.labels, worse)
    count = zeros[0].index_add(0, held.labels, held.weights)
    wrong, total = wrong + wrong.T, count.unsqueeze(0) + count.unsqueeze(1)  # of two classes together
    slack = 1e-9  # weights are fractions that add up to whole numbers but for rounding
    hard = ((wrong >= 2 - slack) & (wrong >= HARD * total - slack)).triu(1)
    return [HardPair(classes[a], classes[b], float(wrong[a, b] / total[a, b])) for a, b in hard.nonzero().tolist()]


def _doubtful(held: HeldOut, classes: Sequence[str]) -> list[Doubt]:
    if not len(held.rows) or held.gap <= 0:
        return []
    p = probabilities(held.scores, held.temperature() / held.gap)  # (m, k)
    times = held.rows.bincount()  # (n,)
    mean = p.new_zeros(len(times), p.shape[-1]).index_add(0, held.rows, p) / times.clamp_min(1).unsqueeze(-1)
    label = torch.zeros_like(times).index_copy(0, held.rows, held.labels)
    own = mean.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    best, better = mean.max(-1)
    odds = best / own.clamp_min(1e-300)
    return [
        Doubt(row, classes[int(label[row])], classes[int(better[row])], float(odds[row]))
        for row in ((times > 0) & (odds >= DOUBT)).nonzero().flatten().tolist()
    ]

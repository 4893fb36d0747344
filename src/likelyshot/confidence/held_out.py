"""What labelled examples that are held out show: the temperature of a method's probabilities, and its accuracy.

Scores are far too sure of themselves: MLL adds up 1,280 features as if they were independent. Probabilities are
softmax(scores / T). What T has to be depends on the method, the shots and the features, but hardly in units of the
gap: how far the support's own class leads the others when the support is scored against itself. T = factor x gap is
the default, and T = factor where scores are log-probabilities; examples that are held out of the support correct it.
With one example in every class none can be held out, and the temperature of the mixture follows how the pile varies.
The same examples show what accuracy to expect before trusting the answers. docs/results/confidence.md has the figures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from likelyshot.data.features import Features
from likelyshot.data.tasks import Balanced, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import fit_temperature as task_temperature
from likelyshot.functional.checks import check_examples
from likelyshot.functional.scores import class_means, fit_temperature, l2_normalise, probabilities
from likelyshot.methods import Method
from likelyshot.methods.binding import facts_of, is_transductive, name_of, parameters_of
from likelyshot.methods.calibration import Calibration

#: The default temperature in units of the gap, unless `likelyshot.methods.facts` has one for the method.
INDUCTIVE_FACTOR, TRANSDUCTIVE_FACTOR = 0.07, 0.09
#: Standard deviation of the logarithm of a temperature around its default.
SPREAD = 0.5
#: Items of the pile, drawn at random, that held-out examples are mixed with for a transductive method.
PILE = 200
#: Samples after which the directions of a pile count as much as those that the default temperature assumes.
PRIOR_SAMPLES = 20
#: Runs with held-out examples of a method that has a closed form, and is cheap to repeat.
RUNS = 10
#: Validation tasks that a temperature is fitted on, and the most queries per class in them.
TASKS, QUERIES = 200, 15
#: Two classes are hard to tell apart if at least this share of their examples, and at least two, score higher for the
#: other class.
HARD = 0.25
#: Held-out examples are worth this share of as many independent ones: the supports that classify them overlap. With
#: it, the interval covers the real accuracy as often as it says (test_expectation.py, docs/results/confidence.md).
INDEPENDENT = 0.5
#: An example is held out of a class of n and classified by n - 1. With all n, errors are fewer by this x the accuracy /
#: n: one more example repairs more where classes are easy to tell apart. On validation classes of six kinds of features
#: errors fell by 15 to 47 % at 2 examples a class, and by 4 to 26 % at 5 (`python -m tools.ahead trust`).
ONE_MORE = 1.0
#: A label is doubtful if another class is this many times as probable, by the other examples.
DOUBT = 20.0
#: Confusions that the sentences name.
NAMED = 5


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of m labelled examples by a method that did not see their labels; an example may recur."""

    method: str
    factor: float  # default temperature in units of the gap
    scores: Tensor  # (m, k) float64, in units of the gap of their run
    labels: Tensor  # (m,) int64
    rows: Tensor  # (m,) int64, positions in the support
    gap: float  # of the whole support, in units of the scores
    with_pile: bool = False  # whether the examples were mixed with a pile

    @property
    def weights(self) -> Tensor:
        """How much each score counts, (m,): 1 in all for every example, however often it occurs."""
        return 1 / self.rows.bincount()[self.rows].double()

    @property
    def class_weights(self) -> Tensor:
        """Equal for all classes, in sum the effective number of examples (sum w)^2 / sum w^2, (m,)."""
        share = self.weights / self.labels.bincount(self.weights)[self.labels]
        return share * share.sum() / (share * share / self.weights).sum()

    def temperature(self) -> float:
        """Estimate the temperature: `factor` x gap, corrected by what the held-out examples show.

        Every class counts the same, however many examples it has. Without any held-out example, as with one example
        in every class, the default remains.

        >>> none = HeldOut("mll", 0.07, torch.zeros(0, 2), torch.zeros(0).long(), torch.zeros(0).long(), gap=200.0)
        >>> round(none.temperature(), 3)
        14.0
        """
        if not 0 < self.gap < float("inf"):  # a support that does not separate its classes
            return 1.0
        known = self.scores.isfinite().all(-1)
        scores, labels, weights = self.scores[known], self.labels[known], self.class_weights[known]
        return self.gap * fit_temperature(scores, labels, weights=weights, default=self.factor, spread=SPREAD)


def held_out(
    method: Method, support: Tensor, labels: Tensor, n_ways: int, *, query: Tensor | None = None, seed: int = 0
) -> HeldOut:
    """Score labelled examples by a method that is given only the others.

    The support is split into folds, each with an example of every class that has as many, so that no class alone is
    short of shots: 5-shot supports give 5 folds of 4 shots. Splits are repeated: about 10 runs of a method with a
    closed form, 5 of transductive MLL, 3 of methods that may take long. The example of a class that has only one is
    never held out: it serves as a wrong class for the others.

    Args:
        method: A method with its parameters and statistics bound.
        support: Labelled vectors (n, d).
        labels: Their classes (n,), from 0.
        n_ways: Number of classes.
        query: The pile (q, d). A transductive method scores the held-out examples among at most 200 items of it;
            other methods ignore it.
        seed: Seed of the splits and of the sample of the pile.

    >>> support, labels = torch.tensor([[3.0, 4.0], [3.0, 4.2], [4.0, 3.0]]), torch.tensor([0, 0, 1])
    >>> from likelyshot.methods import METHODS
    >>> held = held_out(METHODS["cosine"], support, labels, 2)
    >>> sorted(set(held.rows.tolist())), held.scores.argmax(-1).unique().tolist()  # row 2 is alone in its class
    ([0, 1], [0])
    """
    check_examples(support, labels)
    facts, transductive = facts_of(method), is_transductive(method)
    with_pile = transductive and query is not None and len(query) > 0
    pile = _sample(query, seed).to(support) if with_pile and query is not None else support[:0]
    scores, rows = [support.new_empty(0, n_ways, dtype=torch.float64)], [labels.new_empty(0)]
    for out in _splits(labels.cpu(), RUNS if facts.kind == "closed form" else facts.runs, seed):
        out = out.to(labels.device)
        mask = torch.ones_like(labels, dtype=torch.bool).index_fill_(0, out, False)
        few, few_labels = support[mask], labels[mask]
        run = _for_shots(method, len(few) / n_ways)
        if transductive:
            out_scores = run(few, few_labels, torch.cat([support[out], pile]), n_ways=n_ways)[: len(out)]
            gap = support_gap(run, few, few_labels, n_ways)
        else:
            both = run(few, few_labels, torch.cat([support[out], few]), n_ways=n_ways)
            out_scores, gap = both[: len(out)], 1.0 if facts.log_probabilities else _lead(both[len(out) :], few_labels)
        scores.append(out_scores.double() / gap if gap > 0 else torch.zeros_like(out_scores, dtype=torch.float64))
        rows.append(out)
    default = TRANSDUCTIVE_FACTOR if transductive else INDUCTIVE_FACTOR
    factor = default if facts.temperature is None else facts.temperature
    if len(rows) == 1 and with_pile and facts.directions is not None:
        answers = method(support, labels, pile, n_ways=n_ways).argmax(-1)
        factor = pile_temperature(
            torch.cat([support, pile]), torch.cat([labels, answers]), n_ways, assumed=facts.directions, default=factor
        )
    places = torch.cat(rows)
    return HeldOut(
        method=name_of(method),
        factor=factor,
        scores=torch.cat(scores),
        labels=labels[places],
        rows=places,
        gap=support_gap(method, support, labels, n_ways),
        with_pile=with_pile,
    )


def support_temperature(
    method: Method, support: Tensor, labels: Tensor, n_ways: int, *, query: Tensor | None = None
) -> float:
    """Estimate the temperature of a method's scores from labelled examples: `held_out(...).temperature()`.

    Args:
        method: A method with its parameters and statistics bound.
        support: Labelled vectors (n, d).
        labels: Their classes (n,), from 0.
        n_ways: Number of classes.
        query: The pile (q, d), which matters to transductive methods only.

    >>> from likelyshot.methods import METHODS
    >>> support, labels = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([0, 1])
    >>> round(support_temperature(METHODS["cosine"], support, labels, 2), 5)  # 0.07 (1 - cosine)
    0.0028
    """
    return held_out(method, support, labels, n_ways, query=query).temperature()


def pile_temperature(samples: Tensor, classes: Tensor, n_ways: int, *, assumed: float, default: float) -> float:
    """Estimate the temperature of a Gaussian's scores from how samples differ from their classes, right or not.

    Scores are -(D / 2) d / w, with D the `assumed` directions, d the squared distance to a class and w its mean. Of
    samples that differ from their class in P independent directions, d / w has the standard deviation sqrt(2 / P), so
    that scores are off by (D / 2) sqrt(2 / P) each way. Twice that is the temperature, D sqrt(2 / P). With few samples
    P is drawn to that of the `default`. Shapes: samples (n, d), non-negative, classes (n,).

    Args:
        samples: Vectors, seen as the likelihood mixture sees them: unit vectors of the root, less their mean.
        classes: Their classes, from 0, as far as they are known.
        n_ways: Number of classes.
        assumed: D.
        default: Temperature without samples.

    >>> round(pile_temperature(torch.ones(1, 2), torch.zeros(1).long(), 1, assumed=20.0, default=2.5), 2)
    2.5
    """
    roots = l2_normalise(l2_normalise(samples.double()).sqrt())
    directions = l2_normalise(roots - roots.mean(0))
    within = directions - class_means(directions, classes, n_ways)[classes]
    free = len(samples) - int((classes.bincount() > 0).sum())
    inverse = (default / assumed) ** 2 / 2  # 1 / P of the default
    if free > 0:
        few = max(1 / independent_directions(within) - 1 / free, 0.0)
        inverse = (free * few + PRIOR_SAMPLES * inverse) / (free + PRIOR_SAMPLES)
    return assumed * math.sqrt(2 * inverse)


def independent_directions(differences: Tensor) -> float:
    """Count the directions in which vectors vary: (sum of the variances)^2 / sum of their squares, along the axes.

    With n vectors in P equal directions this is about 1 / (1 / P + 1 / n). Shapes: (n, d).

    >>> round(independent_directions(torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])), 2)
    1.8
    """
    tall = differences.shape[0] > differences.shape[1]
    gram = differences.mT @ differences if tall else differences @ differences.mT
    total = float(gram.trace())
    return total**2 / float(gram.square().sum()) if total > 1e-12 else math.inf


def validation_temperature(method: Method, validation: Features, *, ways: int, shots: int, seed: int = 0) -> float:
    """Fit the temperature of a method's scores on tasks of other classes.

    Args:
        method: A method with its parameters and statistics bound.
        validation: Features of classes that are not those to tell apart.
        ways: Classes of a task; fewer if there are not as many.
        shots: Examples per class; fewer if the smallest class has not as many.
        seed: Seed of the tasks.
    """
    smallest = int(validation.counts.min())
    if len(validation.classes) < 2 or smallest < 2:
        got = f"{len(validation.classes)} classes, the smallest of {smallest}"
        raise InputError(f"expected validation features of two classes or more, two rows each, but got {got}: add some")
    shots = max(1, min(shots, smallest - 1))
    tasks = sample_tasks(
        validation.labels,
        n_tasks=TASKS,
        ways=min(ways, len(validation.classes)),
        shots=shots,
        query=Balanced(min(QUERIES, smallest - shots)),
        seed=seed,
        classes=validation.classes,
    )
    return task_temperature(method, validation, tasks)


def support_gap(method: Method, support: Tensor, labels: Tensor, n_ways: int) -> float:
    """Measure by how much the support's own class leads the mean of the others, the support scored against itself.

    In this unit a method's temperature hardly depends on shots, ways or, among the inductive ones, the method; it is
    larger with few features. It is 1 for scores that are log-probabilities. Shapes: support (n, d), labels (n,).
    """
    if facts_of(method).log_probabilities:
        return 1.0
    return _lead(method(support, labels, support, n_ways=n_ways), labels)


def _lead(scores: Tensor, labels: Tensor) -> float:
    scores = scores.double()
    to_class = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    to_others = (scores.sum(-1) - to_class) / max(scores.shape[-1] - 1, 1)
    return float((to_class - to_others).mean())


def _splits(labels: Tensor, runs: int, seed: int) -> list[Tensor]:
    """Choose the rows that each run holds out: at least one, never the last of a class."""
    sizes = labels.bincount()
    folds = min(runs, int(sizes.max()))
    if folds < 2:
        return []
    generator = torch.Generator().manual_seed(seed)
    splits = []
    for _ in range(runs // folds):
        fold = torch.full_like(labels, -1)
        for label in dict.fromkeys(labels.tolist()):  # in the order of the rows: names of classes do not matter
            size = int(sizes[label])
            if size > 1:
                fold[labels == label] = torch.randperm(max(size, folds), generator=generator)[:size] % folds
        splits += [out for index in range(folds) if len(out := (fold == index).nonzero().flatten())]
    return splits


def _sample(query: Tensor, seed: int) -> Tensor:
    if len(query) <= PILE:
        return query
    chosen = torch.randperm(len(query), generator=torch.Generator().manual_seed(seed))[:PILE]
    return query[chosen.sort().values.to(query.device)]


def _for_shots(method: Method, shots: float) -> Method:
    """Let the combined metric use its calibration for a support that lacks the held-out examples."""
    calibration = parameters_of(method).get("calibration")
    if isinstance(calibration, Calibration):
        return functools.partial(method, calibration=replace(calibration, shots=shots))
    return method


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
    """Accuracy on labelled examples that were held out, and what to look at; made by `expect`.

    Args:
        method: Name of the method.
        examples: How many examples were held out.
        accuracy: Expected share of items classified correctly, with all examples; NaN if none was held out.
        interval: Its 95 % interval, Wilson's with half as many examples.
        confusion: Number of held-out examples by true and predicted class, (k, k) float64.
        classes: Names of the classes.
        single: Classes with one example, which are never held out.
        hard_pairs: Pairs of classes that are hard to tell apart, the hardest first.
        doubtful: Examples whose label is in doubt, the most doubtful first.
        with_pile: Whether the examples were held out among items of the pile.
    """

    method: str
    examples: int
    accuracy: float
    interval: tuple[float, float]
    confusion: Tensor
    classes: tuple[str, ...]
    single: tuple[str, ...]
    hard_pairs: tuple[HardPair, ...]
    doubtful: tuple[Doubt, ...]
    with_pile: bool

    def confused(self) -> list[Confusion]:
        """List the confusions, the most frequent first."""
        wrong = self.confusion.clone().fill_diagonal_(0)
        order = wrong.flatten().argsort(descending=True, stable=True).tolist()
        pairs = [divmod(place, len(self.classes)) for place in order[: int((wrong > 0).sum())]]
        totals = self.confusion.sum(1)
        return [Confusion(self.classes[a], self.classes[b], float(wrong[a, b]), float(totals[a])) for a, b in pairs]

    def summary(self) -> list[str]:
        """Say in sentences what accuracy to expect and which classes are confused."""
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
            named = ", ".join(f"{true} taken for {other} ({_of(n, total)})" for true, other, n, total in confused)
            sentences.append(f"Mistakes on held-out examples: {named}.")
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


def _of(count: float, total: float) -> str:
    """Say how many of all, on average if examples were held out several times with different answers.

    >>> _of(2.0, 4.0), _of(0.5, 5.0)
    ('2 of 4', '0.5 of 5 on average')
    """
    average = "" if abs(count - round(count)) < 0.05 else " on average"
    return f"{count:.2g} of {total:.0f}{average}"


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
    result = held_out(method, support, labels, len(classes), query=query, seed=seed)
    return expectation_from(result, labels, classes)


def expectation_from(result: HeldOut, labels: Tensor, classes: Sequence[str]) -> Expectation:
    """Measure what held-out scores show. Shapes: labels (n,) of the whole support."""
    k = len(classes)
    if result.scores.shape[-1] != k:
        raise InputError(f"expected a name for each of {result.scores.shape[-1]} classes, got {k}: name each class")
    zeros = result.scores.new_zeros(k * k)
    confusion = zeros.index_add(0, result.labels * k + result.scores.argmax(-1), result.weights).view(k, k).cpu()
    examples = int((result.rows.bincount() > 0).sum())
    shots = labels.bincount().to(result.weights)[result.labels]  # of the class of every held-out example
    wrong = (result.scores.argmax(-1) != result.labels).double() * result.weights
    measured = 1 - wrong.sum() / max(examples, 1)  # with one example fewer
    wrong = wrong * (1 - ONE_MORE * measured / shots)
    accuracy = 1 - float(wrong.sum()) / examples if examples else math.nan
    return Expectation(
        method=result.method,
        examples=examples,
        accuracy=accuracy,
        interval=wilson(accuracy, INDEPENDENT * examples),
        confusion=confusion,
        classes=tuple(classes),
        single=tuple(name for name, n in zip(classes, labels.bincount(minlength=k).tolist(), strict=True) if n == 1),
        hard_pairs=tuple(sorted(_hard_pairs(result, classes), key=lambda pair: -pair.share)),
        doubtful=tuple(sorted(_doubtful(result, classes), key=lambda doubt: -doubt.odds)),
        with_pile=result.with_pile,
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


def _hard_pairs(result: HeldOut, classes: Sequence[str]) -> list[HardPair]:
    own_scores = result.scores.gather(-1, result.labels.unsqueeze(-1))
    worse = (result.scores >= own_scores).double() * result.weights.unsqueeze(-1)  # (m, k)
    zeros = result.scores.new_zeros(len(classes), len(classes))
    wrong = zeros.index_add(0, result.labels, worse)
    count = zeros[0].index_add(0, result.labels, result.weights)
    wrong, total = wrong + wrong.T, count.unsqueeze(0) + count.unsqueeze(1)  # of two classes together
    slack = 1e-9  # weights are fractions that add up to whole numbers but for rounding
    hard = ((wrong >= 2 - slack) & (wrong >= HARD * total - slack)).triu(1)
    return [HardPair(classes[a], classes[b], float(wrong[a, b] / total[a, b])) for a, b in hard.nonzero().tolist()]


def _doubtful(result: HeldOut, classes: Sequence[str]) -> list[Doubt]:
    if not len(result.rows) or result.gap <= 0:
        return []
    p = probabilities(result.scores, result.temperature() / result.gap)  # (m, k)
    times = result.rows.bincount()  # (n,)
    mean = p.new_zeros(len(times), p.shape[-1]).index_add(0, result.rows, p) / times.clamp_min(1).unsqueeze(-1)
    label = torch.zeros_like(times).index_copy(0, result.rows, result.labels)
    labelled = mean.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    best, better = mean.max(-1)
    odds = best / labelled.clamp_min(1e-300)
    return [
        Doubt(row, classes[int(label[row])], classes[int(better[row])], float(odds[row]))
        for row in ((times > 0) & (odds >= DOUBT)).nonzero().flatten().tolist()
    ]

"""One round: the pile is classified by the labels so far, and what accuracy to expect is estimated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.confidence.held_out import Expectation, HeldOut, expectation_from
from likelyshot.labelling.journal import Guess, Measured
from likelyshot.methods.binding import is_transductive
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.model import Model, wants_rectified
from likelyshot.own_data.scoring import passes

#: Items that a transductive method which compares all of them with each other gets at once. A larger pile is
#: classified in random blocks of this size: ten thousand items at once would take half a minute.
BLOCK = 1000
#: Items that are classified before the next screen is chosen. More hardly change it, and the rest follows while a
#: person looks at the screen.
PART = 5000
#: Items that show what is usual in the pile, and that held-out examples are mixed with.
SAMPLE = 2000
#: Labelled examples that a round learns from, at most; of each class as many as of the others, if it has them.
MOST_EXAMPLES = 600
#: The temperature of a page in units of the usual one: on piles of CIFAR-FS and CUB, probabilities then came true.
#: docs/results/labelling.md has the figures.
SHARPER = 0.75
#: Guesses that correct the probabilities: the last ones, since the method is better with every round.
RECENT = 50
#: Precision of the line that corrects probabilities, in logits, around the identity: its offset and its slope.
LINE = (4.0, 100.0)
#: How far the corrected probabilities are off, in logits: a constant, and a share of the logit. With INTERVAL, the
#: quantile of a 90 % interval. docs/results/labelling.md has how often the interval held.
OFF, INTERVAL = (0.4, 0.2), 1.645
#: Rounds that the growth of the accuracy is judged by, at least.
FEWEST_ROUNDS = 4


class Known(NamedTuple):
    """What a round learns from."""

    vectors: NDArray[np.float32]  # (s, d) of labelled examples
    labels: list[str]  # (s,)
    names: list[str]  # (s,) of the examples, or nothing of those that are not in the pile
    numbers: list[int]  # (s,) of the items in the pile, -1 of those that are not
    refused: Mapping[int, str]  # of items in the pile, the class that they are not of


@dataclass(frozen=True, eq=False)
class Round:
    """What a round found."""

    version: int  # of the labels
    open: NDArray[np.intp]  # (n,) numbers of the items that it classified, all without a label
    whole: bool  # whether these are all items without a label, or a random part of them
    answers: Answers  # of these items
    expectation: Expectation  # by held-out labelled examples
    numbers: list[int]  # of the examples that it learned from, for `expectation.doubtful`
    accuracy: float  # to expect on the whole pile, labelled items included
    interval: tuple[float, float]  # of it, 90 %
    method: str
    seconds: float


def learn(vectors: NDArray[np.float32], open_items: NDArray[np.intp], known: Known, **settings: Any) -> Round:
    """Classify all items that have no label yet; the arguments are those of `learn_in_parts`."""
    return list(learn_in_parts(vectors, open_items, known, **settings))[-1]


def learn_in_parts(
    vectors: NDArray[np.float32],
    open_items: NDArray[np.intp],
    known: Known,
    *,
    method: str | None = None,
    params: Mapping[str, Any] | None = None,
    negative: bool = False,
    guesses: Sequence[Guess] = (),
    version: int = 0,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Round]:
    """Classify the items that have no label yet: in a large pile, first a random part of them, then all.

    At least two classes must have examples. Labelled items of the pile are classified as well, so that a method which
    learns from the pile sees all of it and not only what is left, but their answers are dropped. The accuracy to expect
    is that of the labelled items, all right, and of the rest by `expected_right`.

    Args:
        vectors: The whole pile (n, d).
        open_items: Numbers of the items without a label.
        known: The labelled examples.
        method: A method by name, or None for the default.
        params: Parameters of the method.
        negative: Whether any vector has a negative entry.
        guesses: What was guessed before items were labelled.
        version: Of the labels, kept in the result.
        seed: Seed of the blocks and of the examples that are left out if there are too many.
        stop: Asked between blocks whether to end without an answer for the rest.
    """
    began = time.monotonic()
    rows = few(known.labels, seed)
    model = Model.fit(
        known.vectors[rows],
        [known.labels[row] for row in rows],
        method=method,
        params=dict(params or {}),
        rectify=negative and wants_rectified(method),
        seed=seed,
    )
    labelled = np.array([number for number in known.numbers if number >= 0], dtype=np.intp)
    items = np.concatenate([open_items, labelled])
    blocks = Blocks(model, vectors, items)
    expectation = expectation_from(blocks.held_out, model.labels, model.classes)
    done: list[Answers] = []
    enough = False
    for place, block in enumerate(blocks.rows):
        done.append(blocks.answer(block))
        last = place + 1 == len(blocks.rows)
        if not last and (enough or sum(map(len, done)) < PART):
            if enough and stop():
                return
            continue
        enough = True
        order = np.concatenate(blocks.rows[: place + 1])
        open_rows = np.flatnonzero(order < len(open_items))  # the others are labelled
        open_rows = open_rows[np.argsort(order[open_rows])]
        numbers = open_items[order[open_rows]]
        answers = part(joined(done, model.classes), open_rows)
        for row, number in enumerate(numbers.tolist()):
            if known.refused.get(number) in model.classes:
                _refuse(answers.probabilities[row], model.classes.index(known.refused[number]))
        scale = len(open_items) / max(len(numbers), 1)
        sure, low, high = (
            (len(labelled) + scale * count) / max(len(items), 1)
            for count in expected_right(answers.probability, guesses)
        )
        yield Round(
            version=version,
            open=numbers,
            whole=last,
            answers=answers,
            expectation=expectation,
            numbers=[known.numbers[row] for row in rows],
            accuracy=sure,
            interval=(low, high),
            method=blocks.name,
            seconds=time.monotonic() - began,
        )


def answer_in_blocks(model: Model, vectors: NDArray[Any]) -> Answers:
    """Classify vectors (n, d), in random blocks where the method would compare too many of them with each other.

    Args:
        model: The model.
        vectors: What is classified, finite and not all zeros.
    """
    blocks = Blocks(model, vectors, np.arange(len(vectors)))
    answers = joined([blocks.answer(block) for block in blocks.rows], model.classes)
    return part(answers, np.argsort(np.concatenate(blocks.rows), kind="stable"))


class Blocks:
    """Items of a pile in random blocks, small enough for a method that compares all items of one with each other.

    Args:
        model: The model; without temperatures of its own, it gets that of the page.
        vectors: The whole pile (n, d), finite and not all zeros.
        asked: Numbers of the items that are classified.
    """

    def __init__(self, model: Model, vectors: NDArray[Any], items: NDArray[np.intp]) -> None:
        self.name, self._vectors, self._items = model.method_for(len(items)), vectors, items
        chance = np.random.default_rng(model.seed)
        some = items if len(items) <= SAMPLE else np.sort(chance.choice(items, SAMPLE, replace=False))
        sample = model.sample(vectors[some]) if len(some) else None
        self.held_out = model.held_out(self.name, sample)  # scores of the labelled examples that were held out
        if self.name not in model.temperatures:
            model = replace(model, temperatures={**model.temperatures, self.name: page_temperature(self.held_out)})
        self._model, self._judge = model, model.judge(self.name, sample, self.held_out)
        alone = not is_transductive(model.bound(self.name)) or passes(model.bound(self.name)) > 0
        count = 1 if alone else max(1, math.ceil(len(items) / BLOCK))
        order = np.random.default_rng(model.seed).permutation(len(items)) if count > 1 else np.arange(len(items))
        self.rows = np.array_split(order, count)  # places among those asked for, at least one block

    def answer(self, block: NDArray[np.intp]) -> Answers:
        """Classify a block."""
        if not len(block):
            return joined([], self._model.classes)
        pieces = self._model.scores(self._vectors[self._items[block]])()
        return joined([self._judge.answers(x, scores, [""] * len(x)) for x, scores in pieces], self._model.classes)


def page_temperature(result: HeldOut) -> float:
    """Give the temperature for a pile whose labelled items were chosen because they are hard.

    Held out, they are wrong far more often than the rest of the pile, and a temperature that is fitted to them makes
    probabilities too low. They can show that the method is better than usual, but not that it is worse: the
    temperature is at most that of a method without held-out examples.

    Args:
        result: The labelled examples that were held out.
    """
    usual, fitted = result.factor * result.gap, result.temperature()
    if not len(result.labels):  # one label per class
        return fitted
    return SHARPER * (min(fitted, usual) if 0 < usual < float("inf") else fitted)


def part(answers: Answers, rows: NDArray[np.intp]) -> Answers:
    """Give the answers for some items."""
    return Answers(
        [""] * len(rows), answers.classes, answers.probabilities[rows], answers.reject[rows], answers.novelty[rows]
    )


class Right(NamedTuple):
    """How many answers are expected to be right, and a 90 % interval of that number."""

    number: float
    low: float
    high: float


def expected_right(probability: NDArray[np.float64], guesses: Sequence[Guess] = ()) -> Right:
    """Estimate how many answers are right, by their probabilities and by how the last guesses turned out.

    Labelled items that are held out would mislead: they were chosen because they are hard. But they were chosen by
    their probabilities, so that among items of one probability the labelled ones are like the others. A line in
    logits, from the probability that was shown to the one that it was right, corrects the probabilities; without
    guesses it is the identity. The interval is that of the line, of how far it was off in simulations, and of chance,
    which makes some of the answers right and some wrong.

    Args:
        probability: Of the answers (n,).
        guesses: What was guessed before items were labelled, the last ones last.

    >>> round(expected_right(np.array([0.6, 0.8])).number, 6)
    1.4
    >>> low = [Guess(0.5, True)] * 50  # better than they said
    >>> expected_right(np.array([0.5]), low).number > 0.7
    True
    """
    last = guesses[-RECENT:]
    x = _logit(np.array([guess.probability for guess in last]))
    right = np.array([guess.right for guess in last], dtype=np.float64)
    rows = np.stack([np.ones_like(x), x], 1)
    precision = np.diag(LINE)
    line = np.array([0.0, 1.0])  # the identity
    curve = precision
    for _ in range(25):  # Newton's method for the logistic regression
        p = _share(rows @ line)
        curve = (rows * (p * (1 - p))[:, None]).T @ rows + precision
        line = line + np.linalg.solve(curve, rows.T @ (right - p) - precision @ (line - [0.0, 1.0]))
    shown = _logit(probability)
    spread = INTERVAL * np.sqrt(np.linalg.inv(curve)[0, 0] + OFF[0] ** 2 + np.square(OFF[1] * shown))
    middle = line[0] + line[1] * shown
    number, low, high = (float(_share(value).sum()) for value in (middle, middle - spread, middle + spread))
    chance = INTERVAL * math.sqrt(float((_share(middle) * _share(-middle)).sum()))
    down, up = math.hypot(number - low, chance), math.hypot(high - number, chance)
    return Right(number, max(number - down, 0.0), min(number + up, float(len(shown))))


def _share(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-logit)))


def _logit(p: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.clip(p, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(p / (1 - p)))


def few(labels: Sequence[str], seed: int = 0, most: int = MOST_EXAMPLES) -> list[int]:
    """Choose the examples to learn from: all of them, or of each class at most as many as of the others.

    >>> few(["a", "a", "a", "b"], most=3)
    [0, 2, 3]
    """
    if len(labels) <= most:
        return list(range(len(labels)))
    rows: dict[str, list[int]] = {}
    for row in np.random.default_rng(seed).permutation(len(labels)).tolist():
        rows.setdefault(labels[row], []).append(row)
    each = max(1, most // len(rows))
    while sum(min(len(places), each + 1) for places in rows.values()) <= most:
        each += 1
    return sorted(row for places in rows.values() for row in places[:each])


def joined(parts: Sequence[Answers], classes: tuple[str, ...]) -> Answers:
    """Put answers one after the other."""
    if not parts:
        return Answers([], classes, np.empty((0, len(classes))), np.empty(0, bool), np.empty(0))
    probabilities = np.concatenate([each.probabilities for each in parts]).astype(np.float64)
    reject, novelty = (np.concatenate([getattr(each, key) for each in parts]) for key in ("reject", "novelty"))
    return Answers([""] * len(probabilities), classes, probabilities, reject, novelty)


def _refuse(probabilities: NDArray[np.float64], place: int) -> None:
    """Take a class out of the probabilities of an item, which a person has said that it is not of."""
    left = 1 - probabilities[place]
    probabilities[place] = 0.0
    probabilities[:] = probabilities / left if left > 1e-9 else 1 / max(len(probabilities) - 1, 1)
    probabilities[place] = 0.0


class Growth(NamedTuple):
    """How many more labels about so many more points cost; None where that cannot be told."""

    points: float  # of accuracy, in %
    labels: int | None
    why: str  # it cannot be told


def growth(history: Sequence[Measured], left: float = math.inf) -> Growth:
    """Say about how many more labels the next points of accuracy cost.

    The error is taken to fall as a power of the number of labels, the line through the last ten rounds in logarithms.
    Where there are fewer than four rounds, the line does not fall or fits badly, or it would have to be followed
    beyond four times the labels so far or the items of the pile, the answer is that it is unknown.

    Args:
        history: What accuracy was expected after the rounds.
        left: Number of items without a label.

    >>> growth([Measured(n, 1 - n**-0.5) for n in (10, 20, 30, 40)])
    Growth(points=2.0, labels=12, why='')
    >>> growth([Measured(10, 0.5)]).why
    'an estimate needs 4 rounds'
    """
    by_count = {point.labels: point for point in history if point.labels > 0 and point.accuracy < 1}
    points = [by_count[count] for count in sorted(by_count)][-10:]
    now = history[-1].accuracy if history else 0.0
    step = min(0.02, (1 - now) / 2)
    if len(points) < FEWEST_ROUNDS:
        return Growth(100 * step, None, f"an estimate needs {FEWEST_ROUNDS} rounds")
    x, y = np.log([point.labels for point in points]), np.log([1 - point.accuracy for point in points])
    slope, start = np.polyfit(x, y, 1)
    spread = float(np.square(y - y.mean()).sum())
    unexplained = float(np.square(y - start - slope * x).sum())
    if slope >= -0.02:
        return Growth(100 * step, None, "the accuracy has not grown over the last rounds")
    if unexplained > 0.5 * spread:
        return Growth(100 * step, None, "the accuracy of the last rounds went up and down")
    labels_needed = points[-1].labels * ((1 - now - step) / (1 - now)) ** (1 / slope)
    if labels_needed > 4 * points[-1].labels:
        return Growth(100 * step, None, "it would be more than three times the labels so far")
    more = max(1, round(labels_needed - points[-1].labels))
    if more > left:
        return Growth(100 * step, None, "by the last rounds, it would be more than there are items left")
    return Growth(100 * step, more, "")

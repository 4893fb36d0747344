"""What to label next: a varied beginning, then the items that teach most, groups to confirm, and strange ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.encoders.pretrained import Embedder
from likelyshot.errors import InputError
from likelyshot.labelling.rounds import answer_in_blocks, part
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.model import Model
from likelyshot.own_data.piles import Pile, read_pile
from likelyshot.own_data.pipeline import Fitted, open_for
from likelyshot.own_data.rows import CachePlace, gather, scan

#: Items among which a varied screen is looked for, and the share of them that are the least typical and left out.
SAMPLE, UNTYPICAL = 2000, 0.3
#: Nearest items that show how typical an item is.
NEIGHBOURS = 5
#: The least certain items, and others that stand for the rest, among which those are chosen whose labels teach most.
POOL = 500
#: Items of a group that a person confirms at once, at most and at least; the least probability to be in one; how many
#: of them are expected to be wrong, at most; and the labelled examples of its class, at least: with fewer, a whole
#: group is often of another class.
GROUP, SMALLEST_GROUP, GROUP_FROM, GROUP_WRONG, GROUP_EXAMPLES = 18, 4, 0.9, 0.5, 3
#: On a screen: unsure items, how many of them make a pair, strange items that are not among them, and groups. A small
#: screen is chosen by newer labels than a large one.
TEACHING, PAIR, STRANGE, GROUPS = 8, 3, 2, 2
#: Share of the pile that is rejected if there is nothing strange in it: twice that of items of known classes.
REJECTED = 0.1
#: Items whose best class is so much more probable than the next are left to groups.
SURE = 0.9


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Scale vectors (n, d) to length one."""
    rows = np.asarray(vectors, dtype=np.float32)
    scaled: NDArray[np.float32] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return scaled


def varied(vectors: NDArray[Any], count: int, *, known: NDArray[Any] | None = None, seed: int = 0) -> list[int]:
    """Choose items that are spread over a pile, each as far as possible from those before.

    The least typical items of the pile are left out: they lie far from everything, and show nothing but themselves.

    Args:
        vectors: The pile (n, d).
        count: How many to choose.
        known: Vectors (m, d) of items that have been seen already: the choice begins far from these.
        seed: Seed of the sample of at most 2,000 items among which they are chosen.

    >>> pile = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> sorted(place in (2, 3) for place in varied(pile, 2))  # one of either kind
    [False, True]
    """
    count = min(count, len(vectors))
    if count <= 0:
        return []
    places = np.arange(len(vectors))
    if len(places) > SAMPLE:
        places = np.sort(np.random.default_rng(seed).choice(places, SAMPLE, replace=False))
    rows = unit(vectors[places])
    centre = rows.mean(0)
    rows = unit(rows - centre)
    if len(rows) > 2 * count:
        near = np.sort(rows @ rows.T, axis=1)[:, -NEIGHBOURS - 1 : -1].mean(1)
        typical = near >= np.quantile(near, UNTYPICAL)
        places, rows = places[typical], rows[typical]
    if known is None or not len(known):
        chosen = [int((rows @ rows.mean(0)).argmax())]
        distance = 1 - rows @ rows[chosen[0]]
    else:
        chosen = []
        distance = 1 - (rows @ unit(unit(known) - centre).T).max(1)
    while len(chosen) < count:
        distance[chosen] = -np.inf
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, 1 - rows @ rows[chosen[-1]])
    return [int(place) for place in places[chosen]]


def teach_most(
    vectors: NDArray[Any],
    answers: Answers,
    count: int,
    *,
    rows: NDArray[np.intp] | None = None,
    known: NDArray[Any] | None = None,
) -> list[int]:
    """Choose the items whose labels teach most: near to many uncertain items that no labelled example is near to.

    With s_ij the cosine of two items around the centre, 0 where it is negative, and u_j the probability that the answer
    for item j is wrong, the chosen items A make sum_j u_j max(0, max_{i in A} s_ij - c_j) large, with c_j the largest s
    of item j and a labelled example: facility location, weighted by what is expected to be wrong. While labels are
    few, this covers the pile; later, hardly an item is nearer to another one than a label is, and u alone decides. One
    item after the other is chosen, each where the sum grows most, which gives at least 63 % of the largest sum
    (Nemhauser, Wolsey & Fisher 1978).

    Args:
        vectors: The pile (m, d).
        answers: The answers for n items of it.
        count: How many to choose.
        rows: Where these items are in the pile (n,). Default: all, in order.
        known: Vectors (l, d) of labelled examples. Default: none.
    """
    rows = np.arange(len(vectors)) if rows is None else rows
    pool = np.argsort(answers.probability, kind="stable")
    if len(pool) <= count:
        return [int(place) for place in pool]
    weights = np.ones(min(len(pool), 2 * POOL), dtype=np.float32)
    if len(pool) > 2 * POOL:  # a sample stands for the surer items
        weights[POOL:] = (len(pool) - POOL) / POOL
        pool = np.concatenate([pool[:POOL], np.random.default_rng(0).choice(pool[POOL:], POOL, replace=False)])
    weights *= (1 - answers.probability[pool]).astype(np.float32)
    points = unit(vectors[rows[pool]])
    centre = points.mean(0)
    points = unit(points - centre)
    alike = np.maximum(points @ points.T, 0.0)
    covered = np.zeros(len(pool), dtype=np.float32)
    if known is not None and len(known):
        some = known if len(known) <= SAMPLE else np.random.default_rng(0).choice(known, SAMPLE, replace=False)
        covered = np.maximum(points @ unit(unit(some) - centre).T, 0.0).max(1)
    chosen: list[int] = []
    for _ in range(count):
        gain = np.maximum(alike - covered, 0.0) @ weights
        gain[chosen] = -1.0
        chosen.append(int(gain.argmax()))
        covered = np.maximum(covered, alike[chosen[-1]])
    return [int(place) for place in pool[chosen]]


class Group(NamedTuple):
    """Items that are thought to be of one class."""

    place: int  # of the class
    items: list[int]


def groups(answers: Answers, count: int, examples: Sequence[int], *, least: float = 0.0) -> list[Group]:
    """Choose groups of items to be confirmed in one click each: the surest of a class.

    By their probabilities, all are expected to be right: half a wrong item in a group at most. The groups that give
    most labels for a click come first.

    Args:
        answers: The answers.
        count: How many groups.
        examples: Number of labelled examples of each class.
        least: How many labels a click must be expected to correct: those of wrong items, of all clicks on the group.
    """
    best, probability = answers.best, answers.probability
    likely = (probability >= GROUP_FROM) & ~np.asarray(answers.reject, dtype=bool)
    ranked = []
    for place in range(len(answers.classes)):
        rows = np.flatnonzero((best == place) & likely)
        rows = rows[np.argsort(-probability[rows], kind="stable")][:GROUP]
        wrong = np.cumsum(1 - probability[rows])
        rows = rows[wrong <= GROUP_WRONG]
        if len(rows) < SMALLEST_GROUP or (least > 0 and examples[place] < GROUP_EXAMPLES):
            continue
        clicks = 1 + float(wrong[len(rows) - 1])
        if 1 - 1 / clicks >= least:
            ranked.append((len(rows) / (clicks * np.sqrt(1 + examples[place])), Group(place, rows.tolist())))
    return [group for _, group in sorted(ranked, key=lambda pair: -pair[0])[:count]]


def most_common_pair(answers: Answers, items: Sequence[int]) -> list[int]:
    """Find the items, of some, that lie between the two classes which most of them lie between.

    Args:
        answers: The answers.
        items: Places of the items.
    """
    rows = np.asarray(items, dtype=int)
    if not len(rows) or len(answers.classes) < 3:
        return []
    two = np.sort(np.argsort(-answers.probabilities[rows], axis=1, kind="stable")[:, :2], axis=1)
    _, codes, counts = np.unique(two, axis=0, return_inverse=True, return_counts=True)
    chosen: list[int] = rows[codes.ravel() == counts.argmax()].tolist()
    return chosen


def strangest(answers: Answers, count: int) -> list[int]:
    """Choose the items that look least like any class, of those that are rejected."""
    rows = np.flatnonzero(np.asarray(answers.reject, dtype=bool))
    chosen: list[int] = rows[np.argsort(-answers.novelty[rows], kind="stable")][:count].tolist()
    return chosen


class ScreenSection(NamedTuple):
    """Items that are shown together, and why."""

    kind: str  # single, pair, strange or group
    items: list[int]  # places among the answers
    classes: tuple[str, ...] = ()  # two of a pair, one of a group


def next_screen(
    vectors: NDArray[Any],
    rows: NDArray[np.intp],
    answers: Answers,
    examples: Sequence[int],
    known: NDArray[Any] | None = None,
) -> list[ScreenSection]:
    """Choose what a person is asked next: mostly single items that teach, a few strange ones, and groups to confirm.

    A click on a group gives many labels, but of items that the method knew already. A group is shown if a click on it
    is expected to correct as much as one on the surest of the single items: a single one is wrong by one minus its
    probability, and a group takes one click, and one for each wrong item.

    Args:
        vectors: The pile (m, d).
        rows: Where the items that may be shown are in it (n,).
        answers: The answers for them.
        examples: Number of labelled examples of each class.
        known: Their vectors (l, d).
    """
    if not len(answers):
        return []
    unsure = np.flatnonzero(answers.margin < SURE)
    chosen = teach_most(vectors, part(answers, unsure), TEACHING, rows=rows[unsure], known=known)
    teaching = [int(unsure[place]) for place in chosen]
    strange = [place for place in teaching if answers.reject[place]]
    if answers.reject.mean() > REJECTED:
        strange += [place for place in strangest(answers, STRANGE + len(strange)) if place not in strange][:STRANGE]
    pair = most_common_pair(answers, [place for place in teaching if place not in strange])
    pair = pair if len(pair) >= PAIR else []
    sections = [ScreenSection("single", [place for place in teaching if place not in (*pair, *strange)])]
    if pair:
        two = sorted(np.argsort(-answers.probabilities[pair[0]], kind="stable")[:2].tolist())
        sections.append(ScreenSection("pair", pair, (answers.classes[two[0]], answers.classes[two[1]])))
    sections.append(ScreenSection("strange", strange))
    gain = min((float(1 - answers.probability[place]) for place in teaching), default=0.0)
    for group in groups(answers, GROUPS, examples, least=gain):
        items = [place for place in group.items if place not in (*teaching, *strange)]
        sections.append(ScreenSection("group", items if len(items) > 1 else [], (answers.classes[group.place],)))
    return [section for section in sections if section.items]


@dataclass(frozen=True)
class Suggestion:
    """An item to label, and what it is taken for now.

    Args:
        name: Name of the item.
        row: Position of its vector in the pile, from 0.
        predicted: The most probable class.
        probability: Probability of that class.
        runner_up: The second most probable class.
        margin: How much more probable the predicted class is than the runner-up.
    """

    name: str
    row: int
    predicted: str
    probability: float
    runner_up: str
    margin: float


def next_to_label(
    model: Model | Fitted,
    pile: str | Path | Pile | NDArray[Any],
    n: int = 10,
    *,
    encoder: str | Embedder | None = None,
    device: str = "cpu",
    cache: CachePlace = "user",
) -> list[Suggestion]:
    """Choose the items of a pile whose labels would help a model most, the most helpful first.

    These are near to many uncertain items that no labelled example is near to. `likelyshot label` chooses by the same
    rule.

    Args:
        model: A model, or what `fit` returned.
        pile: A folder, an image, a table, a features file, or vectors (n, d).
        n: How many items.
        encoder: The encoder of a model that was fitted on vectors.
        device: Where the encoder runs.
        cache: Where vectors are cached: a folder, "user" for the user's cache folder, or None.

    >>> model = Model.fit([[9.0, 1.0], [1.0, 9.0]], ["flat", "steep"])
    >>> [suggestion.row for suggestion in next_to_label(model, np.array([[9.0, 2.0], [5.0, 5.2], [1.0, 8.0]]), 1)]
    [1]
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"expected a number of items of 1 or more, but got {n!r}: try 10")
    fitted = model if isinstance(model, Fitted) else None
    plain = model.model if isinstance(model, Fitted) else model
    if isinstance(pile, np.ndarray):
        if pile.ndim != 2:
            raise InputError(f"expected vectors of shape (n, d), but got {pile.shape}: reshape them")
        usable = np.flatnonzero(scan(pile).usable)
        names, vectors = [f"row {row + 1}" for row in usable.tolist()], pile[usable]
    else:
        read = pile if isinstance(pile, Pile) else read_pile(pile)
        opened = fitted.encoder if fitted is not None else None
        if read.vectors is None and opened is None:
            opened = open_for(plain, encoder, device)
        rows = gather(read, opened, cache=cache, what="the pile")
        usable = rows.places
        names, vectors = [item.name for item in rows.items], rows.in_memory()
    if not len(vectors):
        raise InputError("nothing in the pile can be used: add other items")
    answers = answer_in_blocks(plain, vectors)
    predicted, runner_up = answers.predicted, answers.runner_up
    return [
        Suggestion(
            names[place],
            int(usable[place]),
            predicted[place],
            float(answers.probability[place]),
            runner_up[place],
            float(answers.margin[place]),
        )
        for place in teach_most(vectors, answers, n, known=plain.examples.numpy())
    ]

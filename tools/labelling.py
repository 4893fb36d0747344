"""Simulate labelling: accuracy over the number of clicks, for several ways to choose what is labelled next.

python -m tools.labelling [NAME=FEATURES[:SPLIT] ...] [--method NAME] [--rounds 12] [--seeds 5] [--figure FILE.svg]
python -m tools.labelling --time [--items 10000]

An oracle answers. Every pile has classes of very different sizes. All ways begin with one label per class, and each
round spends as many clicks as there are classes:

- random: items at random, a click each;
- least certain: the items with the smallest margin, a click each;
- our choice: what `next_to_label` gives, a click each;
- groups: one click confirms a group, and one more strikes off each wrong item, which then has no label; what is left
  of the clicks goes to our choice. This is what the page shows.

Accuracy is the share of the whole pile that is right: labelled items, and predictions for the others.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot import Features
from likelyshot.labelling import selection
from likelyshot.labelling.journal import Guess
from likelyshot.labelling.rounds import Known, Round, learn

WAYS = ("random", "least certain", "our choice", "groups")
COLOURS = ("#777777", "#e69f00", "#0072b2", "#009e73")
SMALLEST = 5  # items of a class


class Heap(NamedTuple):
    """A pile whose classes the oracle knows."""

    vectors: NDArray[np.float32]
    truth: list[str]


class Point(NamedTuple):
    """Where a simulation stands after a round."""

    clicks: int
    accuracy: float
    expected: float
    labels: int


def heap(features: Features, classes: int, items: int, seed: int) -> Heap:
    """Draw a pile: some classes, with shares drawn from a Dirichlet distribution (1), but a few items of each."""
    chance = np.random.default_rng(seed)
    labels = features.labels.numpy()
    known = np.unique(labels)
    chosen = chance.choice(known, min(classes, len(known)), replace=False)
    shares = chance.dirichlet([1.0] * len(chosen))
    rows: list[int] = []
    for label, share in zip(chosen, shares, strict=True):
        own = np.flatnonzero(labels == label)
        count = int(np.clip(round(share * items), SMALLEST, len(own)))
        rows += chance.choice(own, count, replace=False).tolist()
    order = chance.permutation(rows)
    return Heap(features.vectors.numpy()[order].astype(np.float32), [features.classes[labels[row]] for row in order])


def simulate(pile: Heap, way: str, method: str | None, rounds: int, seed: int) -> Iterator[Point]:
    """Label a pile in one of the ways, and say where it stands after every round."""
    chance = np.random.default_rng(seed)
    names = sorted(set(pile.truth))
    labels: dict[int, str] = {}
    refused: dict[int, str] = {}
    guesses: list[Guess] = []
    for name in names:
        own = [row for row, true in enumerate(pile.truth) if true == name]
        labels[int(chance.choice(own))] = name
    clicks = len(names)
    for _ in range(rounds + 1):
        rows = sorted(labels)
        left = np.setdiff1d(np.arange(len(pile.truth)), rows)
        known = Known(pile.vectors[rows], [labels[row] for row in rows], [""] * len(rows), rows, refused)
        found = learn(pile.vectors, left, known, method=method, labelled=len(rows), guesses=guesses, seed=seed)
        right = sum(pile.truth[n] == guess for n, guess in zip(left.tolist(), found.answers.predicted, strict=True))
        yield Point(clicks, (len(rows) + right) / len(pile.truth), found.accuracy, len(rows))
        budget = len(names)
        clicks += budget
        if way == "groups":
            budget = confirm(pile, found, labels, refused, budget)
        open_rows = np.array([place for place, n in enumerate(left.tolist()) if n not in labels], dtype=int)
        for place in singles(pile, found, open_rows, way, budget, chance):
            labels[int(left[place])] = pile.truth[int(left[place])]
        said = [n in labels or n in refused for n in left.tolist()]
        for place in np.flatnonzero(said).tolist():  # what was guessed of the items that now have an answer
            right_one = found.answers.predicted[place] == pile.truth[int(left[place])]
            guesses.append(Guess(float(found.answers.probability[place]), right_one))


def singles(
    pile: Heap, found: Round, rows: NDArray[np.intp], way: str, count: int, chance: np.random.Generator
) -> list[int]:
    """Choose single items, as places among the open ones."""
    if not len(rows) or count <= 0:
        return []
    if way == "random":
        return [int(place) for place in chance.choice(rows, min(count, len(rows)), replace=False)]
    answers = part(found, rows)
    if way == "least certain":
        return [int(rows[place]) for place in np.argsort(answers.margin, kind="stable")[:count]]
    chosen = selection.teach_most(pile.vectors[found.open[rows]], answers, count)
    return [int(rows[place]) for place in chosen]


def part(found: Round, rows: NDArray[np.intp]) -> selection.Answers:
    """Give the answers for some of the open items."""
    one = found.answers
    return selection.Answers(
        [""] * len(rows), one.classes, one.probabilities[rows], one.reject[rows], one.novelty[rows]
    )


def confirm(pile: Heap, found: Round, labels: dict[int, str], refused: dict[int, str], budget: int) -> int:
    """Confirm groups with about a quarter of the clicks, and give what is left of all."""
    names = list(found.answers.classes)
    examples = [sum(label == name for label in labels.values()) for name in names]
    spent = 0
    for group in selection.groups(found.answers, len(names), examples=examples):
        if spent >= budget / 4:
            break
        numbers = [int(found.open[place]) for place in group.items]
        wrong = [number for number in numbers if pile.truth[number] != names[group.place]]
        if spent + 1 + len(wrong) > budget:
            continue
        spent += 1 + len(wrong)
        for number in numbers:
            if number in wrong:
                refused[number] = names[group.place]
            else:
                labels[number] = names[group.place]
    return budget - spent


def clicks_to_reach(curve: NDArray[np.float64], clicks: NDArray[np.float64], wanted: float) -> float:
    """Say after how many clicks a mean curve reaches an accuracy, between rounds by a line; NaN if it does not."""
    above = np.flatnonzero(curve >= wanted)
    if not len(above):
        return float("nan")
    place = int(above[0])
    if place == 0:
        return float(clicks[0])
    low, high = curve[place - 1], curve[place]
    return float(clicks[place - 1] + (wanted - low) / max(high - low, 1e-12) * (clicks[place] - clicks[place - 1]))


def compare(name: str, features: Features, options: argparse.Namespace) -> dict[str, NDArray[np.float64]]:
    """Simulate all ways on some piles, print a table, and give the curves: seeds x rounds x (clicks, accuracy)."""
    curves: dict[str, NDArray[np.float64]] = {}
    off: dict[str, float] = {}
    for way in options.ways:
        runs = []
        for seed in range(options.seeds):
            pile = heap(features, options.classes, options.items, seed)
            runs.append(list(simulate(pile, way, options.method, options.rounds, seed)))
            print(f"{name}: {way}, pile {seed + 1}, {len(pile.truth)} items", file=sys.stderr, flush=True)
        curves[way] = np.array([[(point.clicks, point.accuracy) for point in run] for run in runs])
        off[way] = float(np.mean([abs(point.accuracy - point.expected) for run in runs for point in run[1:]]))
    shown = [place for place in (0, 1, 2, 4, 6, 8, 12, 16, 20) if place <= options.rounds]
    clicks = curves[options.ways[0]][0, :, 0]
    print(f"\n{name}: accuracy in % (± standard error over {options.seeds} piles) after so many clicks\n")
    print(
        "| | "
        + " | ".join(f"{clicks[place]:.0f}" for place in shown)
        + " | clicks for random's last | estimate off by |"
    )
    print("|---|" + "---|" * (len(shown) + 2))
    goal = float(curves["random"][:, -1, 1].mean()) if "random" in curves else float("nan")
    for way in options.ways:
        values = 100 * curves[way][:, :, 1]
        error = values.std(0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(values.shape[1])
        cells = [f"{values[:, place].mean():.1f} ± {error[place]:.1f}" for place in shown]
        reached = clicks_to_reach(curves[way][:, :, 1].mean(0), clicks, goal)
        print(f"| {way} | {' | '.join(cells)} | {reached:.0f} | {100 * off[way]:.1f} |")
    return curves


def discover(name: str, features: Features, options: argparse.Namespace) -> None:
    """Print how many classes the first screen shows, chosen at random and varied."""
    counts: dict[str, list[int]] = {"random": [], "varied": []}
    for seed in range(20):
        pile = heap(features, options.classes, options.items, seed)
        drawn = np.random.default_rng(seed).choice(len(pile.truth), 24, replace=False).tolist()
        for way, rows in (("random", drawn), ("varied", selection.varied(pile.vectors, 24, seed=seed))):
            counts[way].append(len({pile.truth[row] for row in rows}))
    of = len(set(heap(features, options.classes, options.items, 0).truth))
    means = ", ".join(f"{way} {np.mean(found):.1f}" for way, found in counts.items())
    print(f"\n{name}: of {of} classes, those among the first 24 items (mean of 20 piles): {means}")


def measure(options: argparse.Namespace) -> None:
    """Print how long a round takes on a large pile."""
    chance = np.random.default_rng(0)
    centres = chance.exponential(1.0, (options.classes, 1280)).astype(np.float32)
    truth = chance.integers(0, options.classes, options.items)
    vectors = (centres[truth] * chance.exponential(1.0, (options.items, 1280))).astype(np.float32)
    for each in (1, 5):
        rows = [row for k in range(options.classes) for row in np.flatnonzero(truth == k)[:each].tolist()]
        known = Known(vectors[rows], [str(truth[row]) for row in rows], [""] * len(rows), rows, {})
        left = np.setdiff1d(np.arange(len(vectors)), rows)
        seconds, cpu = [], []
        for _ in range(3):
            began, used = time.perf_counter(), time.process_time()
            found = learn(vectors, left, known, method=options.method, labelled=len(rows))
            selection.teach_most(vectors[left], found.answers, 10)
            selection.groups(found.answers, 2)
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
        what = f"{options.items:,} items of 1,280 numbers, {options.classes} classes, {each} labels per class"
        print(f"{what}: {found.method}, {min(seconds):.2f} s a round, {min(cpu):.2f} s of one core (best of 3)")


def draw(results: dict[str, dict[str, NDArray[np.float64]]], path: Path, method: str) -> None:
    """Draw accuracy over clicks, one picture for each kind of pile."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "likelyshot"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for axis, (name, curves) in zip(axes[0], results.items(), strict=True):
        for (way, runs), colour in zip(curves.items(), COLOURS, strict=False):
            mean = 100 * runs[:, :, 1].mean(0)
            error = 100 * runs[:, :, 1].std(0, ddof=1) / len(runs) ** 0.5
            axis.plot(runs[0, :, 0], mean, color=colour, label=way, marker="o", markersize=3)
            axis.fill_between(runs[0, :, 0], mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        axis.set_title(name)
        axis.set_xlabel("clicks")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel(f"pile right, % ({method})")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", help="NAME=FILE or NAME=FILE:SPLIT")
    parser.add_argument("--method", default=None)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    if options.time:
        measure(options)
        return
    results = {}
    for given in options.features:
        name, _, place = given.partition("=")
        path, _, split = place.partition(":")
        features = Features.load(path, split=split or None)
        discover(name, features, options)
        results[name] = compare(name, features, options)
    if options.figure is not None:
        draw(results, options.figure, options.method or "default method")


if __name__ == "__main__":
    main()

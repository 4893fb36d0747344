"""Simulate labelling: accuracy over the number of clicks, for several ways to choose what is labelled next.

python -m tools.labelling [NAME=FEATURES[:SPLIT] ...] [--method NAME] [--rounds 12] [--seeds 5] [--figure FILE.svg]
python -m tools.labelling --time [--items 10000] [--repeats 3]

An oracle answers. Every pile has classes of very different sizes. All ways begin with one label per class, and each
round spends as many clicks as there are classes:

- random: items at random, a click each;
- least certain: the items with the smallest margin, a click each;
- our choice: what `next_to_label` gives, a click each;
- groups: screens as the page shows them, answered from top to bottom: our choice, strange items, and groups, which
  cost one click and one more for each wrong item, which is struck off and has no label then.

Accuracy is the share of the whole pile that is right: labelled items, and predictions for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from likelyshot import Features, label
from likelyshot.labelling import Labelling, selection
from likelyshot.labelling.desk import DOUBT_EVERY, DOUBTFUL, VARIED
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

    clicks: float
    accuracy: float
    expected: float
    low: float
    high: float
    labels: int


def heap(features: Features, classes: int, items: int, seed: int) -> Heap:
    """Draw a pile: some classes, with shares drawn from a Dirichlet distribution (1), but a few items of each."""
    chance = np.random.default_rng(seed)
    labels = features.labels.numpy()
    known = np.unique(labels)
    chosen = chance.choice(known, min(classes, len(known)), replace=False)
    shares = chance.dirichlet([1.0] * len(chosen))
    rows: list[int] = []
    for number, share in zip(chosen, shares, strict=True):
        members = np.flatnonzero(labels == number)
        count = int(np.clip(round(share * items), SMALLEST, len(members)))
        rows += chance.choice(members, count, replace=False).tolist()
    order = chance.permutation(rows)
    return Heap(features.vectors.numpy()[order].astype(np.float32), [features.classes[labels[row]] for row in order])


def simulate(pile: Heap, way: str, method: str | None, rounds: int, seed: int) -> list[Point]:
    """Label a pile in one of the ways, and say where it stands after every round, of as many clicks as classes."""
    ends = len(set(pile.truth)) * np.arange(1, rounds + 2)
    points = []
    for point in steps(pile, way, method, seed):
        points.append(point)
        if point.clicks >= ends[-1]:
            break
    if way != "groups":
        return points
    clicks, *values = np.array(points).T  # its screens end between the rounds of the others
    return [Point(*row) for row in np.stack([ends, *(np.interp(ends, clicks, value) for value in values)], 1)]


def steps(pile: Heap, way: str, method: str | None, seed: int) -> Iterator[Point]:
    """Label a pile in one of the ways, and say where it stands after every classification."""
    chance = np.random.default_rng(seed)
    names = sorted(set(pile.truth))
    labels: dict[int, str] = {}
    refused: dict[int, str] = {}
    guesses: list[Guess] = []
    checked: set[int] = set()
    screens = 0
    for name in names:
        members = [row for row, true in enumerate(pile.truth) if true == name]
        labels[int(chance.choice(members))] = name
    clicks = len(names)
    while True:
        rows = sorted(labels)
        left = np.setdiff1d(np.arange(len(pile.truth)), rows)
        known = Known(pile.vectors[rows], [labels[row] for row in rows], [""] * len(rows), rows, refused)
        latest = learn(pile.vectors, left, known, method=method, guesses=guesses, seed=seed)
        predicted = latest.answers.predicted
        right = sum(pile.truth[n] == guess for n, guess in zip(left.tolist(), predicted, strict=True))
        yield Point(clicks, (len(rows) + right) / len(pile.truth), latest.accuracy, *latest.interval, len(rows))
        if not len(left):  # and so it stays
            clicks += 10**6
        elif way == "groups":
            clicks += one_screen(pile, latest, labels, refused, checked if screens % DOUBT_EVERY == 0 else None)
            screens += 1
        else:
            clicks += len(names)
            for place in singles(pile, latest, known.vectors, way, len(names), chance):
                labels[int(left[place])] = pile.truth[int(left[place])]
        for place, n in enumerate(left.tolist()):  # what was guessed of the items that now have an answer
            if n in labels or refused.get(n) == predicted[place]:
                guesses.append(Guess(float(latest.answers.probability[place]), predicted[place] == pile.truth[n]))


def singles(
    pile: Heap, latest: Round, known: NDArray[np.float32], way: str, count: int, chance: np.random.Generator
) -> list[int]:
    """Choose single items, as places among the open ones."""
    if way == "random":
        return [int(place) for place in chance.choice(len(latest.open), min(count, len(latest.open)), replace=False)]
    if way == "least certain":
        return [int(place) for place in np.argsort(latest.answers.margin, kind="stable")[:count]]
    return selection.teach_most(pile.vectors, latest.answers, count, rows=latest.open, known=known)


def one_screen(
    pile: Heap, latest: Round, labels: dict[int, str], refused: dict[int, str], checked: set[int] | None
) -> int:
    """Answer everything on the screen that the page shows after a round, and count the clicks.

    Labels that look wrong are `checked` where the page would ask for them; the oracle says in one click that they hold.
    """
    clicks = 0
    if checked is not None:
        doubtful = [n for doubt in latest.expectation.doubtful if (n := latest.numbers[doubt.row]) not in checked]
        checked.update(doubtful[:DOUBTFUL])
        clicks += bool(doubtful)
    examples = [sum(label == name for label in labels.values()) for name in latest.answers.classes]
    sections = selection.next_screen(pile.vectors, latest.open, latest.answers, examples, pile.vectors[sorted(labels)])
    if not sections and not clicks:  # nothing is unsure, and no class has a group
        sections = [selection.ScreenSection("single", list(range(min(len(latest.open), VARIED))))]
    for kind, places, names in sections:
        numbers = latest.open[places].tolist()
        if kind != "group":
            clicks += len(numbers)
            labels.update({number: pile.truth[number] for number in numbers})
            continue
        wrong = [number for number in numbers if pile.truth[number] != names[0]]
        clicks += 1 + len(wrong)
        refused.update(dict.fromkeys(wrong, names[0]))
        labels.update({number: names[0] for number in numbers if number not in wrong})
    return max(clicks, 1)


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
    """Simulate all ways on some piles, print tables, and give the curves: seeds x rounds x fields of a point."""
    curves: dict[str, NDArray[np.float64]] = {}
    for way in options.ways:
        runs = []
        for seed in range(options.first, options.first + options.seeds):
            file = None if options.kept is None else options.kept / f"{name}-{way}-{options.rounds}-{seed}.npy"
            if file is not None and file.exists():
                runs.append(np.load(file))
                continue
            pile = heap(features, options.classes, options.items, seed)
            runs.append(np.array(simulate(pile, way, options.method, options.rounds, seed), dtype=float))
            print(f"{name}: {way}, pile {seed + 1}, {len(pile.truth)} items", file=sys.stderr, flush=True)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                np.save(file, runs[-1])
        curves[way] = np.array(runs)
    shown = [place for place in (0, 1, 2, 4, 6, 8, 12, 16, 20) if place <= options.rounds]
    clicks = curves[options.ways[0]][0, :, 0]
    header = " | ".join(f"{clicks[place]:.0f}" for place in shown)
    goal = float(curves["random"][:, -1, 1].mean()) if "random" in curves else float("nan")
    print(f"\n{name}: accuracy in % (± standard error over {options.seeds} piles) after so many clicks\n")
    print(f"| | {header} | clicks for random's last |\n|---|" + "---|" * (len(shown) + 1))
    for way in options.ways:
        values = 100 * curves[way][:, :, 1]
        error = values.std(0, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.zeros(values.shape[1])
        cells = [f"{values[:, place].mean():.1f} ± {error[place]:.1f}" for place in shown]
        reached = clicks_to_reach(curves[way][:, :, 1].mean(0), clicks, goal)
        print(f"| {way} | {' | '.join(cells)} | {reached:.0f} |")
    print(f"\n{name}: accuracy to expect, and true accuracy, in %, after so many clicks\n")
    print(f"| | {header} | off by, rounds 1 to 6 | interval held |\n|---|" + "---|" * (len(shown) + 2))
    for way in options.ways:
        _, true, expected, low, high, _ = np.moveaxis(curves[way], 2, 0)
        cells = [f"{100 * expected[:, place].mean():.0f}, {100 * true[:, place].mean():.0f}" for place in shown]
        off = f"{100 * np.abs(expected - true)[:, 1:7].mean():.1f}"
        print(f"| {way} | {' | '.join(cells)} | {off} | {100 * ((low <= true) & (true <= high)).mean():.0f} % |")
    return curves


def discover(name: str, features: Features, options: argparse.Namespace) -> None:
    """Print how many classes the first screen shows, chosen at random and varied."""
    counts: dict[str, list[int]] = {"random": [], "varied": []}
    for seed in range(20):
        pile = heap(features, options.classes, options.items, seed)
        random = np.random.default_rng(seed).choice(len(pile.truth), 24, replace=False).tolist()
        for way, rows in (("random", random), ("varied", selection.varied(pile.vectors, 24, seed=seed))):
            counts[way].append(len({pile.truth[row] for row in rows}))
    of = len(set(heap(features, options.classes, options.items, 0).truth))
    means = ", ".join(f"{way} {np.mean(numbers):.1f}" for way, numbers in counts.items())
    print(f"\n{name}: of {of} classes, those among the first 24 items (mean of 20 piles): {means}")


class Person:
    """Somebody who uses the page, over HTTP.

    Args:
        address: Of the page.
    """

    def __init__(self, address: str) -> None:
        self._parts, self._clicks = urlsplit(address), 0

    def get(self, path: str) -> Any:
        """Ask for something."""
        return self._ask("GET", path)

    def give(self, items: dict[int, str]) -> float:
        """Label items in one click, and say how many seconds that took."""
        self._clicks += 1
        changes = [[item, "label", name] for item, name in items.items()]
        began = time.perf_counter()
        self._ask("POST", "act", {"do": "set", "click": f"click {self._clicks}", "changes": changes})
        return time.perf_counter() - began

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(str(self._parts.hostname), self._parts.port, timeout=600)
        with contextlib.closing(connection):
            sent = None if body is None else json.dumps(body)
            connection.request(method, self._parts.path + path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"the page answered {answer.status}: {data[:200]!r}")
        return json.loads(data)


def measure(options: argparse.Namespace) -> None:
    """Print how long a page of a large pile takes: for a screen, for all items, and for a click meanwhile."""
    chance = np.random.default_rng(0)
    centres = chance.standard_exponential((options.classes, 1280), dtype=np.float32)
    truth = chance.integers(0, options.classes, options.items)
    with tempfile.TemporaryDirectory() as folder:
        pile = Path(folder, "pile.npy")
        stored = np.lib.format.open_memmap(pile, "w+", np.float32, (options.items, 1280))
        for some in np.array_split(np.arange(options.items), max(1, options.items // 1000)):
            stored[some] = centres[truth[some]] * chance.standard_exponential((len(some), 1280), dtype=np.float32)
        del stored
        print(f"{options.items:,} items of 1,280 numbers, {options.classes} classes:", flush=True)
        names = [f"class {number}" for number in range(options.classes)]
        began = time.perf_counter()
        page = label(pile, classes=names, output=Path(folder, "labels.csv"), browser=False, cache=None)
        print(f"page started in {time.perf_counter() - began:.2f} s", flush=True)
        try:
            use(page, truth, names, options.repeats)
        finally:
            page.stop()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory: {most:.1f} GB, of which the vectors are {options.items * 1280 * 4 / 2**30:.1f} GB")


def use(page: Labelling, truth: NDArray[np.int64], names: list[str], repeats: int) -> None:
    """Label items, and print how long that and the rounds after it take."""
    person = Person(page.address)
    began, used = time.perf_counter(), time.process_time()
    person.get("screen")
    print(
        f"first screen: {time.perf_counter() - began:.2f} s, {time.process_time() - used:.2f} s of one core", flush=True
    )
    waiting = [np.flatnonzero(truth == number).tolist()[::-1] for number in range(len(names))]
    for each in (1, 5):
        have = 0 if each == 1 else 1
        person.give({rows.pop(): name for rows, name in zip(waiting, names, strict=True) for _ in range(each - have)})
        screens, wholes, cores = [], [], []
        for repeat in range(repeats):
            if repeat:
                person.give({waiting[0].pop(): names[0]})
            began, used = time.perf_counter(), time.process_time()
            person.get("screen")
            screens.append(time.perf_counter() - began)
            page.desk.wait(600, whole=True)
            wholes.append(time.perf_counter() - began)
            cores.append(time.process_time() - used)
        until = f"{min(screens):.2f} s until the next screen, {min(wholes):.2f} s until all items are classified"
        print(f"{each} labels per class: {until} ({min(cores):.2f} s of one core; best of {repeats})", flush=True)
    clicks: list[float] = []
    for _ in range(40):  # a round is under way all the time
        asking = threading.Thread(target=person.get, args=("screen",)) if len(clicks) % 10 == 0 else None
        if asking is not None:
            asking.start()
        clicks.append(person.give({waiting[0].pop(): names[0]}))
        time.sleep(0.05)
    print(f"a click while a round runs: {1000 * np.median(clicks):.0f} ms, the slowest {1000 * max(clicks):.0f} ms")


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
    parser.add_argument("--first", type=int, default=0, help="seed of the first pile")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--kept", type=Path, help="folder of finished piles: one that is there is not simulated again")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="of a round that is timed")
    options = parser.parse_args()
    if options.time:
        measure(options)
        return
    results = {}
    for option in options.features:
        name, _, place = option.partition("=")
        path, _, split = place.partition(":")
        features = Features.load(path, split=split or None)
        discover(name, features, options)
        results[name] = compare(name, features, options)
    if options.figure is not None:
        draw(results, options.figure, options.method or "default method")


if __name__ == "__main__":
    main()

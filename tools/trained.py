"""Train the head of every method that has one on frozen CUB features, choose its rate, and print the tables.

python -m tools.trained FEATURES FOLDER [--tasks 10000] [--rates 1 3] [--seeds 0 1 2] [--methods tpn sib]
    [--train-only] [--score-only]

Every run has a folder of its own, and every cell of the tables a file; a second call goes on. The epoch and the rate,
among --rates times that of the recipe, are chosen on the validation classes, the rate by the first of --seeds, and the
others train at that rate. The test classes are scored at the end: every seed has its share of the tasks, one task in
three of three seeds, so that the mean is over the seeds and over all tasks at the cost of one seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.cells import each_seed, percent, scored, shared_out

from likelyshot import Balanced, Dirichlet, Features, InputError, load_head, sample_tasks
from likelyshot.heads.starts import TRAINED
from likelyshot.methods.binding import bind, titles
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

SHOTS = (1, 5)
ALPHA = 2.0
#: Heads that look at all queries are also trained on imbalanced episodes.
IMBALANCED = ("tpn", "sib")
#: Methods without a head, with their defaults.
PLAIN = ("euclidean", "mll", "mll_transductive", "likelihood_mixture", "ridge", "svm")
#: The one head that scores 20 tasks a second, and not hundreds, has fewer tasks.
SLOW = {"meta_lstm": 10}
VALIDATION_TASKS = 300


class Row(NamedTuple):
    """A head, and the episodes that it is trained on."""

    name: str
    alpha: float = 0.0

    @property
    def key(self) -> str:
        """The name of its cells."""
        return f"{self.name}_dirichlet" if self.alpha else self.name

    @property
    def title(self) -> str:
        """The name of its row."""
        return titles()[self.name] + (", imbalanced episodes" if self.alpha else "")


def rows_of(names: Sequence[str]) -> list[Row]:
    """Give the rows of heads."""
    return [Row(name, alpha) for name in names for alpha in ((0.0, ALPHA) if name in IMBALANCED else (0.0,))]


def run_folder(folder: Path, row: Row, shots: int, rate: float, seed: int) -> Path:
    """Name the folder of a run."""
    return folder / "runs" / f"{row.key}_{shots}shot_rate{rate:g}_seed{seed}"


def train_head(features: Path, place: Path, row: Row, shots: int, rate: float, seed: int) -> None:
    """Train a head, unless it is there."""
    if (place / "summary.json").exists():
        return
    recipe = load_recipe(f"cub_frozen_{row.name}")
    tasks = VALIDATION_TASKS // SLOW.get(row.name, 1)
    changes = [f"data.features={features}", f"run.output={place}", f"run.seed={seed}", f"validate.tasks={tasks}"]
    changes += [f"finetune.head_lr={recipe.finetune.head_lr * rate}", f"finetune.alpha={row.alpha}"]
    changes += [f"finetune.shots={shots}", f"validate.shots={shots}", f"validate.alpha={row.alpha}"]
    changes += ["finetune.patience=0"]  # the whole budget for all
    try:
        train(load_recipe(f"cub_frozen_{row.name}", changes), resume=True)
    except InputError as error:
        print(f"{place.name}: {error}", flush=True)
        return
    print(f"{place.name}: {100 * validation(place):.2f} %", flush=True)
    (place / "features.safetensors").unlink()  # the vectors are those of FEATURES


def validation(place: Path) -> float:
    """Read the best validation accuracy of a run."""
    return float(json.loads((place / "summary.json").read_text())["stages"]["finetune"]["validation_accuracy"])


def best_rate(folder: Path, row: Row, shots: int, rates: Sequence[float], seed: int) -> float | None:
    """Choose the rate by the validation accuracy of a seed; None before the first run is done."""
    done = [rate for rate in rates if (run_folder(folder, row, shots, rate, seed) / "summary.json").exists()]
    return max(done, key=lambda rate: validation(run_folder(folder, row, shots, rate, seed)), default=None)


def train_all(features: Path, folder: Path, rows: Sequence[Row], rates: Sequence[float], seeds: Sequence[int]) -> None:
    """Train what is not there yet: the first seed at every rate, then the others at the best."""
    for rate in rates:
        for row in rows:
            for shots in SHOTS:
                train_head(features, run_folder(folder, row, shots, rate, seeds[0]), row, shots, rate, seeds[0])
    for seed in seeds[1:]:
        for row in rows:
            for shots in SHOTS:
                if (best := best_rate(folder, row, shots, rates, seeds[0])) is not None:
                    train_head(features, run_folder(folder, row, shots, best, seed), row, shots, best, seed)


def print_validation(folder: Path, rows: Sequence[Row], rates: Sequence[float], seeds: Sequence[int]) -> None:
    """Print the validation accuracy of every rate of the first seed, and of the other seeds at the best rate."""
    heads = [f"{shots}-shot, rate x {rate:g}" for shots in SHOTS for rate in rates]
    print(f"| validation classes, seed {seeds[0]} | " + " | ".join(heads) + " |")
    print("|---" * (1 + len(heads)) + "|")
    for row in rows:
        cells = []
        for shots in SHOTS:
            best = best_rate(folder, row, shots, rates, seeds[0])
            for rate in rates:
                place = run_folder(folder, row, shots, rate, seeds[0])
                text = f"{100 * validation(place):.2f}" if (place / "summary.json").exists() else ""
                cells.append(f"**{text}**" if rate == best else text)
        print(f"| {row.title} | " + " | ".join(cells) + " |")


def tables(
    features: Path, folder: Path, n_tasks: int, rows: Sequence[Row], rates: Sequence[float], seeds: Sequence[int]
) -> None:
    """Score the test classes, and print a table for every number of shots.

    "Seeds" has the difference to Euclidean of each seed, on its share of the tasks.
    """
    test = Features.load(features, split="test")
    cells = folder / "cells"
    plans: dict[str, Balanced | Dirichlet] = {"balanced": Balanced(15), "Dirichlet(2)": Dirichlet(75, ALPHA)}
    titled = {name: titles()[name] for name in PLAIN} | {row.key: row.title for row in rows}
    for shots in SHOTS:
        print(f"\n{shots}-shot, {n_tasks:,} tasks, {len(seeds)} seeds\n")
        lines: dict[str, list[str]] = {name: [] for name in titled}
        for title, plan in plans.items():
            tail = f"{shots}shot_{'dirichlet' if title != 'balanced' else 'balanced'}"
            tasks = sample_tasks(test.labels, n_tasks=n_tasks, shots=shots, query=plan, seed=0)
            known = {
                name: scored(bind(name, {}), test, cells / f"{name}_{tail}.json", tasks).accuracy for name in PLAIN
            }
            for row in rows:
                rate = best_rate(folder, row, shots, rates, seeds[0])
                if rate is None:
                    continue
                done = {seed: run_folder(folder, row, shots, rate, seed) for seed in seeds}
                done = {seed: place for seed, place in done.items() if (place / "summary.json").exists()}
                files = [cells / f"{row.key}_{tail}_seed{seed}of{len(done)}.json" for seed in done]
                count = n_tasks // SLOW.get(row.name, 1)
                methods = [
                    bind(row.name, {}, {"head": load_head(place / "best.safetensors")}) for place in done.values()
                ]
                known[row.key] = shared_out(methods, [test] * len(done), files, tasks[:count])
                print(f"{row.key} {tail}: {percent(known[row.key])}", file=sys.stderr, flush=True)
            for key, accuracy in known.items():
                gains = accuracy - known["euclidean"][: len(accuracy)]
                lines[key] += [
                    percent(accuracy) + ("" if len(accuracy) == n_tasks else f" ({len(accuracy):,} tasks)"),
                    "" if key == "mll" else percent(accuracy - known["mll"][: len(accuracy)], "+"),
                    "" if key == "euclidean" else percent(gains, "+"),
                ]
                if len(seeds) > 1:
                    lines[key].append("" if key in PLAIN else each_seed(gains, len(seeds)))
        spread = " seeds |" if len(seeds) > 1 else ""
        print("| 5 ways, test classes |", *(f"{title} | minus MLL | minus Euclidean |{spread}" for title in plans))
        print("|---" * (1 + (3 + bool(spread)) * len(plans)) + "|")
        for key, line in lines.items():
            if line:
                print(f"| {titled[key]} | " + " | ".join(line) + " |", flush=True)


def main() -> None:
    """Train, choose, score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(TRAINED))
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--score-only", action="store_true", help="score the heads that are there")
    arguments = parser.parse_args()
    features, folder, rates, seeds = arguments.features, arguments.folder, arguments.rates, arguments.seeds
    rows = rows_of(arguments.methods)
    if not arguments.score_only:
        train_all(features, folder, rows, rates, seeds)
    if not arguments.train_only:
        print_validation(folder, rows, rates, seeds)
        tables(features, folder, arguments.tasks, rows, rates, seeds)


if __name__ == "__main__":
    main()

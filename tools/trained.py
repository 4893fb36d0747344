"""Train the head of every method that has one on frozen CUB features, choose its rate, and print the tables.

python tools/trained.py FEATURES FOLDER [--tasks 10000] [--rates 1 3] [--train-only] [--score-only]

Every run has a folder of its own, and every cell of the tables a file; a second call goes on. The epoch, the rate among
--rates times that of the recipe, and the parameters of methods without a head are chosen on the validation classes; the
test classes are scored at the end.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from likelyshot import Balanced, Dirichlet, Features, InputError, Result, evaluate, load_head, sample_tasks
from likelyshot.evaluation.evaluate import describe
from likelyshot.heads.starts import STARTS
from likelyshot.methods.binding import bind, titles
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

SHOTS = (1, 5)
ALPHA = 2.0
#: Heads that look at all queries are also trained on imbalanced episodes.
IMBALANCED = ("tpn", "sib")
#: Methods without a head, and values to choose from on the validation classes; none: the defaults.
PLAIN: dict[str, dict[str, tuple[float, ...]]] = {
    "euclidean": {},
    "mll": {},
    "mll_transductive": {},
    "ridge": {},
    "svm": {},
}
VALIDATION_TASKS = 500


def run_folder(folder: Path, name: str, shots: int, rate: float, alpha: float) -> Path:
    """Name the folder of a run."""
    return folder / "runs" / f"{name}_{shots}shot_rate{rate:g}{'_dirichlet' if alpha else ''}"


def train_all(features: Path, folder: Path, rates: list[float]) -> None:
    """Train what is not there yet: first every head at the rate of its recipe, then at the others."""
    plan = [
        (name, shots, rate, alpha)
        for rate in rates
        for name in STARTS
        for alpha in ((0.0, ALPHA) if name in IMBALANCED else (0.0,))
        for shots in SHOTS
    ]
    for name, shots, rate, alpha in plan:
        place = run_folder(folder, name, shots, rate, alpha)
        if (place / "summary.json").exists():
            continue
        recipe = load_recipe(f"cub_frozen_{name}")
        changes = [f"data.features={features}", f"run.output={place}", f"validate.tasks={VALIDATION_TASKS}"]
        changes += [f"finetune.head_lr={recipe.finetune.head_lr * rate}", f"finetune.alpha={alpha}"]
        changes += [f"finetune.shots={shots}", f"validate.shots={shots}", f"validate.alpha={alpha}"]
        try:
            train(load_recipe(f"cub_frozen_{name}", changes), resume=True)
        except InputError as error:
            print(f"{place.name}: {error}", flush=True)
            continue
        print(f"{place.name}: {100 * _validation(place):.2f} %", flush=True)
        (place / "features.safetensors").unlink()  # the vectors are those of FEATURES


def _validation(place: Path) -> float:
    return float(json.loads((place / "summary.json").read_text())["stages"]["finetune"]["validation_accuracy"])


def choose(features: Path, folder: Path, rates: list[float]) -> dict[tuple[str, int], tuple[str, Any]]:
    """Choose by the validation classes, and print the table: by row and shots, the method and its parameters."""
    chosen: dict[tuple[str, int], tuple[str, Any]] = {}
    validation = Features.load(features, split="val")
    print("| row | " + " | ".join(f"{shots}-shot" for shots in SHOTS) + " |")
    print("|---" * (1 + len(SHOTS)) + "|")
    for name, grid in PLAIN.items():
        cells = []
        for shots in SHOTS:
            drawn = sample_tasks(validation.labels, n_tasks=VALIDATION_TASKS, shots=shots, query=Balanced(15), seed=0)
            points = [{key: value} for key, values in grid.items() for value in values]
            if not points:
                chosen[name, shots] = (name, {})
                cells.append("defaults")
                continue
            means = [evaluate(bind(name, point), validation, drawn).mean for point in points]
            best = max(range(len(points)), key=means.__getitem__)
            chosen[name, shots] = (name, points[best])
            setting = ", ".join(f"{key} {value:g}" for key, value in points[best].items())
            cells.append(f"{100 * means[best]:.2f}{f' ({setting})' if setting else ''}")
        print(f"| {titles()[name]} | " + " | ".join(cells) + " |", flush=True)
    for name in STARTS:
        for alpha in (0.0, ALPHA) if name in IMBALANCED else (0.0,):
            row = f"{name}_dirichlet" if alpha else name
            cells = []
            for shots in SHOTS:
                places = [run_folder(folder, name, shots, rate, alpha) for rate in rates]
                done = [place for place in places if (place / "summary.json").exists()]
                if not done:
                    cells.append("not trained")
                    continue
                best_run = max(done, key=_validation)
                chosen[row, shots] = (name, {"head": load_head(best_run / "best.safetensors")})
                cells.append(
                    f"{100 * _validation(best_run):.2f} (rate x {best_run.name.partition('rate')[2].partition('_')[0]})"
                )
            print(f"| {_title(row)} | " + " | ".join(cells) + " |", flush=True)
    return chosen


def _title(row: str) -> str:
    name = row.removesuffix("_dirichlet")
    return titles()[name] + (", imbalanced episodes" if name != row else "")


def tables(features: Path, folder: Path, n_tasks: int, chosen: dict[tuple[str, int], tuple[str, Any]]) -> None:
    """Score the test classes, and print a table for every number of shots."""
    test = Features.load(features, split="test")
    rows = list(dict.fromkeys(row for row, _ in chosen))
    cells = folder / "cells"
    cells.mkdir(exist_ok=True)
    plans = {"balanced": Balanced(15), "Dirichlet(2)": Dirichlet(75, ALPHA)}
    for shots in SHOTS:
        results: dict[tuple[str, str], Result] = {}
        for title, plan in plans.items():
            drawn = sample_tasks(test.labels, n_tasks=n_tasks, shots=shots, query=plan, seed=0)
            for row in rows:
                if (row, shots) not in chosen:
                    continue
                name, params = chosen[row, shots]
                method = bind(name, {}, params) if "head" in params else bind(name, params)
                path = cells / f"{row}_{shots}shot_{'dirichlet' if plan is plans['Dirichlet(2)'] else 'balanced'}.json"
                known = Result.load(path) if path.exists() else None
                wanted = [drawn.digest, json.loads(json.dumps(describe(method)[1]))]
                if known is None or [known.config["tasks_digest"], known.config["params"]] != wanted:
                    known = evaluate(method, test, drawn)
                    known.save(path)
                results[row, title] = known
        print(f"\n{shots}-shot, {n_tasks:,} tasks\n")
        heads = [f"{title} | minus MLL | minus Euclidean" for title in plans]
        print("| 5 ways, test classes | " + " | ".join(heads) + " |")
        print("|---" * (1 + 3 * len(plans)) + "|")
        for row in rows:
            if (row, "balanced") not in results:
                continue
            line = []
            for title in plans:
                result = results[row, title]
                line.append(f"{100 * result.mean:.2f} ± {100 * result.ci95:.2f}")
                for reference in ("mll", "euclidean"):
                    line.append("" if row == reference else str(result.minus(results[reference, title])))
            print(f"| {_title(row)} | " + " | ".join(line) + " |", flush=True)


def main() -> None:
    """Train, choose, score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--score-only", action="store_true", help="score the heads that are there")
    arguments = parser.parse_args()
    features, folder, rates = arguments.features, arguments.folder, arguments.rates
    if not arguments.score_only:
        train_all(features, folder, rates)
    if not arguments.train_only:
        tables(features, folder, arguments.tasks, choose(features, folder, rates))


if __name__ == "__main__":
    main()

"""Print the accuracy of the CUB heads on the test classes, for the best head of each metric on the validation classes.

python tools/heads.py FOLDER [--raw FEATURES] [--tasks 10000]

FOLDER is what tools/tune_heads.py left: a run for every metric and point of the grid.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path

from likelyshot import Balanced, Dirichlet, Features, Result, calibrate, evaluate, sample_tasks
from likelyshot.data.results import with_interval
from likelyshot.methods import METHODS

METRICS = ("euclidean", "cosine", "mll")
LAMBDA_MAX = (20.0, 40.0, 60.0, 80.0, 100.0)


def best_run(folder: Path, metric: str) -> Path:
    """Find the run of a metric with the best validation accuracy."""
    runs = sorted(folder.glob(f"{metric}_*/summary.json"))

    def accuracy(path: Path) -> float:
        return float(json.loads(path.read_text())["stages"]["finetune"]["validation_accuracy"])

    return max(runs, key=accuracy).parent


def main() -> None:
    """Choose runs and lambda_max on validation classes, and print a table per query plan of the test classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--tasks", type=int, default=10_000)
    arguments = parser.parse_args()
    runs = {metric: best_run(arguments.folder, metric) for metric in METRICS}
    val, test = (
        {metric: Features.load(run / "features.safetensors", split=split) for metric, run in runs.items()}
        for split in ("val", "test")
    )
    print("Chosen: " + ", ".join(run.name for run in runs.values()))
    for shots in (1, 5):
        val_tasks = sample_tasks(val["mll"].labels, n_tasks=1_000, shots=shots, query=Balanced(15), seed=0)
        accuracies = {
            lambda_max: evaluate(functools.partial(METHODS["mll"], lambda_max=lambda_max), val["mll"], val_tasks).mean
            for lambda_max in LAMBDA_MAX
        }
        lambda_max = max(accuracies, key=lambda value: accuracies[value])
        calibration = calibrate([val[metric] for metric in METRICS], val_tasks, metrics=METRICS, lambda_max=lambda_max)
        mll = functools.partial(METHODS["mll"], lambda_max=lambda_max)
        transductive = functools.partial(METHODS["mll_transductive"], lambda_max=lambda_max)
        for plan in (Balanced(15), Dirichlet(75)):
            tasks = sample_tasks(test["mll"].labels, n_tasks=arguments.tasks, shots=shots, query=plan, seed=0)
            rows: dict[str, Result] = {
                "Euclidean net, Euclidean": evaluate(METHODS["euclidean"], test["euclidean"], tasks),
                "cosine net, cosine": evaluate(METHODS["cosine"], test["cosine"], tasks),
                "MLL net, MLL": evaluate(mll, test["mll"], tasks),
                "three nets, combined": evaluate(
                    functools.partial(METHODS["combined"], calibration=calibration),
                    [test[metric] for metric in METRICS],
                    tasks,
                ),
                "MLL net, transductive MLL": evaluate(transductive, test["mll"], tasks),
                "Euclidean net, transductive MLL": evaluate(transductive, test["euclidean"], tasks),
            }
            if arguments.raw is not None:
                raw = Features.load(arguments.raw, split="test")
                rows["raw features, Euclidean"] = evaluate(METHODS["euclidean"], raw, tasks)
                rows["raw features, transductive MLL"] = evaluate(transductive, raw, tasks)
            print(f"\n{shots}-shot, {plan.describe()}, {arguments.tasks:,} tasks, lambda_max {lambda_max:g}\n")
            print("| 5 ways, test classes | accuracy, % | minus MLL net, MLL |\n|---|---|---|")
            for name, result in rows.items():
                gap = result.minus(rows["MLL net, MLL"])
                print(f"| {name} | {with_interval(result.mean, result.ci95)} | {gap} |", flush=True)


if __name__ == "__main__":
    main()

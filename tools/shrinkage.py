"""Print what the shrinkage of MLL's prototypes does, on the packaged CUB features or others.

python -m tools.shrinkage [FEATURES] [--tasks 1000] [--split test]
"""

from __future__ import annotations

import argparse
import functools

import torch
from tools.calibration import UNEQUAL, print_table
from torch import Tensor

from likelyshot import Balanced, Dirichlet, Features, sample_tasks
from likelyshot.data.packaged import PACKAGED
from likelyshot.evaluation.evaluate import evaluate, map_chunks
from likelyshot.functional.scores import confusion_counts
from likelyshot.methods import METHODS, Method

VALUES = (0.0, 0.5, 1.0, 2.0)


def unequal(method: Method, features: Features, n_tasks: int) -> list[str]:
    """Give accuracy, and the recall of the classes with one and with thirty examples, in %."""
    tasks = sample_tasks(features.labels, n_tasks=n_tasks, shots=max(UNEQUAL), query=Balanced(10), seed=0)
    rows = torch.cat([max(UNEQUAL) * way + torch.arange(n) for way, n in enumerate(UNEQUAL)])
    labels = torch.arange(len(UNEQUAL)).repeat_interleave(torch.tensor(UNEQUAL))

    def count(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> Tensor:
        predicted = method(supports[0][:, rows], labels, queries[0], n_ways=tasks.ways).argmax(-1)
        return confusion_counts(predicted, tasks.query_labels[chunk], tasks.ways)

    total = torch.cat(map_chunks(count, [features], tasks, "cpu", None, None, None)).sum(0).double()
    recall = total.diagonal() / total.sum(1)
    return [f"{100 * float(share):.1f}" for share in (recall.mean(), recall[0], recall[-1])]


def main() -> None:
    """Print one row for every method and shrinkage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="?", default=PACKAGED)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    arguments = parser.parse_args()
    features = Features.load(arguments.features, split=arguments.split)
    plans = [(shots, plan) for shots in (1, 5) for plan in (Balanced(15), Dirichlet(75))]
    samples = [sample_tasks(features.labels, n_tasks=arguments.tasks, shots=s, query=plan, seed=0) for s, plan in plans]
    rows = []
    for name in ("mll", "mll_transductive"):
        for value in VALUES:
            method = functools.partial(METHODS[name], shrinkage=value)
            equal = [f"{100 * evaluate(method, features, tasks).mean:.2f}" for tasks in samples]
            rows.append([f"{name}, {value:g}", *equal, *unequal(method, features, arguments.tasks)])
    head = [f"{shots}-shot, {plan.describe().split(',')[0]}" for shots, plan in plans]
    shots = "/".join(map(str, UNEQUAL))
    title = f"CUB {arguments.split} classes, 5 ways, {arguments.tasks} tasks, accuracy in %"
    print_table(title, ["shrinkage", *head, f"{shots} shots", "recall of the class with 1", "with 30"], rows)


if __name__ == "__main__":
    main()

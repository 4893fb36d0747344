"""Print what the class shares of the queries do to PT-MAP and protoLP, on the packaged CUB features or others.

python tools/marginals.py [FEATURES] [--tasks 1000] [--split test]
"""

from __future__ import annotations

import argparse
import functools

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from likelyshot import Balanced, Dirichlet, Features, Tasks, sample_tasks
from likelyshot.data.packaged import PACKAGED
from likelyshot.evaluation.evaluate import map_chunks
from likelyshot.functional.scores import one_hot
from likelyshot.methods import METHODS

PLANS: tuple[Balanced | Dirichlet, ...] = (Dirichlet(alpha=1.0), Dirichlet(alpha=2.0), Dirichlet(alpha=5.0), Balanced())
MARGINALS = ("uniform", "estimated", "true")


def accuracy(features: Features, tasks: Tasks, name: str, marginals: str) -> float:
    """Give the mean accuracy in %; "true" tells the method the real class shares of the queries."""

    def correct(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> Tensor:
        truth = tasks.query_labels[chunk]
        shares = one_hot(truth, tasks.ways, torch.float64).mean(-2) if marginals == "true" else marginals
        method = functools.partial(METHODS[name], n_ways=tasks.ways, marginals=shares)
        return (method(supports[0], tasks.support_labels, queries[0]).argmax(-1) == truth).double().mean(-1)

    return 100 * float(torch.cat(map_chunks(correct, [features], tasks, "cpu", None, None, None)).mean())


def main() -> None:
    """Run every method, shot and plan, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="?", default=PACKAGED)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    arguments = parser.parse_args()
    features = Features.load(arguments.features, split=arguments.split)
    table = Table(title=f"Accuracy, %: CUB {arguments.split} classes, 5-way, 75 queries, {arguments.tasks} tasks")
    for head in ("method", "shots", "class shares"):
        table.add_column(head)
    for plan in PLANS:
        table.add_column(plan.describe().split(",")[0].replace("Dirichlet", "Dir."), justify="right")
    for name in ("pt_map", "protolp"):
        for shots in (1, 5):
            task_sets = [
                sample_tasks(features.labels, n_tasks=arguments.tasks, ways=5, shots=shots, query=plan, seed=0)
                for plan in PLANS
            ]
            for marginals in MARGINALS:
                cells = [f"{accuracy(features, tasks, name, marginals):.1f}" for tasks in task_sets]
                note = "true (oracle)" if marginals == "true" else marginals
                table.add_row(name, str(shots), note, *cells, end_section=marginals == "true")
    table.caption = "oracle: the true class shares, which no user has"
    Console().print(table)


if __name__ == "__main__":
    main()

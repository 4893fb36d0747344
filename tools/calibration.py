"""Print how far probabilities can be trusted, on the packaged CUB features or others.

python -m tools.calibration [FEATURES] [--tasks 1000] [--split test] [--shrinkage 0]
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from likelyshot import Balanced, Dirichlet, Features, Tasks, sample_tasks
from likelyshot.confidence.held_out import expect, support_temperature
from likelyshot.data.packaged import PACKAGED
from likelyshot.evaluation.evaluate import cores, fit_temperature, map_chunks
from likelyshot.functional.scores import calibration_error, probabilities
from likelyshot.methods import METHODS, Method

NAMES = ("mll", "mll_transductive")
UNEQUAL = (1, 2, 5, 10, 30)  # examples of each of five classes


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table; all columns but the first are figures."""
    lines = ["", title, "", f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    print("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]), flush=True)


def judged(method: Method, features: Features, tasks: Tasks, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Score every task's queries, and find its temperature from its own support: (t, q, k), (t,)."""

    def both(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> tuple[Tensor, Tensor]:
        support = supports[0][:, rows]
        scores = method(support, labels, queries[0], n_ways=tasks.ways)
        temperatures = [
            support_temperature(method, s, labels, tasks.ways, query=q)
            for s, q in zip(support, queries[0], strict=True)
        ]
        return scores.double(), torch.tensor(temperatures, dtype=torch.float64)

    outcomes = map_chunks(both, [features], tasks, "cpu", None, cores(), None)
    scores, temperatures = zip(*outcomes, strict=True)
    return torch.cat(scores), torch.cat(temperatures)


def figures(scores: Tensor, temperatures: Tensor, truth: Tensor, validation: float) -> list[str]:
    """Give accuracy, ECE at T = 1, with the support's temperature, with the validation's, and both temperatures."""
    scaled = scores / temperatures.view(-1, 1, 1)
    errors = [
        calibration_error(probabilities(s, t), truth) for s, t in ((scores, 1.0), (scaled, 1.0), (scores, validation))
    ]
    right = float((scores.argmax(-1) == truth).double().mean())
    middle = math.exp(float(temperatures.log().mean()))
    return [f"{100 * right:.1f}", *(f"{error:.3f}" for error in errors), f"{middle:.1f}", f"{validation:.1f}"]


def main() -> None:
    """Print the tables of docs/results/confidence.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="?", default=PACKAGED)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    parser.add_argument("--shrinkage", type=float, default=0.0)
    arguments = parser.parse_args()
    features, validation = (Features.load(arguments.features, split=split) for split in (arguments.split, "val"))
    rows = []
    for name in NAMES:
        method = functools.partial(METHODS[name], shrinkage=arguments.shrinkage)
        for shots in (1, 2, 5, 20):
            for plan in (Balanced(15), Dirichlet(75)):
                other = sample_tasks(validation.labels, n_tasks=500, shots=shots, query=plan, seed=1)
                fitted = fit_temperature(method, validation, other)
                tasks = sample_tasks(features.labels, n_tasks=arguments.tasks, shots=shots, query=plan, seed=0)
                every = torch.arange(tasks.support.shape[1])
                cells = figures(
                    *judged(method, features, tasks, tasks.support_labels, every), tasks.query_labels.long(), fitted
                )
                rows.append([f"{name}, {shots}-shot, {plan.describe().split(',')[0]}", *cells])
        shots = torch.tensor(UNEQUAL)
        tasks = sample_tasks(features.labels, n_tasks=arguments.tasks, shots=30, query=Balanced(10), seed=0)
        unequal = torch.cat([30 * way + torch.arange(n) for way, n in enumerate(UNEQUAL)])
        labels = torch.arange(len(UNEQUAL)).repeat_interleave(shots)
        cells = figures(*judged(method, features, tasks, labels, unequal), tasks.query_labels.long(), fitted)
        rows.append([f"{name}, {'/'.join(map(str, UNEQUAL))} shots, balanced", *cells[:3], "", cells[4], ""])
    head = ("5 ways", "accuracy, %", "ECE, T = 1", "ECE, auto", "ECE, validation", "T, auto", "T, validation")
    print_table(f"CUB {arguments.split} classes, {arguments.tasks} tasks", head, rows)
    if arguments.shrinkage:
        return
    rows = [expectations(features, shots, arguments.tasks) for shots in (2, 5, 20)]
    head = ("mll, 5 ways", "expected, %", "real, %", "below the interval", "above it", "flips found", "accused wrongly")
    print_table(f"Before trusting it: CUB {arguments.split} classes, {arguments.tasks} tasks", head, rows)


def expectations(features: Features, shots: int, n_tasks: int) -> list[str]:
    """Compare the expectation with what comes, and look for one flipped label in each task."""
    method, vectors = METHODS["mll"], features.vectors.float()
    tasks = sample_tasks(features.labels, n_tasks=n_tasks, shots=shots, query=Balanced(20), seed=0)
    labels, names = tasks.support_labels, [str(way) for way in range(tasks.ways)]
    generator = torch.Generator().manual_seed(0)
    sums = torch.zeros(6, dtype=torch.float64)
    for rows, queries, truth in zip(tasks.support, tasks.query, tasks.query_labels, strict=True):
        support, query = vectors[rows.long()], vectors[queries.long()]
        clean = expect(method, support, labels, names)
        real = float((method(support, labels, query, n_ways=tasks.ways).argmax(-1) == truth).double().mean())
        flipped, row = labels.clone(), int(torch.randint(len(labels), (1,), generator=generator))
        flipped[row] = (flipped[row] + int(torch.randint(1, tasks.ways, (1,), generator=generator))) % tasks.ways
        accused = {doubt.row for doubt in expect(method, support, flipped, names).doubtful}
        low, high = clean.interval
        sums += torch.tensor([clean.accuracy, real, real < low, real > high, row in accused, len(clean.doubtful)])
    expected, real, below, above, detected, alarms = (sums / n_tasks).tolist()
    shares = [100 * expected, 100 * real, 100 * below, 100 * above, 100 * detected, 100 * alarms / len(labels)]
    return [f"{shots}-shot", *(f"{share:.1f}" for share in shares[:2]), *(f"{share:.1f} %" for share in shares[2:])]


if __name__ == "__main__":
    main()

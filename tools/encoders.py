"""Compare two encoders by their features of the same images, on the same tasks.

python tools/encoders.py LITE0.safetensors LITE2.safetensors [--tasks 10000] [--mixture-tasks 2000]
"""

from __future__ import annotations

import argparse

from likelyshot import Balanced, Dirichlet, Features, evaluate, sample_tasks
from likelyshot.methods import METHODS


def main() -> None:
    """Print the accuracy of three methods with each encoder, in %, and the paired difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--mixture-tasks", type=int, default=2_000)
    arguments = parser.parse_args()
    first, second = map(Features.load, arguments.files)
    if first.classes != second.classes or first.labels.tolist() != second.labels.tolist():
        parser.error("expected the features of the same images, but got others: extract both from one folder")
    print(f"| method | queries | shots | {first.source['encoder']} | {second.source['encoder']} | difference |")
    print("|---|---|---:|---:|---:|---:|")
    for method, plan, count in (
        ("mll", Balanced(15), arguments.tasks),
        ("likelihood", Balanced(15), arguments.tasks),
        ("likelihood_mixture", Dirichlet(75, 2.0), arguments.mixture_tasks),
    ):
        for shots in (1, 5):
            tasks = sample_tasks(first.labels, n_tasks=count, ways=5, shots=shots, query=plan, seed=0)
            a, b = (evaluate(METHODS[method], features, tasks) for features in (first, second))
            print(f"| `{method}` | {plan.describe()} | {shots} | {a} | {b} | {b.minus(a)} |", flush=True)


if __name__ == "__main__":
    main()

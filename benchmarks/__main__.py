"""Speed as ratios against straightforward references, on the same inputs in the same run.

python -m benchmarks            # the table of docs/results/cub.md
python -m benchmarks --quick    # seconds; the ratios are rough
"""

from __future__ import annotations

import argparse
import functools
import platform
import sys
import time
from datetime import date
from unittest import mock

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import references
from likelyshot import Balanced, Dirichlet, Features, calibrate, evaluate, sample_tasks
from likelyshot.evaluation.evaluate import cores
from likelyshot.functional.compiled_sums import compiled_sums
from likelyshot.methods import METHODS
from likelyshot.methods.combined import combined, score_columns
from likelyshot.methods.mll_transductive import ClassSums

WAYS, SHOTS, QUERIES, DIM = 5, 1, 75, 512


def seconds(function, repeats: int) -> float:
    """The best of several runs after a first one that warms up."""
    function()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return min(times)


def make(classes: int, per_class: int, seed: int) -> Features:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.rand(classes, DIM, generator=generator) ** 2
    noise = torch.empty(len(labels), DIM).exponential_(generator=generator)
    return Features.from_arrays(centres[labels] * noise, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tasks and repeats")
    quick = parser.parse_args().quick
    repeats, n_tasks, n_reference = (1, 200, 5) if quick else (5, 2_000, 50)

    features, validation = make(20, 100, 0), make(20, 100, 1)
    tasks = sample_tasks(features.labels, n_tasks=n_tasks, ways=WAYS, shots=SHOTS, query=Dirichlet(QUERIES), seed=0)
    labels = tasks.support_labels
    calibration_tasks = sample_tasks(validation.labels, n_tasks=200, ways=WAYS, shots=5, query=Balanced(15), seed=0)
    rows = []
    mll, mll_transductive = (  # with the bound of the references
        functools.partial(METHODS[name], lambda_max=40.0) for name in ("mll", "mll_transductive")
    )

    def measure(what, reference, ours, unit, n_ref, n_ours, goal=None):
        slow, fast = seconds(reference, repeats) / n_ref, seconds(ours, repeats) / n_ours
        aim = f"{goal} x" if goal else "-"
        rows.append((what, f"{slow * 1e3:.3g}", f"{fast * 1e3:.3g}", unit, f"{slow / fast:.3g} x", aim))

    def numpy_loop(dtype):
        vectors = features.vectors.numpy().astype(dtype)
        return [
            references.mll_transductive(vectors[s], labels.numpy(), vectors[q], WAYS).argmax(-1)
            for s, q in zip(tasks.support[:n_reference].numpy(), tasks.query[:n_reference].numpy(), strict=True)
        ]

    accuracy = evaluate(mll_transductive, features, tasks).accuracy[:n_reference]
    expected = (np.stack(numpy_loop(np.float32)) == tasks.query_labels[:n_reference].numpy()).mean(-1)
    assert np.abs(accuracy - expected).mean() < 1e-2, "the reference and ours must agree"
    for dtype in (np.float32, np.float64):
        measure(
            f"transductive MLL, against a NumPy loop over tasks in {dtype.__name__}",
            functools.partial(numpy_loop, dtype),
            lambda: evaluate(mll_transductive, features, tasks),
            "task",
            n_reference,
            n_tasks,
            {"float32": 20, "float64": 15}[dtype.__name__],
        )
    if compiled_sums() is not None:
        with mock.patch.object(sys.modules[ClassSums.__module__], "compiled_sums", return_value=None):
            measure(
                "the same without numba, float32",
                functools.partial(numpy_loop, np.float32),
                lambda: evaluate(mll_transductive, features, tasks),
                "task",
                n_reference,
                n_tasks,
            )
    mixture = seconds(lambda: evaluate(METHODS["likelihood_mixture"], features, tasks), repeats) / n_tasks
    rows.append(("likelihood mixture", "-", f"{mixture * 1e3:.3g}", "task", f"{1 / mixture:,.0f} / s", "1,000 / s"))

    support, query = features.vectors[tasks.support], features.vectors[tasks.query]
    batch = min(n_tasks, 100)
    assert torch.allclose(
        references.mll_broadcast(support[:5], labels, query[:5], WAYS),
        mll(support[:5], labels, query[:5], n_ways=WAYS),
        rtol=1e-3,
    )
    measure(
        "inductive MLL, against a broadcast sum in torch",
        lambda: [
            references.mll_broadcast(support[i : i + 4], labels, query[i : i + 4], WAYS) for i in range(0, batch, 4)
        ],
        lambda: [mll(support[i : i + 4], labels, query[i : i + 4], n_ways=WAYS) for i in range(0, batch, 4)],
        "task",
        batch,
        batch,
    )

    calibration = calibrate(validation, calibration_tasks, lambda_max=40.0)
    five = sample_tasks(features.labels, n_tasks=n_tasks, ways=WAYS, shots=5, query=Dirichlet(QUERIES), seed=0)
    one_support, one_query = features.vectors[five.support[0]], features.vectors[five.query[0]]
    make_columns = functools.partial(
        score_columns, one_support, five.support_labels, one_query, n_ways=WAYS, metrics=calibration.metrics,
        lambda_max=40.0, normalise=True,
    )  # fmt: skip
    index = references.youden(make_columns().numpy(), calibration)
    ours = combined(one_support, five.support_labels, one_query, n_ways=WAYS, calibration=calibration)
    assert np.abs(np.tanh(ours.numpy() / 2) - index).max() < 1e-3
    measure(
        "combined metric, against scipy.stats.multivariate_normal.cdf",
        lambda: references.youden(make_columns().numpy(), calibration),
        lambda: evaluate(functools.partial(combined, calibration=calibration), features, five),
        "task",
        1,
        n_tasks,
        300,
    )

    ids = features.labels.tolist()
    measure(
        "task sampling, against a Python loop",
        lambda: references.sample_tasks(ids, n_tasks, WAYS, SHOTS, QUERIES, 2.0, 0),
        lambda: sample_tasks(
            features.labels, n_tasks=n_tasks, ways=WAYS, shots=SHOTS, query=Dirichlet(QUERIES), seed=0
        ),
        "task",
        n_tasks,
        n_tasks,
    )

    table = Table(
        title=f"{WAYS}-way {SHOTS}-shot (combined: 5-shot), {QUERIES} queries, {DIM} features", title_justify="left"
    )
    for heading in ("what", "reference, ms", "likelyshot, ms", "per", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading in ("what", "per") else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)
    Console(width=120).print(
        f"{date.today()}, {cores()} cores, {platform.system()} {platform.machine()}, torch {torch.__version__}, "
        f"numpy {np.__version__}; best of {repeats}, references single-threaded by nature",
        highlight=False,
    )


if __name__ == "__main__":
    main()

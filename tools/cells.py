"""What tools/trained.py and tools/trained_networks.py share: cells of a table, each scored once and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from likelyshot import Features, Result, evaluate
from likelyshot.data.results import mean_ci95, with_interval
from likelyshot.data.tasks import Tasks
from likelyshot.evaluation.evaluate import describe
from likelyshot.methods import Method


def scored(method: Method, features: Features, path: Path, tasks: Tasks) -> Result:
    """Evaluate a method, unless the file has its result on these tasks and features."""
    known = Result.load(path) if path.exists() else None
    wanted = [tasks.digest, json.loads(json.dumps(describe(method)[1])), features.digest]
    if known is None or wanted != [
        known.config["tasks_digest"],
        known.config["params"],
        known.config["features"][0]["digest"],
    ]:
        known = evaluate(method, features, tasks)
        path.parent.mkdir(parents=True, exist_ok=True)
        known.save(path)
    return known


def shared_out(
    methods: Sequence[Method], features: Sequence[Features], paths: Sequence[Path], tasks: Tasks
) -> NDArray[np.float64]:
    """Give the accuracy of every task, each by the method and the features of one of the seeds in turn."""
    accuracy = np.empty(len(tasks))
    for number, (method, vectors, path) in enumerate(zip(methods, features, paths, strict=True)):
        accuracy[number :: len(methods)] = scored(method, vectors, path, tasks[number :: len(methods)]).accuracy
    return accuracy


def percent(values: NDArray[np.float64], sign: str = "") -> str:
    """Write the mean and its 95 % interval, in %."""
    return with_interval(*mean_ci95(values), sign)


def each_seed(gains: NDArray[np.float64], seeds: int) -> str:
    """Write the mean difference of every seed, on its share of the tasks."""
    return " ".join(f"{100 * gains[number::seeds].mean():+.1f}" for number in range(seeds))

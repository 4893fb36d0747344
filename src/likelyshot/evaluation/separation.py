"""How well the scores of the metrics separate classes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.features import Features
from likelyshot.data.tasks import Tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import map_chunks
from likelyshot.machine import Progress
from likelyshot.methods.calibration import METRICS
from likelyshot.methods.combined import score_columns

Array = NDArray[np.float64]

BINS = 60  # of the densities of scores


def score_separation(
    features: Features, tasks: Tasks, lambda_max: float, progress: Progress | None = None
) -> dict[str, Any]:
    """Score all pairs of query and class by all metrics, and measure how well the true pairs stand out.

    Args:
        features: Features that are normalised already, if they should be.
        tasks: Tasks over the features.
        lambda_max: Upper bound of the rates of MLL.
        progress: Called with the number of tasks done.
    """

    def score(supports: list[Tensor], queries: list[Tensor], chunk: slice) -> Tensor:
        return score_columns(
            supports[0],
            tasks.support_labels,
            queries[0],
            n_ways=tasks.ways,
            metrics=METRICS,
            lambda_max=lambda_max,
            normalise=False,
        )

    columns = torch.cat(map_chunks(score, [features], tasks, "cpu", None, None, progress)).flatten(0, 1).numpy()
    if not np.isfinite(columns).all():
        raise InputError("expected features whose squares are finite, got infinite scores: L2-normalise the features")
    truth = tasks.query_labels.flatten().numpy()
    right = truth[:, None] == np.arange(tasks.ways)  # (q, k)
    intra, cross = columns[right], columns[~right]  # (pairs, metrics)
    decided = columns.argmax(1)  # (q, metrics)
    pairs = combinations(range(len(METRICS)), 2)
    lead = np.sign(intra[:, None] - cross.reshape(len(truth), -1, len(METRICS)))  # of the true class of each query
    within = (lead.mean((0, 1)) + 1) / 2
    return {
        "metrics": list(METRICS),
        "ways": tasks.ways,
        "shots": tasks.shots,
        "tasks": len(tasks),
        "queries": tasks.query.shape[1],
        "per_metric": {
            name: {**separation(intra[:, i], cross[:, i]), "auc_within_query": float(within[i])}
            for i, name in enumerate(METRICS)
        },
        "correlation_intra": _correlation(intra),
        "correlation_cross": _correlation(cross),
        "agreement": {
            "all": float((decided == decided[:, :1]).all(1).mean()),
            "pairs": {f"{METRICS[i]}-{METRICS[j]}": float((decided[:, i] == decided[:, j]).mean()) for i, j in pairs},
        },
        "accuracy": {name: float((decided[:, i] == truth).mean()) for i, name in enumerate(METRICS)},
    }


def separation(intra: Array, cross: Array) -> dict[str, Any]:
    """Measure how well scores within a class stand out from those across classes (the paper's figure 4).

    The AUC is the probability that a score within exceeds one across, ties counting half; d' = (mean_i - mean_c) /
    sqrt((var_i + var_c) / 2), 0 where nothing varies. Densities are between the 0.1 and 99.9 % quantiles.
    Shapes: intra (m,), cross (n,).

    >>> measures = separation(np.array([2.0, 4.0]), np.array([1.0, 3.0]))
    >>> measures["auc"], measures["d_prime"]
    (0.75, 1.0)
    """
    ordered = np.sort(cross)
    below = np.searchsorted(ordered, intra, "left") + np.searchsorted(ordered, intra, "right")
    spread = float(np.sqrt((intra.var() + cross.var()) / 2))
    low, high = np.quantile([np.quantile(x, (0.001, 0.999)) for x in (intra, cross)], (0, 1))
    edges = np.histogram_bin_edges([], BINS, (low, high))
    densities = [np.histogram(x, edges)[0] / len(x) / np.diff(edges) for x in (intra, cross)]
    return {
        "edges": edges.tolist(),
        "intra": densities[0].tolist(),
        "cross": densities[1].tolist(),
        "intra_mean": float(intra.mean()),
        "intra_std": float(intra.std()),
        "cross_mean": float(cross.mean()),
        "cross_std": float(cross.std()),
        "auc": float(below.mean() / 2 / len(cross)),
        "d_prime": float(intra.mean() - cross.mean()) / spread if spread > 0 else 0.0,
    }


def _correlation(columns: Array) -> list[list[float]]:
    """Compute the correlations of columns, 0 for a column that does not vary."""
    centred = columns - columns.mean(0)
    length = np.linalg.norm(centred, axis=0)
    units = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    correlation: list[list[float]] = (units.T @ units).round(9).tolist()
    return correlation

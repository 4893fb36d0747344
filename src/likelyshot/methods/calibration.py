"""What the combined metric knows of its scores: Gaussians of right and of wrong (query, class) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.files import read_document, write_document
from likelyshot.errors import InputError, nearest

METRICS = ("euclidean", "cosine", "mll")

#: A column counts as collinear when what the columns before it leave unexplained of its variance is below this.
COLLINEAR = 1e-6


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution of score vectors of n metrics.

    Args:
        mean: Its mean, (n,).
        covariance: Its covariance, (n, n).
        independent: The columns that are linearly independent of those before them.
    """

    mean: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    independent: tuple[int, ...]

    def __post_init__(self) -> None:
        n, columns = len(self.mean), list(self.independent)
        fits = all(len(row) == n for row in self.covariance) and len(self.covariance) == n
        if not fits or not columns == sorted(set(columns) & set(range(n))):
            raise InputError("expected a mean, a covariance and columns of one size: calibrate again")
        within = np.array(self.covariance)[np.ix_(columns, columns)]
        if not np.isfinite([*self.mean, *within.ravel()]).all() or not (np.linalg.eigvalsh(within) > 0).all():
            raise InputError("expected a finite mean and a positive definite covariance: calibrate again")

    @classmethod
    def fit(cls, vectors: NDArray[np.float64]) -> Gaussian:
        """Estimate from vectors (m, n)."""
        covariance = np.atleast_2d(np.cov(vectors, rowvar=False))
        return cls(
            mean=tuple(vectors.mean(0).tolist()),
            covariance=tuple(tuple(row) for row in covariance.tolist()),
            independent=independent_columns(covariance),
        )


def independent_columns(covariance: NDArray[np.float64]) -> tuple[int, ...]:
    """Keep, from left to right, the columns that are no linear function of those kept before.

    On L2-normalised features at 1-shot, squared Euclidean is 2 - 2 cosine: the joint CDF of the two at a point of
    that line is the CDF of either, so that dropping the second changes nothing. A constant column is dropped too.

    >>> independent_columns(np.array([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.5, 1.0, 1.0]]))
    (0, 2)
    """
    scale = max(float(np.trace(covariance)), np.finfo(float).tiny)
    columns: list[int] = []
    for column in range(len(covariance)):
        variance = covariance[column, column]
        if variance <= np.finfo(float).eps ** 2 * scale:
            continue
        shared = covariance[column, columns]
        explained = shared @ np.linalg.solve(covariance[np.ix_(columns, columns)], shared) if columns else 0.0
        if 1 - explained / variance > COLLINEAR:
            columns.append(column)
    return tuple(columns)


@dataclass(frozen=True)
class Calibration:
    """Statistics of the combined metric, and what they hold for.

    Args:
        metrics: The metrics that are combined, one to three of METRICS.
        ways: Number of classes of the validation tasks.
        shots: Number of labelled examples of each class in them.
        dims: Length of the feature vectors, for each features file.
        lambda_max: Parameter of the metric "mll".
        normalise: Whether feature vectors are scaled to length one.
        intra: Distribution of the scores of queries with their own class.
        cross: Distribution of the scores of queries with other classes.
        features: Digests of the validation features.
        encoders: Names of the encoders that computed them, empty where unknown.
        tasks: Digest of the validation tasks.
    """

    metrics: tuple[str, ...]
    ways: int
    shots: float
    dims: tuple[int, ...]
    lambda_max: float
    normalise: bool
    intra: Gaussian
    cross: Gaussian
    features: tuple[str, ...]
    encoders: tuple[str, ...]
    tasks: str

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        n = len(self.metrics)
        if not len(self.intra.mean) == len(self.cross.mean) == n:
            raise InputError(f"expected statistics of {n} metrics, but got others: calibrate again")
        if not self.intra.independent or not self.cross.independent:
            raise InputError("all scores of the calibration are equal: use validation features that vary")
        numbers = [self.ways - 1, self.shots, self.lambda_max, *self.dims]
        if not all(0 < number < float("inf") for number in numbers):
            raise InputError("expected positive numbers in the calibration: calibrate again")

    def check(self, *, ways: int, shots: float, dims: Sequence[int]) -> None:
        """Refuse tasks that the statistics were not made for.

        Args:
            ways: Number of classes of the tasks.
            shots: Number of labelled examples per class, on average.
            dims: Length of the feature vectors, for each features file.
        """
        for what, made, came in (
            ("ways", self.ways, ways),
            ("shots", self.shots, shots),
            ("feature dimensions", list(self.dims), list(dims)),
        ):
            if made != came:
                raise InputError(
                    f"the calibration was made for {made} {what}, these tasks have {came}: calibrate the combined "
                    "metric on validation tasks of the same ways, shots and encoder"
                )

    def check_encoders(self, encoders: Sequence[str]) -> None:
        """Refuse features of other encoders than the statistics were made with, where both are known.

        Args:
            encoders: Name of the encoder of each features file, empty where unknown.
        """
        for made, came in zip(self.encoders, encoders, strict=False):
            if made and came and made != came:
                raise InputError(
                    f"the calibration was made with features of {made!r}, these are of {came!r}: calibrate the "
                    "combined metric on validation features of the same encoder"
                )

    def to_dict(self) -> dict[str, Any]:
        """Turn into what JSON can hold."""
        return asdict(self)

    def save(self, path: str | Path) -> Path:
        """Write as JSON.

        Args:
            path: The JSON file.
        """
        return write_document(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote; a file that is damaged or of another kind raises InputError.

        Args:
            path: The JSON file.
        """
        return read_document(
            path,
            cls,
            what="a calibration of the combined metric",
            remedy="make one with likelyshot.calibrate(...).save(path)",
        )


def fit_calibration(
    columns: Tensor,
    truth: Tensor,
    *,
    metrics: Sequence[str],
    shots: float,
    dims: Sequence[int],
    lambda_max: float = 40.0,
    normalise: bool = True,
    features: Sequence[str] = (),
    encoders: Sequence[str] = (),
    tasks: str = "",
) -> Calibration:
    """Estimate the Gaussians from score vectors of all true (query, class) pairs and of all wrong ones.

    Shapes: columns (..., q, k, n), truth (..., q) the class of each query.
    """
    metrics = check_metrics(metrics)
    ways = columns.shape[-2]
    flat = columns.reshape(-1, ways, columns.shape[-1]).double().cpu().numpy()
    right = truth.reshape(-1, 1).cpu().numpy() == np.arange(ways)  # (m, k)
    intra, cross = flat[right], flat[~right]
    if min(len(intra), len(cross)) < 2:
        raise InputError(
            f"calibration needs at least two right and two wrong (query, class) pairs, got {len(intra)} and "
            f"{len(cross)}: use more validation queries"
        )
    return Calibration(
        metrics=metrics,
        ways=ways,
        shots=shots,
        dims=tuple(dims),
        lambda_max=lambda_max,
        normalise=normalise,
        intra=Gaussian.fit(intra),
        cross=Gaussian.fit(cross),
        features=tuple(features),
        encoders=tuple(encoders),
        tasks=tasks,
    )


def check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Refuse metrics that cannot be combined."""
    for metric in metrics:
        if metric not in METRICS:
            raise InputError(f"unknown metric {metric!r} for the combined metric: {nearest(metric, METRICS)}")
    if not 1 <= len(metrics) <= 3:
        raise InputError(f"the combined metric takes one to three metrics, got {len(metrics)}")
    return tuple(metrics)

"""Results: per-task figures with all that is needed to repeat them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from likelyshot import __version__
from likelyshot.data.files import Count, convert, read_document, write_document
from likelyshot.data.tasks import plan_from
from likelyshot.errors import InputError
from likelyshot.machine import cores

FORMAT = "likelyshot.result/2"
PER_TASK = ("accuracy", "balanced_accuracy", "macro_f1", "largest_share")
#: What tasks follow from, besides their number: task i of two results is the same if all of it is.
DRAWN_BY = ("ways", "shots", "query", "seed", "overlap", "labels_digest")


#: The half-width that one value has: shares cannot differ by more, and nothing is known of how they vary.
UNKNOWN = 1.0


def mean_ci95(values: NDArray[np.float64]) -> tuple[float, float]:
    """Compute the mean of per-task values and the half-width of its 95 % interval, 1.96 s / sqrt(n).

    One value says nothing of how values vary: its half-width is `UNKNOWN`.

    >>> mean_ci95(np.array([0.5, 0.7]))
    (0.6, 0.19599999999999995)
    >>> mean_ci95(np.array([0.5]))
    (0.5, 1.0)
    """
    if len(values) == 1:
        return float(values[0]), UNKNOWN
    return float(values.mean()), 1.96 * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def with_interval(mean: float, ci95: float, sign: str = "") -> str:
    """Write a fraction with its interval in percent; one value has none.

    >>> with_interval(0.8412, 0.0021), with_interval(0.05, UNKNOWN, "+")
    ('84.12 ± 0.21', '+5.00')
    """
    return f"{100 * mean:{sign}.2f}" + (f" ± {100 * ci95:.2f}" if ci95 < UNKNOWN else "")


def half_width(ci95: float) -> float:
    """Give the half of an error bar in percent; one value has none.

    >>> half_width(0.5), half_width(UNKNOWN)
    (50.0, 0.0)
    """
    return 100 * ci95 if ci95 < UNKNOWN else 0.0


@dataclass(frozen=True)
class Difference:
    """A paired difference of two results over the same tasks.

    Args:
        mean: Mean difference of the accuracies, as a fraction.
        ci95: Half-width of its 95 % interval.
    """

    mean: float
    ci95: float

    @property
    def significant(self) -> bool:
        """Whether the 95 % interval excludes zero."""
        return abs(self.mean) > self.ci95

    def __str__(self) -> str:
        return with_interval(self.mean, self.ci95, "+")


@dataclass(frozen=True, eq=False)
class Result:
    """Accuracy, balanced accuracy and macro-F1 of a method on t tasks, as fractions, and how it was wrong.

    Args:
        method: Name of the method.
        accuracy: Share of the queries of each task that were classified correctly, (t,).
        balanced_accuracy: Mean recall of the classes of each task, (t,).
        macro_f1: Mean F1 of the classes of each task, (t,).
        largest_share: Share of the queries of each task that belong to its most frequent class, (t,).
        reliability: The `temperature` of the probabilities, whether it was `fitted`, and for each bin of confidence the
            number of queries (`count`) and the sums of their `confidence` and of the `correct` ones.
        confused: Pairs of classes, the most confused first: `true`, `predicted`, `wrong` (number of queries taken for
            `predicted`) and `queries` (number that could have been).
        config: What the result follows from: parameters, tasks, features, device.
        environment: Versions, machine and date.
        seconds: Time that scoring took.
    """

    method: str
    accuracy: NDArray[np.float64]
    balanced_accuracy: NDArray[np.float64]
    macro_f1: NDArray[np.float64]
    largest_share: NDArray[np.float64]
    reliability: Mapping[str, Any]
    confused: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    seconds: float

    @cached_property
    def mean(self) -> float:
        """Mean accuracy over the tasks."""
        return mean_ci95(self.accuracy)[0]

    @cached_property
    def ci95(self) -> float:
        """Half-width of the 95 % interval of the mean accuracy."""
        return mean_ci95(self.accuracy)[1]

    @property
    def ece(self) -> float:
        """Expected calibration error of the probabilities, over bins of equal width."""
        count, confidence, correct = (np.asarray(self.reliability[k]) for k in ("count", "confidence", "correct"))
        return float(np.abs(confidence - correct).sum() / count.sum())

    def shared_tasks(self, other: Result) -> int:
        """Count the tasks, from the first, that both results have; 0 unless they are known to be the same.

        Task i follows from the settings, the labels and i, so a result over fewer tasks has the first of the other's.

        Args:
            other: The result to compare with.
        """
        n = min(len(self.accuracy), len(other.accuracy))
        if len(self.accuracy) == len(other.accuracy):
            return n if self.config["tasks_digest"] == other.config["tasks_digest"] else 0
        from_first = all(tuple(one.config["range"])[::2] == (0, 1) for one in (self, other))
        alike = all(self.config.get(key) == other.config.get(key) for key in DRAWN_BY)
        return n if from_first and alike and np.array_equal(self.largest_share[:n], other.largest_share[:n]) else 0

    def minus(self, other: Result) -> Difference:
        """Subtract another method's accuracy, task by task, over the tasks that both results have.

        Args:
            other: The result of the other method.
        """
        n = self.shared_tasks(other)
        if not n:
            raise InputError(
                f"{self.method} and {other.method} were evaluated on different tasks, so there is no paired "
                "difference: evaluate both on the same Tasks"
            )
        return Difference(*mean_ci95(self.accuracy[:n] - other.accuracy[:n]))

    def row(self) -> dict[str, Any]:
        """Summarise in one flat record."""
        plan = dict(self.config["query"])
        return {
            "method": self.method,
            "params": self.config["params"],
            "ways": self.config["ways"],
            "shots": self.config["shots"],
            "query": plan.pop("plan"),
            **plan,
            **{key: self.config[key] for key in ("tasks", "seed", "overlap")},
            "mean": self.mean,
            "ci95": self.ci95,
            "balanced_accuracy": float(self.balanced_accuracy.mean()),
            "macro_f1": float(self.macro_f1.mean()),
            "ece": self.ece,
            "temperature": self.reliability["temperature"],
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        return f"{self.method}: {with_interval(self.mean, self.ci95)} % over {len(self.accuracy)} tasks"

    def save(self, path: str | Path) -> Path:
        """Write as JSON: summary, configuration, environment and the figures of every task.

        Args:
            path: The JSON file.
        """
        per_task = {name: getattr(self, name).tolist() for name in PER_TASK}
        return write_document(
            path,
            {
                "format": FORMAT,
                "summary": self.row(),
                "config": dict(self.config),
                "environment": dict(self.environment),
                "reliability": dict(self.reliability),
                "confused": list(self.confused),
                "per_task": per_task,
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what `save` wrote; a file that is damaged or of another kind raises InputError.

        Args:
            path: The JSON file.
        """
        stored = read_document(
            path, _Document, what="a result of likelyshot", remedy="make one with likelyshot evaluate"
        )
        return cls(
            method=stored.summary.method,
            config=stored.config,
            environment=stored.environment,
            seconds=stored.summary.seconds,
            reliability=msgspec.structs.asdict(stored.reliability),
            confused=[msgspec.structs.asdict(pair) for pair in stored.confused],
            **{name: np.asarray(getattr(stored.per_task, name), np.float64) for name in PER_TASK},
        )


Share = Annotated[float, msgspec.Meta(ge=0, le=1 + 1e-6)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Summary(msgspec.Struct):
    """The fields of a summary that are not in another part of the document too."""

    method: Name
    seconds: Amount


class _Config(msgspec.Struct):
    """The fields of a configuration that others rely on."""

    params: dict[str, Any]
    ways: Annotated[int, msgspec.Meta(ge=1, le=2**62)]
    shots: Count
    query: dict[str, Any]
    tasks: Count
    seed: Annotated[int, msgspec.Meta(ge=0)]
    overlap: bool
    tasks_digest: str
    range: tuple[Count, Count, Annotated[int, msgspec.Meta(ge=1)]]
    features: Annotated[list[dict[str, str | int]], msgspec.Meta(min_length=1)]
    networks: list[str] = []
    device: str = "cpu"

    def __post_init__(self) -> None:
        plan_from(self.query)


class _Reliability(msgspec.Struct):
    temperature: Annotated[float, msgspec.Meta(gt=0)]
    fitted: bool
    count: list[Amount]
    confidence: list[Amount]
    correct: list[Amount]

    def __post_init__(self) -> None:
        if not len(self.count) == len(self.confidence) == len(self.correct) or not sum(self.count):
            raise ValueError("bins of unequal number, or without queries")


class _Pair(msgspec.Struct):
    true: str
    predicted: str
    wrong: Count
    queries: Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class _PerTask(msgspec.Struct):
    accuracy: list[Share]
    balanced_accuracy: list[Share]
    macro_f1: list[Share]
    largest_share: list[Share]

    def __post_init__(self) -> None:
        if len({len(getattr(self, name)) for name in PER_TASK}) != 1 or not self.accuracy:
            raise ValueError("figures of an unequal number of tasks, or of none")


class _Document(msgspec.Struct):
    format: Literal["likelyshot.result/2"]
    summary: _Summary
    config: dict[str, Any]
    environment: dict[str, Any]
    reliability: _Reliability
    confused: list[_Pair]
    per_task: _PerTask

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _Config)


def environment() -> dict[str, Any]:
    """Record what a result is computed with: versions, system, the cores in use, date."""
    packages = ["torch", "numpy", "scikit-learn", *(["numba"] if importlib.util.find_spec("numba") else [])]
    return {
        "likelyshot": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def check_configuration(config: Mapping[str, Any], where: str) -> None:
    """Refuse a configuration without the fields that others rely on.

    Args:
        config: The configuration of a result.
        where: The file that it was read from.
    """
    convert(_Config, dict(config), where)

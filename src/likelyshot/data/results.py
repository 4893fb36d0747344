"""Results: per-task figures with all that is needed to repeat them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot import __version__
from likelyshot.data.containers import write_document
from likelyshot.errors import InputError

FORMAT = "likelyshot.result/2"
PER_TASK = ("accuracy", "balanced_accuracy", "macro_f1", "largest_share")


def mean_ci95(values: NDArray[np.float64]) -> tuple[float, float]:
    """Compute the mean of per-task values and the half-width of its 95 % interval, 1.96 s / sqrt(n).

    >>> mean_ci95(np.array([0.5, 0.7]))
    (0.6, 0.19599999999999995)
    """
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return float(values.mean()), 1.96 * spread / float(np.sqrt(len(values)))


@dataclass(frozen=True)
class Difference:
    """A paired difference of two results over the same tasks."""

    mean: float
    ci95: float

    @property
    def significant(self) -> bool:
        """Whether the 95 % interval leaves out zero."""
        return abs(self.mean) > self.ci95

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f} ± {100 * self.ci95:.2f}"


@dataclass(frozen=True, eq=False)
class Result:
    """Accuracy, balanced accuracy and macro-F1 of a method on every task, as fractions, and how it was wrong."""

    method: str
    accuracy: NDArray[np.float64]
    balanced_accuracy: NDArray[np.float64]
    macro_f1: NDArray[np.float64]
    largest_share: NDArray[np.float64]  # of the queries of a task, in its most frequent class
    reliability: Mapping[str, Any]  # temperature, fitted, and per bin: count, confidence, correct
    confused: Sequence[Mapping[str, Any]]  # pairs of classes: true, predicted, wrong, queries; worst first
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

    def minus(self, other: Result) -> Difference:
        """Subtract another method's accuracy, task by task."""
        if self.config["tasks_digest"] != other.config["tasks_digest"]:
            raise InputError(
                f"{self.method} and {other.method} were evaluated on different tasks, so that no paired difference "
                "exists: evaluate both on the same Tasks"
            )
        return Difference(*mean_ci95(self.accuracy - other.accuracy))

    def first(self, n_tasks: int, tasks_digest: str) -> Result:
        """Keep the first tasks only, which have that digest (`tasks[:n_tasks].digest`).

        Reliability and confused classes stay those of all tasks.
        """
        kept = {name: getattr(self, name)[:n_tasks] for name in PER_TASK}
        config = {**self.config, "tasks": n_tasks, "tasks_digest": tasks_digest, "range": [0, n_tasks, 1]}
        return replace(self, **kept, config=config, seconds=self.seconds * n_tasks / len(self.accuracy))

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
        return f"{self.method}: {100 * self.mean:.2f} ± {100 * self.ci95:.2f} % over {len(self.accuracy)} tasks"

    def save(self, path: str | Path) -> Path:
        """Write as JSON: summary, configuration, environment and the figures of every task."""
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
        """Read what `save` wrote."""
        try:
            document = json.loads(Path(path).read_text())
            if document["format"] != FORMAT:
                raise KeyError(FORMAT)
            per_task = {name: np.asarray(document["per_task"][name], np.float64) for name in PER_TASK}
            return cls(
                method=document["summary"]["method"],
                config=document["config"],
                environment=document["environment"],
                seconds=document["summary"]["seconds"],
                reliability=document["reliability"],
                confused=document["confused"],
                **per_task,
            )
        except OSError as error:
            raise InputError(f"cannot read the result {path} ({error.strerror}): check the path") from None
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"expected a result of likelyshot in {path}, found something else: make one with likelyshot evaluate"
            ) from None


def environment() -> dict[str, Any]:
    """Tell what a result was computed with."""
    packages = ("torch", "numpy", "scikit-learn")
    return {
        "likelyshot": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }

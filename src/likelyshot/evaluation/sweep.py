"""A method's accuracy over a grid of its parameters."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likelyshot import __version__
from likelyshot.data.containers import write_document
from likelyshot.data.features import Features
from likelyshot.data.results import environment
from likelyshot.data.tasks import Tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.machine import Progress
from likelyshot.methods.binding import Statistics, bind

FORMAT = "likelyshot.sweep/2"
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep: one per point of the grid and number of shots."""

    method: str
    grid: Grid
    rows: Sequence[Mapping[str, Any]]
    config: Mapping[str, Any]

    def best(self) -> dict[str, Any]:
        """Give the point of the grid with the best accuracy, averaged over the shots; the first of equals."""
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        return max(points, key=self.mean_at)

    def mean_at(self, point: Mapping[str, Any]) -> float:
        """Average the accuracy at a point of the grid over the shots."""
        means = [row["mean"] for row in self.rows if all(row["point"][key] == point[key] for key in point)]
        return float(sum(means) / len(means))

    def save(self, path: str | Path, command: Sequence[str] = ()) -> Path:
        """Write as JSON, with the command that made it."""
        return write_document(
            path,
            {
                "format": FORMAT,
                "command": list(command),
                "method": self.method,
                "grid": {key: list(values) for key, values in self.grid.items()},
                "best": self.best(),
                "rows": list(self.rows),
                "config": dict(self.config),
                "environment": environment(),
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Read what `save` wrote."""
        try:
            stored = json.loads(Path(path).read_text())
            if stored["format"] != FORMAT:
                raise KeyError(FORMAT)
            return cls(stored["method"], stored["grid"], stored["rows"], stored["config"])
        except OSError as error:
            raise InputError(f"cannot read the sweep {path} ({error.strerror}): check the path") from None
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"expected a sweep of likelyshot in {path}, found something else: make one with likelyshot sweep"
            ) from None


def sweep(
    name: str,
    grid: Grid,
    features: Features | Sequence[Features],
    tasks: Sequence[Tasks],
    *,
    params: Mapping[str, Any] | None = None,
    statistics: Statistics | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Sweep:
    """Evaluate a method at every point of a grid, on the same tasks (one `Tasks` per number of shots)."""
    rows = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        for drawn in tasks:
            method = bind(
                name,
                {**(params or {}), **point},
                statistics or Statistics(),
                ways=drawn.ways,
                shots=drawn.shots,
            )
            result = evaluate(method, features, drawn, device=device, progress=progress)
            rows.append({"point": point, **result.row()})
    sets = [features] if isinstance(features, Features) else features
    config = {
        "params": dict(params or {}),
        "features": [{"digest": one.digest, "dim": one.dim, **one.source} for one in sets],
        "tasks": [drawn.digest for drawn in tasks],
        "likelyshot": __version__,
    }
    return Sweep(name, grid, rows, config)

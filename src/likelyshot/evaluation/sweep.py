"""A method's accuracy over a grid of its parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from likelyshot import __version__
from likelyshot.data.features import Features
from likelyshot.data.files import Count, read_document, write_document
from likelyshot.data.results import Result, environment
from likelyshot.data.tasks import Tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.run import Job, Network, Networks, run
from likelyshot.machine import Progress
from likelyshot.methods.binding import Params

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
        """Read what `save` wrote; a file that is damaged or of another kind raises InputError."""
        stored = read_document(path, _Document, what="a sweep of likelyshot", remedy="make one with likelyshot sweep")
        return cls(stored.method, stored.grid, stored.rows, stored.config)


class _Row(msgspec.Struct):
    """The fields of a row that others rely on."""

    point: dict[str, Any]
    shots: Count
    ways: Count
    tasks: Count
    mean: Annotated[float, msgspec.Meta(ge=0, le=1 + 1e-6)]
    ci95: Annotated[float, msgspec.Meta(ge=0, le=2)]


class _Config(msgspec.Struct):
    """The fields of a configuration that others rely on."""

    params: dict[str, Any]
    features: list[_Digest]
    tasks: list[str]
    likelyshot: str


class _Digest(msgspec.Struct):
    digest: str


class _Document(msgspec.Struct):
    format: Literal["likelyshot.sweep/2"]
    method: str
    grid: Annotated[dict[str, Annotated[list[Any], msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]
    rows: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    config: dict[str, Any]

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _Config)
        rows = msgspec.convert(self.rows, list[_Row])
        shots = {row.shots for row in rows}
        if len(rows) != len(shots) * math.prod(len(values) for values in self.grid.values()):
            raise ValueError("another number of rows than points of the grid")
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        if any([row.point for row in rows if row.shots == count] != points for count in shots):
            raise ValueError("rows of other points than those of the grid")


def sweep(
    name: str,
    grid: Grid,
    networks: Networks | Features,
    tasks: Sequence[Tasks],
    *,
    params: Params | None = None,
    progress: Progress = lambda steps: None,
) -> Sweep:
    """Evaluate a method at every point of a grid, on the same tasks.

    Args:
        name: The method.
        grid: The values of one or two parameters.
        networks: The features, with the statistics that the method needs.
        tasks: One `Tasks` for each number of shots.
        params: Other parameters, the same at every point.
        progress: Called with the number of tasks that have been done.
    """
    networks = Networks([Network(networks)]) if isinstance(networks, Features) else networks
    results = [
        result for _, result in run(points(name, grid, tasks, params), networks, temperatures=False, progress=progress)
    ]
    return gather(name, grid, results, params, [each.digest for each in tasks])


def points(name: str, grid: Grid, tasks: Sequence[Tasks], params: Params | None = None) -> list[Job]:
    """List what `sweep` evaluates: a job for each point of the grid and number of shots."""
    if not grid or not tasks or not all(len(values) for values in grid.values()):
        raise InputError("expected at least one parameter with one value, and tasks: give a grid like lambda_max=20,40")
    points_of_grid = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [Job(name, {**(params or {}), **point}, sample) for point in points_of_grid for sample in tasks]


def gather(name: str, grid: Grid, results: Sequence[Result], params: Params | None, digests: Sequence[str]) -> Sweep:
    """Make a sweep of the results of its points.

    Args:
        name: The method.
        grid: The values of one or two parameters.
        results: In the order of `points`.
        params: Other parameters, the same at every point.
        digests: Of the tasks of each number of shots.
    """
    points_of_grid = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    each = [point for point in points_of_grid for _ in digests]
    rows = [{"point": point, **result.row()} for point, result in zip(each, results, strict=True)]
    config = {
        "params": dict(params or {}),
        "features": results[0].config["features"],
        "tasks": list(digests),
        "likelyshot": __version__,
    }
    return Sweep(name, grid, rows, config)

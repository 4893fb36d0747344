"""From the options of a command to features, tasks, methods and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from likelyshot.cli.options import Plan
from likelyshot.data.features import Base, Features, splits
from likelyshot.data.packaged import NETWORKS, PACKAGED
from likelyshot.data.results import Result
from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, sample_tasks
from likelyshot.errors import InputError, nearest
from likelyshot.evaluation.networks import Network, Networks
from likelyshot.methods import METHODS
from likelyshot.methods.binding import Statistics, needs, parameters, parse
from likelyshot.methods.calibration import METRICS, check_metrics

MANY_TASKS = 100_000  # take seconds to draw


def methods(names: Sequence[str]) -> tuple[list[str], bool]:
    """Read method names, and whether all were asked for."""
    chosen = [part for name in names for part in name.replace(",", " ").split()]
    if "all" in chosen:
        return list(METHODS), True
    for name in chosen:
        if name not in METHODS:
            raise InputError(f"unknown method {name!r}: {nearest(name, METHODS)}")
    return list(dict.fromkeys(chosen)), False


def params(names: Sequence[str], given: Sequence[str], normalise: bool) -> dict[str, dict[str, Any]]:
    """Read NAME=VALUE and METHOD.NAME=VALUE into parameters by method."""
    chosen: dict[str, dict[str, Any]] = {
        name: {"normalise": False} if not normalise and "normalise" in parameters(name) else {} for name in names
    }
    for text in given:
        key, equals, value = text.partition("=")
        method, dot, key = key.strip().rpartition(".")
        if not equals or not key:
            raise InputError(f"expected a parameter as NAME=VALUE, got {text!r}: for example lambda_max=80")
        if dot and method not in names:
            raise InputError(f"{text!r} is for a method that is not evaluated: {nearest(method, names)}")
        takers = [method] if dot else [name for name in names if key in parameters(name)]
        if not takers:
            known = {known for name in names for known in parameters(name)}
            raise InputError(f"no parameter {key!r} in {', '.join(names)}: {nearest(key, known)}")
        for name in takers:
            chosen[name][key] = parse(name, key, value.strip())
    return chosen


def grids(name: str, given: Sequence[str]) -> dict[str, list[Any]]:
    """Read NAME=FIRST:LAST:STEP and NAME=A,B,C."""
    chosen: dict[str, list[Any]] = {}
    for text in given:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise InputError(f"expected a grid as NAME=FIRST:LAST:STEP or NAME=A,B,C, got {text!r}")
        chosen[key] = [parse(name, key, value) for value in _points(text, values)]
    if len(chosen) > 2:
        raise InputError(f"a sweep draws one or two parameters, got {', '.join(chosen)}: fix the others with --param")
    return chosen


def _points(text: str, values: str) -> list[str]:
    if ":" not in values:
        return [value.strip() for value in values.split(",")]
    try:
        first, last, step = (float(part) for part in values.split(":"))
        count = int((last - first) / step + 1e-9) + 1
        if count < 1 or count > 1_000:
            raise ValueError
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(
            f"expected FIRST:LAST:STEP with 1 to 1,000 points, got {text!r}: for example lambda_max=10:100:10"
        ) from None
    return [f"{first + step * i:.10g}" for i in range(count)]


def plan(query: Plan, alpha: float, total: int, per_class: int) -> Balanced | Dirichlet:
    """Make the query plan."""
    return Dirichlet(total, alpha) if query is Plan.dirichlet else Balanced(per_class)


def load(path: Path | None, split: str | None, labels: Path | None, rectify: bool) -> Features:
    """Read features, the packaged ones by default."""
    features = Features.load(path or PACKAGED, split=split, labels=labels)
    return features.rectified() if rectify else features


def networks(
    paths: Sequence[Path] | None,
    split: str | None,
    labels: Path | None,
    rectify: bool,
    *,
    val: Sequence[Path] | None,
    base: Path | None,
    metrics: Sequence[str] | None,
    shared: Statistics,
    names: Sequence[str],
) -> Networks:
    """Read the features of one network or several, with what their files, or others, hold of other classes.

    Base classes are looked for if one of the methods `names` needs them.
    """
    if shared.calibration is not None:
        metrics = shared.calibration.metrics
    metrics = tuple(metrics or METRICS)
    files = list(paths) if paths else [NETWORKS[metric] for metric in check_metrics(metrics)]
    if val and len(val) != len(files):
        raise InputError(
            f"expected --val {len(files)} times, a file for each network, but got {len(val)}: give as many"
        )
    held: Sequence[Path | None] = val or [None] * len(files)
    members = [
        Network(load(file, split, labels, rectify), _validation(file, other, rectify))
        for file, other in zip(files, held, strict=True)
    ]
    if any(need.startswith("base") for name in names for need in needs(name)):  # no metric needs that of another
        tested = members[-1].features.source.get("split", "")
        members[-1] = replace(members[-1], base=_base(files[-1], base, rectify, tested))
    return Networks(members, metrics, shared)


def _validation(path: Path, val: Path | None, rectify: bool) -> Features | None:
    if val is not None:
        return load(val, "val" if "val" in splits(val) else None, None, rectify)
    return load(path, "val", None, rectify) if "val" in splits(path) else None


def _base(path: Path, base: Path | None, rectify: bool, tested: str) -> Base | None:
    """Find base classes in a file of their own, or beside the split that is tested, which is no base for itself."""
    if base is None and tested in ("train", "base"):
        return None
    found = Base.load(base or path, rectify=rectify)
    if found is None and base is not None:
        if splits(base):
            known = ", ".join(splits(base))
            raise InputError(f"expected base features in {base}, found splits {known}: name one 'train'")
        return Base.of(load(base, None, None, rectify))
    return found


def draw(
    networks: Networks,
    n_tasks: int,
    ways: int,
    shots: Sequence[int],
    query: Balanced | Dirichlet,
    seed: int,
    overlap: bool,
) -> list[Tasks]:
    """Sample tasks for every number of shots; all networks have the same labels."""
    features = networks.members[0].features
    if n_tasks > MANY_TASKS:
        typer.echo(f"drawing {n_tasks:,} tasks for each number of shots", err=True)
    return [
        sample_tasks(
            features.labels,
            n_tasks=n_tasks,
            ways=ways,
            shots=count,
            query=query,
            seed=seed,
            overlap=overlap,
            classes=features.classes,
        )
        for count in dict.fromkeys(shots)
    ]


def references(results: Sequence[Result]) -> list[Result]:
    """Choose what differences are taken to: the MLLs if there are any, else Euclidean, else the first."""
    known = {result.method: result for result in results}
    return [known[name] for name in ("mll", "mll_transductive") if name in known] or [
        known.get("euclidean", results[0])
    ]


def title(features: Features | Sequence[Features]) -> str:
    """Name features for a table."""
    sets = [features] if isinstance(features, Features) else features
    files = " + ".join(dict.fromkeys(one.source.get("file", "features") for one in sets))
    split = sets[0].source.get("split")
    return f"{files} ({split})" if split else files

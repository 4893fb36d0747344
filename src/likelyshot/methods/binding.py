"""From a method's name to a method that can run: its parameters, and the statistics that it needs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from likelyshot.data.features import Base, Features
from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, plan_from, sample_tasks
from likelyshot.errors import InputError, nearest
from likelyshot.evaluation.evaluate import calibrate, fit_temperature
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, Method, facts_of
from likelyshot.methods.calibration import Calibration
from likelyshot.methods.facts import BASE_STATISTICS, STATISTICS
from likelyshot.methods.signatures import check_values, needs_of, parameters_of

Params = Mapping[str, Any]

#: Validation tasks that the combined metric is calibrated on.
CALIBRATION_TASKS = 2_000
#: Validation tasks that the temperature of a method's probabilities is fitted on.
TEMPERATURE_TASKS = 100

#: Parameters that act through a statistic of the method instead of its own call.
_CALIBRATION_PARAMS = ("lambda_max", "normalise", "metrics")


@dataclass(frozen=True)
class Statistics:
    """What is at hand from base and validation data."""

    base: Base | None = None
    validation: Features | Sequence[Features] | None = None  # of one network, or of one per metric
    calibration: Calibration | None = None
    seed: int = 0
    device: str = "cpu"
    _made: dict[tuple[Any, ...], Calibration] = field(default_factory=dict, repr=False, compare=False)

    def made(self) -> list[tuple[int, Calibration]]:
        """Give the calibrations that were made, with their shots."""
        return [(key[1], calibration) for key, calibration in self._made.items()]

    def calibrated(self, ways: int, shots: int, params: Params, progress: Progress | None = None) -> Calibration:
        """Take the given calibration, or make one from validation tasks of the same ways and shots (once)."""
        if self.calibration is not None:
            if params:
                raise InputError(
                    f"{', '.join(sorted(params))} of the combined metric is fixed by the given calibration: leave it "
                    "out, or calibrate anew from validation features"
                )
            return self.calibration
        if self.validation is None:
            raise InputError(
                f"combined needs {STATISTICS['calibration'].words}: give validation features (--val FILE), a "
                "features file with a split called val, or a saved calibration (--calibration FILE)"
            )
        key = (ways, shots, *sorted(params.items()))
        if key not in self._made:
            labels = _one(self.validation).labels
            per_class = max(1, min(15, int(torch.bincount(labels).min()) - shots))
            try:
                tasks = self._tasks(self.validation, CALIBRATION_TASKS, ways, shots, Balanced(per_class))
                self._made[key] = calibrate(self.validation, tasks, device=self.device, progress=progress, **params)
            except InputError as error:
                raise InputError(f"combined cannot be calibrated on the validation features: {error}") from None
        return self._made[key]

    def temperature(self, method: Method, like: Tasks, progress: Progress | None = None) -> float | None:
        """Fit the temperature of a method's probabilities on validation tasks that are drawn like these.

        None without validation features, and where no such tasks can be drawn from them.
        """
        if self.validation is None:
            return None
        try:
            n_tasks, query = min(TEMPERATURE_TASKS, len(like)), plan_from(like.config["query"])
            tasks = self._tasks(self.validation, n_tasks, like.ways, like.shots, query)
            return fit_temperature(method, self.validation, tasks, device=self.device, progress=progress)
        except InputError:
            return None

    def _tasks(
        self, sets: Features | Sequence[Features], n_tasks: int, ways: int, shots: int, query: Balanced | Dirichlet
    ) -> Tasks:
        held = _one(sets)
        return sample_tasks(
            held.labels, n_tasks=n_tasks, ways=ways, shots=shots, query=query, seed=self.seed, classes=held.classes
        )


def _one(sets: Features | Sequence[Features]) -> Features:
    """Take any of several networks: their labels and classes are the same."""
    return sets if isinstance(sets, Features) else sets[0]


def parameters(name: str) -> dict[str, Any]:
    """List the parameters of a method with their defaults.

    >>> parameters("mll")
    {'lambda_max': 40.0, 'normalise': True, 'shrinkage': 0.0}
    """
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}: {nearest(name, METHODS)}")
    own = parameters_of(METHODS[name])
    if "calibration" in needs(name):
        own |= {key: parameters_of(calibrate)[key] for key in _CALIBRATION_PARAMS}
    return own


def needs(name: str) -> list[str]:
    """List the statistics that a method needs from other data.

    >>> needs("simpleshot"), needs("mll")
    (['base_mean'], [])
    """
    return needs_of(METHODS[name])


def about(name: str) -> dict[str, Any]:
    """Tell what a method does, needs and comes from, as its docstring and signature say."""
    given = parameters(name)
    text = inspect.getdoc(METHODS[name]) or ""
    lines = text.splitlines()
    return {
        "method": name,
        "does": lines[0],
        "needs": needs(name),
        "non_negative": bool(facts_of(METHODS[name]).non_negative),
        "parameters": given,
        "paper": next(line.removeprefix("Paper: ") for line in lines if line.startswith("Paper: ")),
        "text": text.split(">>>")[0].strip(),
    }


def parse(name: str, key: str, text: str) -> Any:
    """Read a parameter's value from text, by the type of its default.

    >>> parse("mll_transductive", "iterations", "5"), parse("mll", "normalise", "no")
    (5, False)
    """
    known = parameters(name)
    if key not in known:
        raise InputError(f"{name} has no parameter {key!r}: {nearest(key, known)}")
    kind: type = float if known[key] is None else type(known[key])  # None: by default it follows from the task
    switch = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        if kind is bool:
            return switch[text.lower()]
        if kind is tuple:
            return tuple(part.strip() for part in text.split(","))
        return kind(text)
    except (ValueError, KeyError):
        words = {bool: "yes or no", int: "a whole number", float: "a number"}
        raise InputError(f"{key} of {name} must be {words[kind]}, got {text!r}: its default is {known[key]}") from None


def bind(
    name: str,
    params: Params,
    statistics: Statistics,
    *,
    ways: int,
    shots: int,
    progress: Progress | None = None,
) -> Method:
    """Give a method its parameters and statistics."""
    known = parameters(name)
    for key in params:
        if key not in known:
            raise InputError(f"{name} has no parameter {key!r}: {nearest(key, known)}")
    check_values(name, known, params)
    bound = dict(params)
    for key in BASE_STATISTICS:
        if key in needs(name):
            bound[key] = getattr(statistics.base, STATISTICS[key].base, None)
            if bound[key] is None:
                raise InputError(
                    f"{name} needs {STATISTICS[key].words}: give base features (--base FILE), or a features file "
                    "with a split called train beside the one that is tested"
                )
    if "calibration" in needs(name):
        through = {key: bound.pop(key) for key in _CALIBRATION_PARAMS if key in bound}
        bound["calibration"] = statistics.calibrated(ways, shots, through, progress)
    return functools.partial(METHODS[name], **bound) if bound else METHODS[name]

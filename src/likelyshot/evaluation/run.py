"""Named methods on tasks: the features and statistics that each method gets, and the loop over all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from likelyshot.data.features import Base, Features, FeaturesFile
from likelyshot.data.files import write_document
from likelyshot.data.packaged import NETWORKS
from likelyshot.data.results import Result, environment
from likelyshot.data.tasks import Balanced, Plan, Tasks, plan_from, sample_tasks
from likelyshot.errors import InputError
from likelyshot.evaluation.evaluate import calibrate, evaluate, fit_temperature
from likelyshot.heads import Head, head_of_features, load_head
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import (
    Params,
    bind,
    check_params,
    facts_of,
    needs,
    parameters,
    plain_name,
    row_name,
    statistics_of,
)
from likelyshot.methods.calibration import METRICS, Calibration, check_metrics
from likelyshot.methods.facts import BASE_STATISTICS, STATISTICS

#: Validation tasks that the combined metric is calibrated on.
CALIBRATION_TASKS = 2_000
#: Validation tasks on which methods for several networks choose among them.
WEIGHT_TASKS = 500
#: Validation tasks that the temperature of a method's probabilities is fitted on.
TEMPERATURE_TASKS = 100

Sets = Features | list[Features]


@dataclass(frozen=True, eq=False)
class Network:
    """The features of one network.

    Args:
        features: What tasks are drawn from.
        validation: Features of other classes, for calibrations and temperatures.
        base: Statistics of the base classes.
        head: A head that was trained on the vectors of this network.
    """

    features: Features
    validation: Features | None = None
    base: Base | None = None
    head: Head | None = None


@dataclass(frozen=True, eq=False)
class Networks:
    """The same images by one network, or by one per metric, in the order of `metrics`.

    Of several, each metric is scored on its own network, methods for several networks on all of them, and every other
    method on the last.

    Args:
        members: The networks.
        metrics: What each of several networks is for, and what `combined` combines.
        calibration: A calibration for `combined`; without it, one is made on validation tasks.
        seed: Seed of the validation tasks.
        device: Where everything is computed.

    >>> import torch
    >>> sets = [Features.from_arrays(torch.rand(4, dim), [0, 0, 1, 1]) for dim in (2, 3, 4)]
    >>> networks = Networks([Network(features) for features in sets])
    >>> [networks.features(name).dim for name in ("cosine", "mll", "tim")]
    [3, 4, 4]
    """

    members: Sequence[Network]
    metrics: tuple[str, ...] = METRICS
    calibration: Calibration | None = None
    seed: int = 0
    device: str = "cpu"
    _calibrations: dict[tuple[int, int, str], Calibration] = field(default_factory=dict, repr=False)
    _weights: dict[tuple[str, int, int, str], Tensor] = field(default_factory=dict, repr=False)
    _heads: dict[str, Head] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if len(self.members) not in (1, len(self.metrics)):
            raise InputError(
                f"expected one network, or one for each of {', '.join(self.metrics)}, but got {len(self.members)}: "
                "give as many files, in this order"
            )
        validation = [member.validation for member in self.members if member.validation]
        for sets in ([member.features for member in self.members], validation):
            for other in sets[1:]:
                if other.classes != sets[0].classes or not other.labels.equal(sets[0].labels):
                    raise InputError(
                        "expected the same images in the same order from every network, but their labels differ: "
                        "extract all features from the same data"
                    )

    @property
    def digests(self) -> list[str]:
        """The digests of all the features."""
        return [member.features.digest for member in self.members]

    def features(self, method: str) -> Sets:
        """Give the features that a method is scored on."""
        sets = [member.features for member in self._members_of(method)]
        return sets if len(sets) > 1 else sets[0]

    def validation(self, method: str) -> Sets | None:
        """Give the validation features of the same networks; None if one of them has none."""
        sets = [member.validation for member in self._members_of(method) if member.validation is not None]
        if len(sets) < len(self._members_of(method)):
            return None
        return sets if len(sets) > 1 else sets[0]

    def title(self, method: str | None = None) -> str:
        """Name the features, of a method or of all, for a table: a file and its split, or how many networks."""
        members = self.members if method is None else self._members_of(method)
        return source_name([member.features.source for member in members], short=True)

    def draw(self, n_tasks: int, ways: int, shots: Iterable[int], query: Plan, overlap: bool = False) -> list[Tasks]:
        """Sample tasks for every number of shots; all networks have the same labels."""
        return [
            _draw(self.members[0].features, n_tasks, ways, count, query, self.seed, overlap)
            for count in dict.fromkeys(shots)
        ]

    def _members_of(self, method: str) -> Sequence[Network]:
        if len(self.members) == 1 or facts_of(METHODS[plain_name(method)]).several_networks:
            return self.members
        return [self.members[self.metrics.index(method) if method in self.metrics else -1]]

    def bind(self, name: str, params: Params, *, ways: int, shots: int) -> Method:
        """Give a method its parameters, and the statistics that it needs for tasks of these ways and shots."""
        check_params(name, parameters(name), params)
        method_params: dict[str, Any] = dict(params)
        statistics: dict[str, Any] = {}
        for need in statistics_of(name):
            if need in BASE_STATISTICS:
                statistics[need] = self._base_statistic(name, STATISTICS[need].base)
            elif need == "calibration":
                through = {key: method_params.pop(key) for key in STATISTICS[need].params if key in method_params}
                statistics[need] = self._calibrated(ways, shots, through)
            elif need == "head":
                statistics[need] = self._head(name)
            elif need == "network_weights":
                statistics[need] = self._weighed(name, method_params, statistics, ways, shots)
        return bind(name, method_params, statistics)

    def _base_statistic(self, name: str, attribute: str) -> Tensor | None:
        """Take a statistic of the base classes; of several networks, all of them as the blocks of one matrix."""
        values = [getattr(member.base, attribute, None) for member in self._members_of(name)]
        if len(values) == 1 or any(value is None for value in values):
            return values[0] if len(values) == 1 else None
        blocks: Tensor = torch.block_diag(*values)  # type: ignore[no-untyped-call]
        return blocks

    def _weighed(self, name: str, params: Params, statistics: Params, ways: int, shots: int) -> Tensor | None:
        """Choose among several networks on validation tasks, once: the best, and every other that does no harm.

        Weights are 1 or 0. Networks are added in the order of their own accuracy.
        """
        validation = self.validation(name)
        if validation is None or isinstance(validation, Features):
            return None
        key = (name, ways, shots, json.dumps(params, sort_keys=True, default=list))
        if key not in self._weights:
            tasks = _validation_tasks(validation, WEIGHT_TASKS, ways, shots, self.seed)

            def accuracy(chosen: set[int]) -> float:
                weights = torch.tensor([float(i in chosen) for i in range(len(validation))])
                method = bind(name, params, {**statistics, "network_weights": weights})
                return float(evaluate(method, validation, tasks, device=self.device).mean)

            alone = [accuracy({i}) for i in range(len(validation))]
            order = sorted(range(len(validation)), key=lambda i: -alone[i])
            chosen, best = {order[0]}, alone[order[0]]
            for i in order[1:]:
                together = accuracy(chosen | {i})
                if together >= best:
                    chosen, best = chosen | {i}, together
            self._weights[key] = torch.tensor([float(i in chosen) for i in range(len(validation))])
        return self._weights[key]

    def _head(self, name: str) -> Head | None:
        """Read the head of the checkpoint that a name gives, or take that of the features, if it is of this method."""
        plain, _, file = name.partition(":")
        network = self._members_of(plain)[-1]
        if not file:
            return network.head if network.head is not None and network.head.name == plain else None
        if file not in self._heads:
            self._heads[file] = load_head(file).to(self.device)
        head, encoder = self._heads[file], network.features.source.get("encoder", "")
        trained = head.trained.get("encoder", "")
        if trained and encoder and trained != encoder:
            raise InputError(
                f"expected features of {trained!r}, which the head in {file} was trained on, got those of {encoder!r}: "
                "train a head on these features"
            )
        return head

    def _calibrated(self, ways: int, shots: int, params: Params) -> Calibration | None:
        """Take the given calibration, or make one from validation tasks of the same ways and shots, once."""
        if self.calibration is not None:
            if params:
                raise InputError(
                    f"the given calibration fixes {', '.join(sorted(params))} of combined: leave it out, or calibrate "
                    "again from validation features"
                )
            return self.calibration
        validation = self.validation("combined")
        key = (ways, shots, json.dumps(params, sort_keys=True, default=list))
        if validation is not None and key not in self._calibrations:
            try:
                tasks = _validation_tasks(validation, CALIBRATION_TASKS, ways, shots, self.seed)
                self._calibrations[key] = calibrate(validation, tasks, device=self.device, **params)
            except InputError as error:
                raise InputError(f"combined cannot be calibrated on the validation features: {error}") from None
        return self._calibrations.get(key)

    def temperature(self, name: str, method: Method, like: Tasks, progress: Progress | None = None) -> float | None:
        """Fit the temperature of a method's probabilities on validation tasks that are drawn like these.

        None without validation features, and where no such tasks can be drawn from them.
        """
        validation = self.validation(name)
        if validation is None:
            return None
        try:
            n_tasks, query = min(TEMPERATURE_TASKS, len(like)), plan_from(like.config["query"])
            tasks = _draw(_any(validation), n_tasks, like.ways, like.shots, query, self.seed)
            return fit_temperature(method, validation, tasks, device=self.device, progress=progress)
        except InputError:
            return None


def source_name(sources: Sequence[Mapping[str, Any]], short: bool = False) -> str:
    """Name the features of tasks by file and split; `short` counts the files if there are several.

    >>> source_name([{"file": "f.npz", "split": "test"}, {"file": "g.npz", "split": "test"}])
    'f.npz + g.npz (test)'
    >>> source_name([{"file": "f.npz", "split": "test"}, {"file": "g.npz", "split": "test"}], short=True)
    '2 networks (test)'
    """
    names = list(dict.fromkeys(str(one.get("file", "features")) for one in sources))
    files = f"{len(names)} networks" if short and len(names) > 1 else " + ".join(names)
    splits = ", ".join(dict.fromkeys(str(one["split"]) for one in sources if one.get("split")))
    return f"{files} ({splits})" if splits else files


def _draw(
    features: Features,
    n_tasks: int,
    ways: int,
    shots: int,
    query: Plan,
    seed: int,
    overlap: bool = False,
) -> Tasks:
    return sample_tasks(
        features.labels,
        n_tasks=n_tasks,
        ways=ways,
        shots=shots,
        query=query,
        seed=seed,
        overlap=overlap,
        classes=features.classes,
    )


def _validation_tasks(validation: Sets, n_tasks: int, ways: int, shots: int, seed: int) -> Tasks:
    """Sample balanced tasks, of as many queries as the smallest class has, 15 a class at most."""
    counts = _any(validation).counts
    per_class = max(1, min(15, int(counts[counts > 0].min()) - shots))
    return _draw(_any(validation), n_tasks, ways, shots, Balanced(per_class), seed)


def _any(sets: Sets) -> Features:
    """Choose any of several networks: their labels and classes are the same."""
    return sets if isinstance(sets, Features) else sets[0]


class Job(NamedTuple):
    """A method with its parameters, and the tasks to run it on."""

    method: str
    params: Params
    tasks: Tasks
    label: str = ""


def run(
    jobs: Iterable[Job],
    networks: Networks,
    *,
    temperatures: bool = True,
    finished: Callable[[Job], Result | None] = lambda job: None,
    refused: Callable[[Job, InputError], object] | None = None,
    progress: Progress = lambda steps: None,
    say: Callable[[str], None] = lambda stage: None,
) -> Iterator[tuple[Job, Result]]:
    """Evaluate one job after the other, and yield each with its result as soon as it is there.

    Args:
        jobs: What to evaluate.
        networks: The features and statistics.
        temperatures: Whether to fit the temperature of the probabilities on validation tasks.
        finished: Gives a result that is known already, or None.
        refused: Called with a job that cannot run, and why; without it, the error is raised.
        progress: Called with the number of tasks that have been done; see `work`.
        say: Called with the label of every job before it starts.
    """
    for job in jobs:
        say(job.label)
        result = finished(job)
        if result is None:
            try:
                method = networks.bind(job.method, job.params, ways=job.tasks.ways, shots=job.tasks.shots)
                fitted = networks.temperature(job.method, method, job.tasks, progress) if temperatures else None
                features = networks.features(job.method)
                result = evaluate(
                    method, features, job.tasks, device=networks.device, progress=progress, temperature=fitted
                )
            except InputError as error:
                if refused is None:
                    raise
                refused(job, error)
                progress(work([job], networks, temperatures))
                continue
            result = replace(
                result, method=row_name(job.method), config={**result.config, "networks": networks.digests}
            )
        else:
            progress(work([job], networks, temperatures))
        yield job, result


def work(jobs: Iterable[Job], networks: Networks, temperatures: bool = True) -> int:
    """Count the tasks that `run` reports for jobs, for a progress bar."""
    return sum(
        len(job.tasks)
        + (min(TEMPERATURE_TASKS, len(job.tasks)) if temperatures and networks.validation(job.method) else 0)
        for job in jobs
    )


def references(results: Sequence[Result]) -> list[Result]:
    """Choose what the others are compared with: the MLLs if there are any, else Euclidean, else the first."""
    known = {result.method: result for result in results}
    mll = [known[name] for name in ("mll", "mll_transductive") if name in known]
    return mll or [known.get("euclidean", results[0])]


def compare(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Summarise every result in one record, with its paired differences to the references of the same shots."""
    records = []
    for result in results:
        same = [other for other in results if other.config["shots"] == result.config["shots"]]
        gaps = {other.method: result.minus(other) for other in references(same)}
        minus = {name: {"mean": gap.mean, "ci95": gap.ci95} for name, gap in gaps.items()}
        records.append({**result.row(), "minus": minus})
    return records


def save_results(folder: Path, results: Sequence[Result], command: Sequence[str]) -> dict[str, Any]:
    """Write every result, the calibrations that were used, and evaluate.json, which it also returns.

    A file name ends in a digest of the method, its parameters, tasks and features, so that results of other settings in
    the same folder stay.
    """
    for result in results:
        config = result.config
        identity = [config[key] for key in ("method", "params", "tasks_digest", "networks")]
        setting = f"{config['ways']}way_{config['shots']}shot"
        result.save(folder / f"{config['query']['plan']}_{setting}_{result.method}_{_short_digest(identity)}.json")
        if calibration := config["params"].get("calibration"):
            write_document(folder / f"calibration_{setting}_{_short_digest(calibration)}.json", calibration)
    document = {"command": list(command), "environment": environment(), "rows": compare(results)}
    write_document(folder / "evaluate.json", document)
    return document


def _short_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def read_features(
    file: FeaturesFile | Path, *, split: str | None = None, labels: Path | None = None, rectify: bool = False
) -> Features:
    """Read features; with `rectify`, split signed ones into [relu(x), relu(-x)]."""
    features = (FeaturesFile(file) if isinstance(file, Path) else file).read(split, labels)
    return features.rectified() if rectify else features


def read_validation(path: Path, *, rectify: bool = False) -> Features:
    """Read validation features: the split val, or the only one."""
    file = FeaturesFile(path)
    return read_features(file, split="val" if "val" in file.splits else None, rectify=rectify)


def read_base(path: Path, *, rectify: bool = False) -> Base:
    """Read base features: the split train or base, or the only one."""
    file = FeaturesFile(path)
    base = file.base(rectify=rectify)
    if base is not None:
        return base
    if file.splits:
        raise InputError(
            f"expected base features in {path}, but it has the splits {', '.join(file.splits)}: call the split of the "
            "base classes train"
        )
    return Base.of(read_features(file, rectify=rectify))


def read_networks(
    files: Sequence[Path] = (),
    *,
    split: str | None = None,
    prefer: str | None = None,
    labels: Path | None = None,
    rectify: bool = False,
    val: Sequence[Path] = (),
    base: Path | None = None,
    methods: Iterable[str] = (),
    metrics: Sequence[str] | None = None,
    calibration: Calibration | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Networks:
    """Read the features of one network or several, with those of validation and base classes.

    Args:
        files: A features file for each network. Default: the packaged ones.
        split: The split to draw tasks from.
        prefer: The split to draw them from if none is given and the files have it.
        labels: Labels for files that have none.
        rectify: Whether to split signed features into [relu(x), relu(-x)].
        val: Files of validation features, one for each network. Default: the split val of `files`, unless it is tested.
        base: A file of base features, for the last network. Default: the split train of each, unless it is tested.
        methods: Base features are read only if one of these methods needs or takes them.
        metrics: As in `Networks`.
        calibration: As in `Networks`.
        seed: As in `Networks`.
        device: As in `Networks`.
    """
    metrics = tuple(calibration.metrics if calibration is not None else metrics or METRICS)
    paths = list(files) or [NETWORKS[metric] for metric in check_metrics(metrics)]
    if val and len(val) != len(paths):
        raise InputError(
            f"expected --val {len(paths)} times, a file for each network, but got {len(val)}: give one for each"
        )
    if base is not None:
        FeaturesFile(base)  # a wrong path shows even if no method needs it
    needs_base = any(need in BASE_STATISTICS for name in methods for need in statistics_of(name))
    members = []
    for number, path in enumerate(paths):
        file = FeaturesFile(path)
        chosen = prefer if split is None and prefer in file.splits else split
        features = read_features(file, split=chosen, labels=labels, rectify=rectify)
        tested = features.source.get("split", "")
        validation = None
        if val:
            validation = read_validation(val[number], rectify=rectify)
        elif tested != "val" and "val" in file.splits:
            validation = read_features(file, split="val", rectify=rectify)
        needed = any("head" in needs(name) for name in methods)
        head = head_of_features(path) if needed else None
        beside = needs_base and base is None and tested not in ("train", "base")
        known = file.base(rectify=rectify) if beside else None
        members.append(Network(features, validation, known, head if head is None else head.to(device)))
    if needs_base and base is not None:  # of the last: methods for one network are scored on it
        members[-1] = replace(members[-1], base=read_base(base, rectify=rectify))
    return Networks(members, metrics, calibration, seed, device)

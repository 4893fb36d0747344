"""A fitted classifier: labelled vectors and everything that their use needs, in memory and as one file."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from likelyshot.confidence.held_out import HeldOut, held_out, validation_temperature
from likelyshot.confidence.novelty import learn_novelty
from likelyshot.data.arrays import check_labelled, float_tensor, labelled_tensors
from likelyshot.data.features import Base, Features
from likelyshot.data.files import read_container, read_tensors, write_container
from likelyshot.errors import InputError
from likelyshot.functional.scores import rectify as split_signs
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import (
    Params,
    bind,
    check_params,
    facts_of,
    is_transductive,
    needs,
    parameters,
    parameters_of,
    statistics_of,
)
from likelyshot.methods.calibration import Calibration
from likelyshot.methods.facts import BASE_STATISTICS, STATISTICS
from likelyshot.own_data.answers import Answers, Judge
from likelyshot.own_data.rows import Vectors, as_tensor, scan
from likelyshot.own_data.scoring import Pieces, Score, learnt, scores_of

#: Without a method, a pile of at least this many items is classified transductively, a smaller one item by item.
TRANSDUCTIVE_FROM = 20
INDUCTIVE, TRANSDUCTIVE = "likelihood", "likelihood_mixture"
#: The inductive methods that stand in for transductive ones where there is no pile, and for all others.
STAND_IN, NEAREST_MEAN = {TRANSDUCTIVE: INDUCTIVE, "mll_transductive": "mll"}, "euclidean"

#: Rows of a pile that show what is unusual in it, and how sure a transductive method may be.
SAMPLE = 10_000

FORM = "likelyshot.model/2"
FILE = {"what": "a model of likelyshot", "remedy": "write one with likelyshot fit"}


@dataclass(frozen=True, eq=False)
class Model:
    """Labelled vectors with their classes, the method to classify with, and where the vectors came from.

    Args:
        support: Labelled vectors, (n, d) float32, as they came: not rectified.
        labels: Their classes, (n,) int64, from 0.
        classes: Names of the classes.
        method: A name in `likelyshot.methods.METHODS`; None to choose by the size of the pile.
        params: Parameters of the method.
        statistics: Statistics of base classes that the method needs: `base_mean`, `base_within`.
        temperatures: Temperatures of probabilities by method, fitted on validation features.
        encoder: Name of the encoder that made the vectors, empty if it is not known.
        encoder_digest: Digest of that encoder, empty if it is not known.
        rectified: Whether vectors are split into [relu(x), relu(-x)] before they are used.
        reject: Share of items of known classes that may be rejected as unknown.
        seed: Seed of the splits into examples that are held out and others, and of samples of the pile.

    >>> model = Model.fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
    >>> model.classes, model.method_for(5), model.method_for(500)
    (('high', 'wide'), 'likelihood', 'likelihood_mixture')
    """

    support: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    method: str | None = None
    params: Params = field(default_factory=dict)
    statistics: Mapping[str, Tensor] = field(default_factory=dict)
    temperatures: Mapping[str, float] = field(default_factory=dict)
    encoder: str = ""
    encoder_digest: str = ""
    rectified: bool = False
    reject: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_labelled(self.support, self.labels, self.classes)
        present = len(set(self.labels.tolist()))
        if len(self.classes) < 2 or present < len(self.classes):
            got = f"examples of {present} of {len(self.classes)} classes"
            raise InputError(f"expected two classes or more, and an example of each, but got {got}: label more")
        if not 0 <= self.reject < 1:
            raise InputError(f"the rejection rate must be at least 0 and below 1, got {self.reject}: try 0.05")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"the seed must be a whole number from 0 to 2^63 - 1, got {self.seed}: try 0")
        for name, temperature in self.temperatures.items():
            if not 0 < temperature < math.inf:
                raise InputError(f"the temperature of {name} must be positive and finite, got {temperature}: try 1")
        known = {key: value for name in self.methods for key, value in parameters(name).items()}
        check_params(" or ".join(self.methods), known, self.params)
        for key, statistic in self.statistics.items():
            dim = self.examples.shape[1]
            expected = (dim,) if key == "base_mean" else (dim, dim)
            if tuple(statistic.shape) != expected or not statistic.isfinite().all():
                got = f"{tuple(statistic.shape)}" if tuple(statistic.shape) != expected else "infinity or NaN"
                raise InputError(f"expected finite numbers of shape {expected} for {key}, but got {got}: fit again")
        for name in self.methods:
            self.bound(name)

    @classmethod
    def fit(
        cls,
        vectors: ArrayLike | Tensor,
        labels: ArrayLike,
        *,
        method: str | None = None,
        params: Params | None = None,
        base: Base | None = None,
        validation: Features | None = None,
        rectify: bool | None = None,
        encoder: str = "",
        encoder_digest: str = "",
        reject: float = 0.05,
        seed: int = 0,
    ) -> Model:
        """Make a model of labelled vectors.

        Args:
            vectors: Labelled vectors (n, d).
            labels: Their labels (n,), of two classes or more.
            method: A name in `likelyshot.methods.METHODS`. Default: `likelihood_mixture` for piles of 20 items or more,
                `likelihood` for smaller ones.
            params: Parameters of the method.
            base: Statistics of base classes, for methods that need their mean or covariance.
            validation: Features of other classes, on which temperatures are fitted. Without them, the temperature of
                probabilities comes from held-out labelled examples.
            rectify: Whether to split vectors into [relu(x), relu(-x)]. Default: if some are negative and the method
                needs non-negative ones.
            encoder: Name of the encoder that made the vectors.
            encoder_digest: Digest of that encoder; vectors of another one are refused later.
            reject: Share of items of known classes that may be rejected as unknown.
            seed: Seed of the splits into examples that are held out and others.
        """
        tensor, numbers, classes = labelled_tensors(vectors, labels)
        check_labelled(tensor, numbers, classes)
        needed = statistics_of(TRANSDUCTIVE if method is None else usable_method(method))
        statistics = {key: getattr(base, STATISTICS[key].base, None) for key in BASE_STATISTICS if key in needed}
        model = cls(
            support=tensor.detach().cpu().float(),
            labels=numbers.cpu(),
            classes=classes,
            method=method,
            params=dict(params or {}),
            statistics={key: value for key, value in statistics.items() if value is not None},
            encoder=encoder,
            encoder_digest=encoder_digest,
            rectified=bool(tensor.amin() < 0) and wants_rectified(method) if rectify is None else rectify,
            reject=reject,
            seed=seed,
        )
        if validation is None:
            return model
        if validation.dim != model.support.shape[1]:
            got = f"{validation.dim} numbers, and the labelled examples {model.support.shape[1]}"
            raise InputError(f"expected validation features of the same encoder, but they have {got}: embed them again")
        tasks = {"ways": len(model.classes), "shots": round(len(model.labels) / len(model.classes)), "seed": seed}
        validation = validation.rectified() if model.rectified else validation
        fitted = {name: validation_temperature(model.bound(name), validation, **tasks) for name in model.methods}
        return replace(model, temperatures=fitted)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it may use."""
        return (INDUCTIVE, TRANSDUCTIVE) if self.method is None else (usable_method(self.method),)

    def method_for(self, count: int) -> str:
        """Name the method for a pile of `count` items.

        Args:
            count: Number of items that can be used.
        """
        if self.method is not None:
            return self.method
        return INDUCTIVE if count < TRANSDUCTIVE_FROM else TRANSDUCTIVE

    @property
    def inductive(self) -> str:
        """The method where there is no pile: itself, its inductive form, or nearest class means if it has none."""
        name = self.method or TRANSDUCTIVE
        return STAND_IN.get(name, NEAREST_MEAN) if is_transductive(METHODS[name]) else name

    def params_for(self, name: str) -> dict[str, Any]:
        """Return all parameters of a method: those that were given, and the defaults of the others.

        Args:
            name: The method.
        """
        return {key: self.params.get(key, default) for key, default in parameters(name).items()}

    def bound(self, name: str) -> Method:
        """Bind a method to its parameters and statistics.

        Args:
            name: The method.
        """
        known = parameters_of(METHODS[name])
        statistics = {"calibration": self._calibration} if "calibration" in needs(name) else self.statistics
        return bind(name, {key: value for key, value in self.params.items() if key in known}, statistics)

    @functools.cached_property
    def examples(self) -> Tensor:
        """The labelled vectors as methods get them, (n, d), or (n, 2d) if they are rectified."""
        return split_signs(self.support) if self.rectified else self.support

    @functools.cached_property
    def _calibration(self) -> Calibration:
        """Of the combined metric, by leave-one-out on the labelled examples."""
        from likelyshot.estimators import CombinedClassifier

        params = {key: self.params_for("combined")[key] for key in STATISTICS["calibration"].params}
        return CombinedClassifier(**params).fit(self.examples.numpy(), self.labels.numpy()).calibration_

    def scores(
        self, vectors: Vectors, *, usable: NDArray[np.bool_] | None = None, progress: Progress | None = None
    ) -> Pieces:
        """Return a function that goes through the usable rows of a pile with their scores; see `scores_of`.

        Args:
            vectors: The pile, (n, d), not rectified.
            usable: Which rows can be used, (n,). Default: all.
            progress: Called with the number of rows read since the last call, by methods that read the pile often.
        """
        return scores_of(**self._scoring(vectors, usable, progress))

    def learnt(
        self, vectors: Vectors, *, usable: NDArray[np.bool_] | None = None, progress: Progress | None = None
    ) -> Score | None:
        """Learn from a pile what scores its rows one by one; see `likelyshot.own_data.scoring.learnt`.

        Args:
            vectors: The pile, (n, d), not rectified.
            usable: Which rows can be used, (n,). Default: all.
            progress: Called with the number of rows read since the last call, by methods that read the pile often.
        """
        return learnt(**self._scoring(vectors, usable, progress))

    def _scoring(self, vectors: Vectors, usable: NDArray[np.bool_] | None, progress: Progress | None) -> dict[str, Any]:
        count = len(vectors) if usable is None else int(usable.sum())
        return {
            "method": self.bound(self.method_for(count)),
            "support": self.examples,
            "labels": self.labels,
            "vectors": vectors,
            "n_ways": len(self.classes),
            "usable": usable,
            "rectified": self.rectified,
            "seed": self.seed,
            "progress": progress,
        }

    def sample(self, vectors: Vectors, *, usable: NDArray[np.bool_] | None = None) -> Tensor | None:
        """Draw at most 10,000 usable rows of a pile, if the method for it is transductive; None otherwise.

        Args:
            vectors: The pile, (n, d), not rectified.
            usable: Which rows can be used, (n,). Default: all.
        """
        rows = np.arange(len(vectors)) if usable is None else np.flatnonzero(usable)
        if not is_transductive(METHODS[self.method_for(len(rows))]):
            return None
        if len(rows) > SAMPLE:
            rows = np.sort(np.random.default_rng(self.seed).choice(rows, SAMPLE, replace=False))
        return as_tensor(vectors[rows], self.rectified).float()

    def held_out(self, name: str, pile: Tensor | None = None) -> HeldOut:
        """Score the labelled examples by a method that is given only the others; see `held_out`.

        Args:
            name: The method.
            pile: What `sample` drew, among which a transductive method scores the examples.
        """
        return held_out(self.bound(name), self.examples, self.labels, len(self.classes), query=pile, seed=self.seed)

    def judge(self, name: str, pile: Tensor | None = None, held_out: HeldOut | None = None) -> Judge:
        """Prepare to judge the scores of a method.

        Args:
            name: The method.
            pile: What `sample` drew. Without it, every item is judged on its own.
            held_out: What `Model.held_out` returned for the same method and pile, if that is known already.
        """
        temperature = self.temperatures.get(name)
        if temperature is None:
            temperature = (held_out or self.held_out(name, pile)).temperature()
        normalise = bool(self.params_for(self.methods[0]).get("normalise", True))
        novelty = learn_novelty(self.examples, self.labels, len(self.classes), pile=pile, normalise=normalise)
        threshold = novelty.threshold(self.reject, None if pile is None else novelty.score(pile))
        return Judge(self.classes, temperature, novelty, threshold, self.examples, self.labels)

    def answer(self, vectors: ArrayLike, names: Sequence[str] | None = None) -> Answers:
        """Classify rows (n, d), all at once. They must be finite, and none of them all zeros.

        Args:
            vectors: The rows, not rectified.
            names: Names of the rows. Default: "row 1", "row 2", ...

        >>> model = Model.fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
        >>> model.answer([[6.0, 8.5]], ["a.jpg"]).predicted
        ['high']
        """
        rows = np.atleast_2d(float_tensor(vectors).cpu().float().numpy())
        dim = self.support.shape[1]
        if rows.ndim != 2 or rows.shape[1] != dim or not len(rows):
            raise InputError(f"expected vectors of shape (n, {dim}), but got {rows.shape}: reshape them")
        usable = scan(rows).usable
        if not usable.all():
            raise InputError(f"row {int(usable.argmin())} is all zeros or not finite: remove it")
        names = [f"row {row + 1}" for row in range(len(rows))] if names is None else names
        judge = self.judge(self.method_for(len(rows)), self.sample(rows))
        pieces = list(self.scores(rows)())
        return judge.answers(torch.cat([x for x, _ in pieces]), torch.cat([s for _, s in pieces]), names)

    def check_encoder(self, name: str, digest: str) -> None:
        """Refuse vectors of another encoder than that of the labelled examples, where both are known.

        Args:
            name: Name of the encoder of the vectors.
            digest: Its digest, empty if it is not known.
        """
        if self.encoder_digest and digest and digest != self.encoder_digest:
            what = f"{self.encoder} ({self.encoder_digest[:12]}), but got {name} ({digest[:12]})"
            raise InputError(f"expected the encoder that the model was fitted with, {what}: install it, or fit again")

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file, whole or not at all. It holds no images, no paths and no code.

        Args:
            path: The safetensors file.
        """
        tensors = {"support": self.support, "labels": self.labels, **self.statistics}
        facts = {key: getattr(self, key) for key in _Facts.__struct_fields__}
        return write_container(path, tensors, facts, form=FORM)

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read what `save` wrote, and check it. The encoder is opened only when an image or a text comes.

        Args:
            path: The safetensors file.
        """
        try:
            tensors, facts = read_container(path, _Facts, form=FORM, **FILE)
        except InputError as error:
            tensors, facts = _version_1(path, error)
        if not {"support", "labels"} <= tensors.keys() <= {"support", "labels", *BASE_STATISTICS}:
            got = ", ".join(sorted(tensors)) or "none"
            raise InputError(f"expected the tensors of a model in {path}, but got {got}: {FILE['remedy']}")
        support, labels = tensors.pop("support"), tensors.pop("labels")
        settings = msgspec.structs.asdict(facts)
        settings["params"] = {key: tuple(v) if isinstance(v, list) else v for key, v in facts.params.items()}
        if facts.method is None and "shrinkage" in facts.params:  # up to 0.3 the automatic methods were forms of MLL
            settings["params"] = {k: v for k, v in settings["params"].items() if k in parameters(TRANSDUCTIVE)}
            settings["temperatures"] = {k: v for k, v in facts.temperatures.items() if k in (INDUCTIVE, TRANSDUCTIVE)}
        try:
            return cls(support, labels, statistics=tensors, **settings)
        except InputError as error:
            raise InputError(f"the model {path} cannot be used: {error}") from None


class _Facts(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says of a model besides its tensors."""

    classes: tuple[str, ...]
    method: str | None
    params: dict[str, bool | int | float | str | list[int | float | str] | None]
    temperatures: dict[str, float]
    encoder: str
    encoder_digest: str
    rectified: bool
    reject: float
    seed: int


def _version_1(path: str | Path, error: InputError) -> tuple[dict[str, Tensor], _Facts]:
    """Read the files of versions up to 0.3, or raise the error of reading a newer one."""
    tensors, notes = read_tensors(path, **FILE)
    if notes.get("format") != "likelyshot.model/1":
        raise error
    try:
        return tensors, msgspec.json.decode(notes.get("model", ""), type=_Facts)
    except (msgspec.MsgspecError, RecursionError) as damage:
        raise InputError(f"expected {FILE['what']}, but {path} is damaged ({damage}): {FILE['remedy']}") from None


def wants_rectified(method: str | None) -> bool:
    """Return whether a method (None: the automatic choice) cannot score negative numbers."""
    return method in (None, "combined") or bool(facts_of(METHODS[usable_method(method)]).non_negative)


def usable_method(method: str) -> str:
    """Give the name of a method back, or refuse one that is not known or needs a trained head.

    Args:
        method: A name in `METHODS`.
    """
    if "head" in needs(method):  # which refuses a name that is not known
        raise InputError(
            f"expected a method without a trained head, got {method!r}: use it by FewShotClassifier, with "
            "params={'head': likelyshot.load_head(path)}, or choose another"
        )
    return method

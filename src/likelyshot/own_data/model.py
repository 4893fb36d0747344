"""A fitted classifier: labelled vectors and all that their use needs, in memory and as one file."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from likelyshot.confidence.novelty import Novelty, learn_novelty
from likelyshot.confidence.temperature import is_transductive, support_temperature
from likelyshot.data.feature_files import reading
from likelyshot.data.features import Base, Features
from likelyshot.errors import InputError, nearest
from likelyshot.functional.normalise import rectify as split_signs
from likelyshot.machine import Progress
from likelyshot.methods import METHODS, Method, facts_of
from likelyshot.methods.binding import Params, needs, parameters
from likelyshot.methods.calibration import Calibration
from likelyshot.methods.facts import BASE_STATISTICS, STATISTICS
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.judge import Judge, validation_temperatures
from likelyshot.own_data.model_files import FACTS, read_model, write_model
from likelyshot.own_data.scoring import Pieces, scan, scores_of
from likelyshot.own_data.streaming import as_tensor

#: With no method named, a pile of so many is classified transductively, a smaller one item by item.
TRANSDUCTIVE_FROM = 20
INDUCTIVE, TRANSDUCTIVE = "mll", "mll_transductive"
#: Of the automatic methods: labelled examples are few and their numbers differ; the paper has 0.
SHRINKAGE = 1.0

#: Rows of a pile that tell what is strange in it, and how sure a transductive method may be.
SAMPLE = 10_000


@dataclass(frozen=True, eq=False)
class Model:
    """Labelled vectors with their classes, the method to classify with, and where the vectors came from.

    >>> model = Model.fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
    >>> model.classes, model.method_for(5), model.method_for(500)
    (('high', 'wide'), 'mll', 'mll_transductive')
    """

    support: Tensor  # (n, d) float32, as they came: not rectified
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    method: str | None = None  # None: by the size of the pile
    params: Params = field(default_factory=dict)
    statistics: Mapping[str, Tensor] = field(default_factory=dict)  # base_mean, base_within
    temperatures: Mapping[str, float] = field(default_factory=dict)  # by method, fitted on validation features
    encoder: str = ""
    encoder_digest: str = ""
    rectified: bool = False  # whether vectors are split into [relu(x), relu(-x)] before they are used
    reject: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        Features(self.support, self.labels, self.classes, {})  # checks shapes, values and names
        present = len(set(self.labels.tolist()))
        if len(self.classes) < 2 or present < len(self.classes):
            got = f"{present} of {len(self.classes)}"
            raise InputError(f"expected two classes or more, and an example of each, but got {got}: label more")
        if not 0 <= self.reject < 1:
            raise InputError(f"the rate of rejection must lie in 0..1, below 1, got {self.reject}: try 0.05")
        for name, temperature in self.temperatures.items():
            if not 0 < temperature < math.inf:
                raise InputError(f"the temperature of {name} must be positive and finite, got {temperature}: try 1")
        known = {key for name in self.methods for key in parameters(name)}
        for key in self.params:
            if key not in known:
                raise InputError(f"no parameter {key!r} in {' or '.join(self.methods)}: {nearest(key, known)}")
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
        progress: Progress | None = None,
    ) -> Model:
        """Keep labelled vectors (n, d) with their labels (n,), and what the method needs from other classes.

        `base` has the statistics of base classes for methods that centre on them; on `validation` features of other
        classes temperatures are fitted. `rectify` splits signed vectors; by default, where the method needs it and
        some are negative. `reject` is the share of items of known classes that may be taken for unknown ones.
        """
        examples = Features.from_arrays(vectors, labels)
        needed = needs(_known(method)) if method is not None else []
        statistics = {key: getattr(base, STATISTICS[key].base, None) for key in BASE_STATISTICS if key in needed}
        model = cls(
            support=examples.vectors.detach().cpu().float(),
            labels=examples.labels.cpu(),
            classes=examples.classes,
            method=method,
            params={**({"shrinkage": SHRINKAGE} if method is None else {}), **(params or {})},
            statistics={key: value for key, value in statistics.items() if value is not None},
            encoder=encoder,
            encoder_digest=encoder_digest,
            rectified=bool(examples.vectors.amin() < 0) and wants_rectified(method) if rectify is None else rectify,
            reject=reject,
            seed=seed,
        )
        if validation is None:
            return model
        if validation.dim != model.support.shape[1]:
            got = f"{validation.dim} numbers, but the labelled examples {model.support.shape[1]}"
            raise InputError(f"expected validation features of the same encoder, but they have {got}: embed them anew")
        fitted = validation_temperatures(
            {name: model.bound(name) for name in model.methods},
            validation.rectified() if model.rectified else validation,
            ways=len(model.classes),
            shots=round(len(model.labels) / len(model.classes)),
            seed=seed,
            progress=progress,
        )
        return replace(model, temperatures=fitted)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it may use."""
        return (INDUCTIVE, TRANSDUCTIVE) if self.method is None else (_known(self.method),)

    def method_for(self, count: int | None) -> str:
        """Name the method for a pile of `count` items; None is a stream, of which no end is known."""
        if self.method is not None:
            return self.method
        return INDUCTIVE if count is None or count < TRANSDUCTIVE_FROM else TRANSDUCTIVE

    def own_params(self, name: str) -> dict[str, Any]:
        """Give those of the parameters that a method has, the defaults among them."""
        known = parameters(name)
        return {**known, **{key: value for key, value in self.params.items() if key in known}}

    def bound(self, name: str) -> Method:
        """Give a method its parameters and statistics."""
        if "calibration" in needs(name):
            return functools.partial(METHODS[name], calibration=self._calibration, rule=self.own_params(name)["rule"])
        if missing := [key for key in needs(name) if key not in self.statistics]:
            raise InputError(f"{name} needs {' and '.join(missing)}: give base features (--base FILE)")
        given = {key: value for key, value in self.params.items() if key in parameters(name)}
        return functools.partial(METHODS[name], **given, **{key: self.statistics[key] for key in needs(name)})

    @functools.cached_property
    def examples(self) -> Tensor:
        """The labelled vectors as methods get them, (n, d), or (n, 2d) if they are rectified."""
        return split_signs(self.support) if self.rectified else self.support

    @functools.cached_property
    def _calibration(self) -> Calibration:
        """Of the combined metric, by leave-one-out on the labelled examples."""
        from likelyshot.estimators import CombinedClassifier

        own = {key: self.own_params("combined")[key] for key in ("metrics", "lambda_max", "normalise")}
        fitted = CombinedClassifier(**own).fit(self.examples.numpy(), self.labels.numpy())
        return fitted.calibration_

    def scores(
        self, vectors: NDArray[Any], *, usable: NDArray[np.bool_] | None = None, progress: Progress | None = None
    ) -> Pieces:
        """Give a function that goes through the usable rows of a pile with their scores; see `scores_of`."""
        count = len(vectors) if usable is None else int(usable.sum())
        return scores_of(
            self.bound(self.method_for(count)),
            self.examples,
            self.labels,
            vectors,
            n_ways=len(self.classes),
            usable=usable,
            rectified=self.rectified,
            progress=progress,
        )

    def novelty(self, pile: Tensor | None = None) -> Novelty:
        """Learn what belongs to no class: from the labelled examples, and from a sample of the pile (q, d)."""
        normalise = bool(self.own_params(self.methods[0]).get("normalise", True))
        return learn_novelty(self.examples, self.labels, len(self.classes), pile=pile, normalise=normalise)

    def judge(self, vectors: NDArray[Any] | None = None, *, usable: NDArray[np.bool_] | None = None) -> Judge:
        """Make ready to judge the scores of a pile, or of items that come one by one.

        A pile counts where the method is transductive, by a sample of at most 10,000 rows; else every item is judged
        on its own.
        """
        count = None if vectors is None else len(vectors) if usable is None else int(usable.sum())
        name = self.method_for(count)
        method, pile = self.bound(name), None
        if vectors is not None and is_transductive(method):
            rows = np.arange(len(vectors)) if usable is None else np.flatnonzero(usable)
            if len(rows) > SAMPLE:
                rows = np.sort(np.random.default_rng(self.seed).choice(rows, SAMPLE, replace=False))
            pile = as_tensor(vectors[rows], self.rectified).float()
        temperature = self.temperatures.get(name)
        if temperature is None:
            ways = len(self.classes)
            temperature = support_temperature(method, self.examples, self.labels, ways, query=pile, seed=self.seed)
        novelty = self.novelty(pile)
        threshold = novelty.threshold(self.reject, None if pile is None else novelty.score(pile))
        return Judge(self.classes, temperature, lambda rows: novelty.score(rows.float()), threshold)

    def answer(self, vectors: ArrayLike, names: Sequence[str] | None = None) -> Answers:
        """Classify rows (n, d), all at once; they must be finite and none of them all zeros.

        >>> model = Model.fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
        >>> model.answer([[6.0, 8.5]], ["a.jpg"]).predicted
        ['high']
        """
        rows = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        if rows.ndim != 2 or rows.shape[1] != self.support.shape[1] or not len(rows):
            raise InputError(
                f"expected vectors of shape (n, {self.support.shape[1]}), but got {rows.shape}: reshape them"
            )
        found = scan(rows)
        if not found.usable.all():
            bad = int(np.flatnonzero(~found.usable)[0])
            raise InputError(f"expected finite vectors that are not all zeros, but row {bad} is none: leave it out")
        names = [f"row {row + 1}" for row in range(len(rows))] if names is None else names
        judge = self.judge(rows)
        pieces = list(self.scores(rows)())
        return judge.answers(torch.cat([x for x, _ in pieces]), torch.cat([s for _, s in pieces]), names)

    def check_encoder(self, name: str, digest: str) -> None:
        """Refuse vectors of another encoder than that of the labelled examples, where both are known."""
        if self.encoder_digest and digest and digest != self.encoder_digest:
            what = f"{self.encoder} ({self.encoder_digest[:12]}), but got {name} ({digest[:12]})"
            raise InputError(f"expected the encoder that the model was fitted with, {what}: install it, or fit anew")

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file, whole or not at all; it holds no images, no paths and no code."""
        tensors = {"support": self.support, "labels": self.labels, **self.statistics}
        facts = {key: getattr(self, key) for key in FACTS}
        return write_model(path, tensors, facts)

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read what `save` wrote, and check it; no encoder is needed before an image comes."""
        with reading(Path(path)):
            tensors, facts = read_model(Path(path))
            support, labels = tensors.pop("support"), tensors.pop("labels")
            return cls(support, labels, tuple(facts.pop("classes")), statistics=tensors, **facts)


def wants_rectified(method: str | None) -> bool:
    """Tell whether a method (None: the automatic choice) has no answer for negative numbers."""
    return method in (None, "combined") or bool(facts_of(METHODS[_known(method)]).non_negative)


def _known(method: str) -> str:
    parameters(method)  # refuses a name that there is not
    return method

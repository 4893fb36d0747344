"""The methods as scikit-learn classifiers: `fit` on the few labelled examples, `predict` the rest.

Each class is a shell around a pure function of `likelyshot.methods`. numpy arrays, torch tensors, lists and
pandas tables are welcome; what fits in float32 is computed in float32, all else in float64. Parameters:
`lambda_max` bounds the rates 1 / prototype, `normalise` scales every row to length one first, `shrinkage` is a number
of examples that look like the average class and join every class (try 1 where shots are few or differ), `temperature`
divides the scores in `predict_proba`: a number, or "auto" to find it from the labelled examples
(`likelyshot.confidence`). Where a method needs non-negative features and the labelled examples are signed, they and
all that comes after are split into [relu(x), relu(-x)], with a warning; `rectified_` tells.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from likelyshot.confidence.temperature import is_transductive, support_temperature
from likelyshot.errors import InputError, nearest
from likelyshot.functional.normalise import l2_normalise, rectify
from likelyshot.functional.prototypes import class_means
from likelyshot.functional.temperature import probabilities
from likelyshot.machine import check_device
from likelyshot.methods import METHODS, Method, facts_of
from likelyshot.methods.binding import check_values, needs_of, parameters_of
from likelyshot.methods.calibration import METRICS, Calibration, fit_calibration
from likelyshot.methods.combined import score_columns
from likelyshot.methods.facts import STATISTICS, function_of, name_of
from likelyshot.methods.inputs import check_non_negative

if TYPE_CHECKING:
    from typing_extensions import Self


class _MethodClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps its support and scores queries by a method; subclasses say which."""

    _name: str
    device: str = "cpu"
    temperature: float | str

    def _method(self) -> Method:
        """Bind the method to its parameters."""
        method = METHODS[self._name]
        return functools.partial(method, **{key: getattr(self, key) for key in parameters_of(method)})

    def _metrics(self) -> Collection[str]:
        return (self._name,)

    def _normalises(self) -> bool:
        keywords = parameters_of(self._method())
        return bool(getattr(keywords.get("calibration"), "normalise", keywords.get("normalise", False)))

    def _non_negative(self) -> Collection[str]:
        """Name what has no answer for negative features."""
        return [name for name in self._metrics() if name in METHODS and facts_of(METHODS[name]).non_negative]

    def _may_rectify(self) -> bool:
        """Whether features may be split in two; not where a calibration is of features as they are."""
        return True

    def _learn(self) -> None:
        """Estimate what the method needs beyond the support."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = bool(self._non_negative()) and not self._may_rectify()
        tags.classifier_tags.poor_score = tags.input_tags.positive_only  # on its shifted blobs
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Keep the examples X (s, d) with their classes y (s,), and check that the method takes them."""
        check_device(self.device)
        X, y = validate_data(self, _array(X), _labels(y))
        check_classification_targets(y)
        self.classes_, self.labels_ = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = f"got only one class, {self.classes_.tolist()[0]!r}: add examples of another"
            raise InputError(f"few-shot classification needs at least two classes, {only}")
        self.rectified_ = bool(self._non_negative()) and self._may_rectify() and bool((X < 0).any())
        if self.rectified_:
            why = f"{type(self).__name__} needs non-negative features, and X has negative ones"
            warnings.warn(f"{why}: they are split, without loss, into [relu(x), relu(-x)]", stacklevel=2)
        self.support_ = self._checked(X).copy()
        self._learn()
        scores = self._scores(self.support_[:1])  # what the method refuses, it refuses here
        if self.temperature != "auto" or not is_transductive(self._method()):
            self.temperature_ = self._temperature()
            self._probabilities(scores, self.temperature_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Name the class with the highest score for every row of X."""
        winners = self._query_scores(X).argmax(-1)
        return np.asarray(self.classes_[winners])

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Give the method's scores (q, k), higher is better; of two classes the second's lead (q,)."""
        scores = self._query_scores(X)
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give softmax(scores / temperature), (q, k).

        With temperature "auto", examples held out of the support say how far the scores can be trusted; see
        `likelyshot.confidence`. `fit` finds it once, as `temperature_`. For a transductive method it depends on X.
        """
        query = self._query(X)
        fixed = self.temperature != "auto" or not is_transductive(self._method())
        return self._probabilities(self._scores(query), self.temperature_ if fixed else self._temperature(query))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the accuracy of `predict(X)`."""
        return float(super().score(X, _labels(y), sample_weight))

    def _query_scores(self, X: Any) -> NDArray[Any]:
        return self._scores(self._query(X))

    def _query(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._checked(validate_data(self, _array(X), reset=False))

    def _checked(self, X: NDArray[Any]) -> NDArray[Any]:
        """Choose the precision, rectify as the support was, and refuse or warn of what has no score."""
        X = X.astype(np.float32 if np.can_cast(X.dtype, np.float32) else np.float64, copy=False)
        if self.rectified_:
            X = np.asarray(rectify(_tensor(X, X.dtype)))
        for name in self._non_negative():
            check_non_negative(name, _tensor(X, X.dtype), who=f"Negative values in data: {type(self).__name__}")
        if not self._normalises():
            return X
        if X.shape[1] == 1:
            raise InputError("1 feature(s) scaled to length one says nothing: give more, or normalise=False")
        if len(zero := np.flatnonzero(~X.any(axis=1))):
            advice = "it has no direction, so that its class is a guess: drop such rows, or use normalise=False"
            warnings.warn(f"row {zero[0]} of X is all zeros, {len(zero)} of {len(X)} are: {advice}", stacklevel=3)
        return X

    def _scores(self, query: NDArray[Any]) -> NDArray[Any]:
        support, labels, query_set = self._inputs(query)
        scores = self._method()(support, labels, query_set, n_ways=len(self.classes_))
        return np.asarray(scores.detach().cpu().numpy())

    def _inputs(self, query: NDArray[Any]) -> list[torch.Tensor]:
        dtype = np.result_type(self.support_, query)
        inputs = _tensor(self.support_, dtype), _tensor(self.labels_, np.int64), _tensor(query, dtype)
        return [x.to(self.device) for x in inputs]

    def _temperature(self, query: NDArray[Any] | None = None) -> float:
        if self.temperature == "auto":
            support, labels, pile = self._inputs(self.support_[:0] if query is None else query)
            with torch.no_grad():
                return support_temperature(self._method(), support, labels, len(self.classes_), query=pile)
        try:
            return float(self.temperature)
        except (TypeError, ValueError):
            wrong = f"got {self.temperature!r}"
            raise InputError(f'temperature must be a positive finite number or "auto", {wrong}: try "auto"') from None

    def _probabilities(self, scores: NDArray[Any], temperature: float) -> NDArray[np.float64]:
        return np.asarray(probabilities(torch.from_numpy(scores), temperature).numpy())


@dataclass(eq=False, repr=False)
class FewShotClassifier(_MethodClassifier):
    """Any method by its name in `likelyshot.methods.METHODS`, or any function that is called like one.

    `params` holds keyword parameters and statistics, as in `{"lambda_max": 80.0}` or `{"base_mean": mean}`;
    `device` is as torch names it. If the method is transductive, the X of `predict` is one query set.

    >>> FewShotClassifier("cosine").fit([[3, 4], [4, 3]], ["high", "wide"]).predict([[6, 8.5]]).tolist()
    ['high']
    """

    method: str | Method = "mll"
    params: Mapping[str, Any] | None = None
    temperature: float | str = "auto"
    device: str = "cpu"

    def _method(self) -> Method:
        method = self.method if callable(self.method) else METHODS.get(str(self.method))
        if method is None:
            raise InputError(f"unknown method {self.method!r}: {nearest(str(self.method), METHODS)}")
        name, params, needs = name_of(method), self._given(), needs_of(method)
        known = [*needs, *parameters_of(method)]
        for given in params:
            if given not in known:
                raise InputError(f"{name} has no parameter {given!r}: {nearest(str(given), known)}")
        for key in needs:
            if params.get(key) is None:
                how = STATISTICS[key].python if key in STATISTICS else "it has no default"
                raise InputError(f"{name} needs {key} in params: {how}")
        _check_calibration(params.get("calibration"))
        check_values(name, parameters_of(method), params)
        arrays = [key for key, v in params.items() if isinstance(v, list) or (hasattr(v, "__array__") and np.ndim(v))]
        arrays += [key for key in needs if key != "calibration"]
        return functools.partial(method, **params | {key: _numbers(key, params[key]) for key in arrays})

    def _given(self) -> dict[str, Any]:
        if not isinstance(self.params or {}, Mapping):
            raise InputError(f"expected params as a dictionary of names and values, got {self.params!r}: try None")
        return dict(self.params or {})

    def _may_rectify(self) -> bool:
        return "calibration" not in self._given()

    def _metrics(self) -> Collection[str]:
        calibration = self._given().get("calibration")
        if isinstance(calibration, Calibration):
            return calibration.metrics
        if not callable(self.method):
            return (self.method,)
        return [name for name, ours in METHODS.items() if ours is function_of(self.method)]


@dataclass(eq=False, repr=False)
class MLLClassifier(_MethodClassifier):
    """Maximum log-likelihood of exponential features (`likelyshot.methods.mll`), every row on its own.

    >>> MLLClassifier().fit([[3, 4], [4, 3]], ["high", "wide"]).predict([[6, 8.5]]).tolist()
    ['high']
    """

    lambda_max: float = 40.0
    normalise: bool = True
    shrinkage: float = 0.0
    temperature: float | str = "auto"
    _name = "mll"


@dataclass(eq=False, repr=False)
class TransductiveMLLClassifier(_MethodClassifier):
    """Maximum log-likelihood whose prototypes follow the queries (`likelyshot.methods.mll_transductive`).

    The X of `predict`, `predict_proba`, `decision_function` and `score` is one query set: what a row gets
    depends on all rows of that X, so give all that is to be classified at once; their order does not matter.
    `iterations` updates move a prototype by the fraction `eta` to its queries; 0 are `MLLClassifier`.

    >>> classifier = TransductiveMLLClassifier().fit([[3, 4], [4, 3]], ["high", "wide"])
    >>> classifier.predict([[6, 8.5], [3, 4.1], [3, 2]]).tolist()
    ['high', 'high', 'wide']
    """

    lambda_max: float = 40.0
    iterations: int = 10
    eta: float = 0.5
    normalise: bool = True
    shrinkage: float = 0.0
    temperature: float | str = "auto"
    _name = "mll_transductive"


@dataclass(eq=False, repr=False)
class CombinedClassifier(_MethodClassifier):
    """One to three metrics through their joint Gaussians (`likelyshot.methods.combined`).

    A `calibration` by `likelyshot.calibrate` must fit the ways, shots (examples / classes) and dimension; its
    metrics, lambda_max and normalise then hold instead of those given here. Without one, `fit` makes one from
    the support: every example of a class with two or more is scored against its class without it (right
    pairs) and against the others (wrong pairs). Its class then lacks a shot that it has at prediction and
    looks less compact than it is: calibrate on validation tasks if you have any.

    >>> support, labels = [[3, 4], [3, 4.2], [3, 5], [4, 3], [4.2, 3], [4, 2]], ["high"] * 3 + ["wide"] * 3
    >>> CombinedClassifier(metrics=("cosine", "mll")).fit(support, labels).predict([[6, 8.5]]).tolist()
    ['high']
    """

    calibration: Calibration | None = None
    metrics: Sequence[str] = METRICS
    rule: str = "youden"
    lambda_max: float = 40.0
    normalise: bool = True
    temperature: float | str = "auto"

    def _method(self) -> Method:
        return functools.partial(METHODS["combined"], calibration=self.calibration_, rule=self.rule)

    def _may_rectify(self) -> bool:
        return self.calibration is None

    def _metrics(self) -> Collection[str]:
        return getattr(self.calibration, "metrics", self.metrics)

    def _normalises(self) -> bool:
        return bool(getattr(_check_calibration(self.calibration), "normalise", self.normalise))

    def _learn(self) -> None:
        self.calibration_ = self._leave_one_out() if self.calibration is None else self.calibration

    def _leave_one_out(self) -> Calibration:
        x, y = _tensor(self.support_, np.float64), _tensor(self.labels_, np.int64)
        ways, n = len(self.classes_), len(self.metrics)
        shots = y.bincount()[y].unsqueeze(-1)  # (s, 1)
        used = (shots > 1).flatten()  # (s,)
        if (count := int(used.sum())) <= n:
            least = f"takes {n + 1} examples of classes that have two, got {count}: label more"
            raise InputError(f"leave-one-out {least}, or give calibration={STATISTICS['calibration'].python}")
        x = l2_normalise(x) if self.normalise else x
        kind: dict[str, Any] = {"metrics": self.metrics, "lambda_max": self.lambda_max, "normalise": False}
        columns = score_columns(x, y, x, n_ways=ways, **kind)  # (s, k, n)
        rest = (shots * class_means(x, y, ways)[y] - x) / (shots - 1).clamp_min(1)  # (s, d), class without x
        rest = rest.maximum(x.amin(0))  # true but for rounding, which must not make it negative
        own = score_columns(rest[:, None], y.new_zeros(1), x[:, None], n_ways=1, **kind)  # (s, 1, 1, n)
        columns[torch.arange(len(y)), y] = own[:, 0, 0]
        kind |= {"normalise": self.normalise, "shots": len(y) / ways, "dims": (x.shape[-1],) * n}
        return fit_calibration(columns[used], y[used], **kind)


def _array(values: Any) -> Any:
    """Turn a tensor into an array that scikit-learn can check; leave everything else to it."""
    if isinstance(values, torch.Tensor):
        values = (values.float() if values.dtype == torch.bfloat16 else values).detach().cpu().numpy()
    return values


def _labels(y: Any) -> Any:
    """Free numbers and truth values from an object array, in which scikit-learn takes only strings."""
    y = np.array(y, dtype=object) if isinstance(y, list | tuple) else _array(y)
    if getattr(y, "dtype", None) != np.dtype(object):
        return y
    if (plain := np.array(list(y))).dtype.kind in "biuf":
        return plain
    if kinds := {type(label).__name__ for label in np.ravel(y)} - {"str", "str_"}:
        raise InputError(f"expected labels all strings or all numbers, got some {', '.join(sorted(kinds))}")
    return y


def _tensor(array: NDArray[Any], dtype: Any) -> torch.Tensor:
    """Share the array's memory where torch can: if writable, contiguous and in native byte order."""
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def _numbers(key: str, value: Any) -> torch.Tensor:
    """Take numbers in any container as a tensor."""
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        how = STATISTICS[key].python if key in STATISTICS else "give an array"
        raise InputError(f"expected {key} in params as numbers, got {value!r}: {how}")
    return torch.tensor(value if isinstance(value, list) else array)


def _check_calibration(calibration: Any) -> Calibration | None:
    if not isinstance(calibration, Calibration | None):
        how = f"make one with {STATISTICS['calibration'].python}, or likelyshot.Calibration.load(path)"
        raise InputError(f"expected a likelyshot.Calibration, got {type(calibration).__name__}: {how}")
    return calibration

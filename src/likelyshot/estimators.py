"""The methods as scikit-learn classifiers: `fit` on the few labelled examples, `predict` the rest.

Each class is a shell around a pure function of `likelyshot.methods`. numpy arrays, torch tensors, lists and
pandas tables are welcome; what fits in float32 is computed in float32, all else in float64.
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

from likelyshot.confidence.held_out import support_temperature
from likelyshot.data.arrays import check_unmasked
from likelyshot.errors import InputError, nearest, shown
from likelyshot.functional.checks import check_non_negative
from likelyshot.functional.scores import (
    check_temperature,
    class_means,
    l2_normalise,
    probabilities,
    rate_bound,
    rectify,
)
from likelyshot.machine import check_device
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import (
    check_values,
    facts_of,
    function_of,
    is_transductive,
    name_of,
    needs_of,
    parameters_of,
    takes_of,
)
from likelyshot.methods.calibration import METRICS, Calibration, check_metrics, fit_calibration
from likelyshot.methods.combined import check_calibration, score_columns
from likelyshot.methods.facts import STATISTICS

if TYPE_CHECKING:
    from typing_extensions import Self


class _MethodClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that keeps its support and scores queries by a method; subclasses say which."""

    _name: str
    device: str = "cpu"
    temperature: float | str
    normalise: bool

    def _method(self) -> Method:
        """Bind the method to its parameters."""
        method = METHODS[self._name]
        return functools.partial(method, **{key: getattr(self, key) for key in parameters_of(method)})

    def _metrics(self) -> Collection[str]:
        """Name the methods that score the features."""
        return (self._name,)

    def _given_calibration(self) -> Calibration | None:
        """Give the calibration that came from other data: its settings hold, and its features are not changed."""
        return None

    def _non_negative(self) -> list[str]:
        """Name what has no answer for negative features."""
        names = getattr(self._given_calibration(), "metrics", None) or self._metrics()
        return [name for name in names if isinstance(name, str) and _needs_non_negative(name)]

    def _learn(self) -> None:
        """Estimate what the method needs beyond the support."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = bool(self._given_calibration() and self._non_negative())
        tags.classifier_tags.poor_score = tags.input_tags.positive_only  # on its shifted blobs
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Keep the labelled examples, and check that the method takes them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The feature vectors of the labelled examples.
        y : array-like of shape (n_samples,)
            Their classes, all strings or all numbers; at least two different ones.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        check_device(self.device)
        X, y = validate_data(self, _array(X), _labels(y))
        check_classification_targets(y)
        self.classes_, self.labels_ = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = f"got only one class, {self.classes_.tolist()[0]!r}: add examples of another"
            raise InputError(f"few-shot classification needs at least two classes, {only}")
        may_rectify = self._given_calibration() is None and bool(self._non_negative())
        self.rectified_ = may_rectify and bool((X < 0).any())
        if self.rectified_:
            why = f"{type(self).__name__} needs non-negative features, and X has negative ones"
            warnings.warn(f"{why}: features are split without loss into [relu(x), relu(-x)]", stacklevel=2)
        self.support_ = self._checked(X).copy()
        self._learn()
        scores = self._scores(self.support_[:1])  # what the method refuses, it refuses here
        if self.temperature != "auto" or not is_transductive(self._method()):
            self.temperature_ = self._temperature()
            self._probabilities(scores, self.temperature_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Name the class with the highest score for every row of X.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The feature vectors to classify.

        Returns
        -------
        classes : ndarray of shape (n_queries,)
            A class of `classes_` for every row.
        """
        winners = self._query_scores(X).argmax(-1)
        return np.asarray(self.classes_[winners])

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Give the method's scores; higher is better.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The feature vectors to classify.

        Returns
        -------
        scores : ndarray of shape (n_queries, n_classes) or (n_queries,)
            With two classes, by how much the score of the second is above that of the first.
        """
        scores = self._query_scores(X)
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give the probabilities of the classes, softmax(scores / temperature).

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The feature vectors to classify.

        Returns
        -------
        probabilities : ndarray of shape (n_queries, n_classes)
            The columns are in the order of `classes_`.
        """
        query = self._query(X)
        fixed = self.temperature != "auto" or not is_transductive(self._method())
        return self._probabilities(self._scores(query), self.temperature_ if fixed else self._temperature(query))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the accuracy of `predict(X)`.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The feature vectors to classify.
        y : array-like of shape (n_queries,)
            Their true classes.
        sample_weight : array-like of shape (n_queries,) or None, default=None
            How much every row counts; by default, all count the same.

        Returns
        -------
        accuracy : float
            The share of the rows that are classified correctly.
        """
        return float(super().score(X, _labels(y), sample_weight))

    def _query_scores(self, X: Any) -> NDArray[Any]:
        return self._scores(self._query(X))

    def _query(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._checked(validate_data(self, _array(X), reset=False))

    def _checked(self, X: NDArray[Any]) -> NDArray[Any]:
        """Choose the precision, rectify if the support was, and refuse or warn about rows that have no score."""
        X = X.astype(np.float32 if np.can_cast(X.dtype, np.float32) else np.float64, copy=False)
        if self.rectified_:
            X = np.asarray(rectify(_tensor(X, X.dtype)))
        for name in self._non_negative():
            check_non_negative(name, _tensor(X, X.dtype), who=f"Negative values in data: {type(self).__name__}")
        if not (self._given_calibration() or self).normalise:
            return X
        if X.shape[1] == 1:  # the number of features first, as scikit-learn's checks want it
            only = "1 feature(s) is not enough: a single feature carries no information once normalised"
            raise InputError(f"{only}: pass more features, or use normalise=False")
        if len(zero := np.flatnonzero(~X.any(axis=1))):
            advice = "a zero row has no direction, so its class is a guess: drop such rows, or use normalise=False"
            warnings.warn(
                f"{len(zero)} of {len(X)} rows of X are all zeros, first row {zero[0]}: {advice}", stacklevel=3
            )
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
        check_temperature(self.temperature, 'or use "auto"')
        return float(self.temperature)

    def _probabilities(self, scores: NDArray[Any], temperature: float) -> NDArray[np.float64]:
        return np.asarray(probabilities(torch.from_numpy(scores), temperature).numpy())


@dataclass(eq=False, repr=False)
class FewShotClassifier(_MethodClassifier):
    """Classify by any method of this package, or by a function of your own that is called like one.

    With a transductive method, the `X` of `predict`, `predict_proba`, `decision_function` and `score` is one query
    set: what a row gets depends on all rows of that `X`.

    Parameters
    ----------
    method : str or callable, default="likelihood"
        A name in `likelyshot.methods.METHODS`, or a function `(support, labels, query, *, n_ways, ...) -> scores`.
    params : dict or None, default=None
        Keyword parameters of the method, and the statistics that it needs, as in `{"lambda_max": 80.0}` or
        `{"base_mean": mean}`; `likelyshot list METHOD` describes them.
    temperature : float or "auto", default="auto"
        What scores are divided by in `predict_proba`. "auto" finds it from the labelled examples: some of them are
        held out and show how far the scores can be trusted (`likelyshot.confidence`).
    device : str, default="cpu"
        Where to compute, as torch names it: "cpu", "cuda", "cuda:1", "mps".

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    support_ : ndarray of shape (n_samples, n_features_in_) or (n_samples, 2 * n_features_in_)
        The labelled examples, split in two if `rectified_`.
    labels_ : ndarray of shape (n_samples,)
        The class of every labelled example, as a position in `classes_`.
    rectified_ : bool
        Whether features are split into [relu(x), relu(-x)], because the method needs non-negative features and
        the labelled examples are signed.
    temperature_ : float
        The temperature of `predict_proba`. Found by `fit`, or the number given; absent with "auto" and a
        transductive method, where every `X` has its own.
    n_features_in_ : int
        The number of features that `fit` saw.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` was a table whose column names are all strings.

    Examples
    --------
    >>> FewShotClassifier("cosine").fit([[3, 4], [4, 3]], ["high", "wide"]).predict([[6, 8.5]]).tolist()
    ['high']
    """

    method: str | Method = "likelihood"
    params: Mapping[str, Any] | None = None
    temperature: float | str = "auto"
    device: str = "cpu"

    def _method(self) -> Method:
        method = self.method if callable(self.method) else METHODS.get(str(self.method))
        if method is None:
            raise InputError(f"unknown method {self.method!r}: {nearest(str(self.method), METHODS)}")
        name, params, needs, takes = name_of(method), self._method_params(), needs_of(method), takes_of(method)
        known = [*needs, *takes, *parameters_of(method)]
        for parameter in params:
            if parameter not in known:
                raise InputError(f"{name} has no parameter {parameter!r}: {nearest(str(parameter), known)}")
        for key in needs:
            if params.get(key) is None:
                how = STATISTICS[key].python if key in STATISTICS else "it has no default"
                raise InputError(f"{name} needs {key} in params: {how}")
        if "calibration" in params:
            check_calibration(params["calibration"])
        check_values(name, parameters_of(method), params)
        arrays = [key for key, v in params.items() if isinstance(v, list) or (hasattr(v, "__array__") and np.ndim(v))]
        arrays += [key for key in needs if key not in ("calibration", "head")]
        arrays += [key for key in takes if params.get(key) is not None]
        return functools.partial(method, **params | {key: _numbers(key, params[key]) for key in arrays})

    def _method_params(self) -> dict[str, Any]:
        if self.params is not None and not isinstance(self.params, Mapping):
            got = shown(self.params)
            raise InputError(f"expected params as a dictionary of names and values, got {got}: pass one")
        return dict(self.params or {})

    @property
    def normalise(self) -> bool:  # type: ignore[override]
        """Whether the method scales every row to unit length; what a parameter of your own function means is yours."""
        return bool(self._metrics() and parameters_of(self._method()).get("normalise", False))

    def _given_calibration(self) -> Calibration | None:
        calibration = self._method_params().get("calibration")
        return calibration if isinstance(calibration, Calibration) else None

    def _metrics(self) -> Collection[str]:
        if not callable(self.method):
            return (self.method,)
        return [name for name, method in METHODS.items() if method is function_of(self.method)]


@dataclass(eq=False, repr=False)
class MLLClassifier(_MethodClassifier):
    """Classify by the maximum log-likelihood of exponential features (`likelyshot.methods.mll`).

    Every row of `X` is classified on its own.

    Parameters
    ----------
    lambda_max : float, default=None
        The upper bound of the rates 1 / prototype. Without it, a feature that is zero in all examples of a class
        would rule that class out. None: the paper's 40, or 1.5 / the mean of all features if that is more.
    normalise : bool, default=True
        Whether to scale every row to unit length first.
    shrinkage : float, default=0.0
        The number of imaginary examples that look like the average class and join every class. Try 1 where shots
        are few or differ between classes; the paper has none.
    temperature : float or "auto", default="auto"
        What scores are divided by in `predict_proba`. "auto" finds it from the labelled examples: some of them are
        held out and show how far the scores can be trusted (`likelyshot.confidence`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    support_ : ndarray of shape (n_samples, n_features_in_) or (n_samples, 2 * n_features_in_)
        The labelled examples, split in two if `rectified_`.
    labels_ : ndarray of shape (n_samples,)
        The class of every labelled example, as a position in `classes_`.
    rectified_ : bool
        Whether features are split into [relu(x), relu(-x)], because the method needs non-negative features and
        the labelled examples are signed.
    temperature_ : float
        The temperature of `predict_proba`. Found by `fit`, or the number given.
    n_features_in_ : int
        The number of features that `fit` saw.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` was a table whose column names are all strings.

    Examples
    --------
    >>> MLLClassifier().fit([[3, 4], [4, 3]], ["high", "wide"]).predict([[6, 8.5]]).tolist()
    ['high']
    """

    lambda_max: float | None = None
    normalise: bool = True
    shrinkage: float = 0.0
    temperature: float | str = "auto"
    _name = "mll"


@dataclass(eq=False, repr=False)
class TransductiveMLLClassifier(_MethodClassifier):
    """Classify by maximum log-likelihood with prototypes that follow the queries.

    The method is `likelyshot.methods.mll_transductive`. The `X` of `predict`, `predict_proba`, `decision_function` and
    `score` is one query set: what a row gets depends on all rows of that `X`. So pass everything that you want to
    classify at once; the order of the rows does not matter.

    Parameters
    ----------
    lambda_max : float, default=None
        The upper bound of the rates 1 / prototype. Without it, a feature that is zero in all examples of a class
        would rule that class out. None: the paper's 40, or 1.5 / the mean of all features if that is more.
    iterations : int, default=10
        The number of updates of the prototypes; 0 gives the scores of `MLLClassifier`.
    eta : float, default=0.5
        How far an update moves a prototype towards its queries, from 0 to 1.
    normalise : bool, default=True
        Whether to scale every row to unit length first.
    shrinkage : float, default=0.0
        The number of imaginary examples that look like the average class and join every class. Try 1 where shots
        are few or differ between classes; the paper has none.
    temperature : float or "auto", default="auto"
        What scores are divided by in `predict_proba`. "auto" finds it from the labelled examples: some of them are
        held out and show how far the scores can be trusted (`likelyshot.confidence`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    support_ : ndarray of shape (n_samples, n_features_in_) or (n_samples, 2 * n_features_in_)
        The labelled examples, split in two if `rectified_`.
    labels_ : ndarray of shape (n_samples,)
        The class of every labelled example, as a position in `classes_`.
    rectified_ : bool
        Whether features are split into [relu(x), relu(-x)], because the method needs non-negative features and
        the labelled examples are signed.
    temperature_ : float
        The temperature of `predict_proba`. The number given; absent with "auto", where every `X` has its own.
    n_features_in_ : int
        The number of features that `fit` saw.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` was a table whose column names are all strings.

    Examples
    --------
    >>> classifier = TransductiveMLLClassifier().fit([[3, 4], [4, 3]], ["high", "wide"])
    >>> classifier.predict([[6, 8.5], [3, 4.1], [3, 2]]).tolist()
    ['high', 'high', 'wide']
    """

    lambda_max: float | None = None
    iterations: int = 10
    eta: float = 0.5
    normalise: bool = True
    shrinkage: float = 0.0
    temperature: float | str = "auto"
    _name = "mll_transductive"


@dataclass(eq=False, repr=False)
class CombinedClassifier(_MethodClassifier):
    """Classify by one to three metrics together, through the joint Gaussians of their scores.

    The method is `likelyshot.methods.combined`. Without a `calibration`, `fit` makes one from the labelled examples:
    it scores every example of a class with two or more against its own class without that example (right pairs) and
    against the other classes (wrong pairs). A class then has one shot less than it has at prediction, and looks less
    compact than it is: calibrate on validation tasks if you have any.

    Parameters
    ----------
    calibration : Calibration or None, default=None
        What `likelyshot.calibrate` made from validation tasks of the same number of classes, shots (examples per
        class) and features. Its metrics, lambda_max and normalise then replace those given here.
    metrics : sequence of str, default=("euclidean", "cosine", "mll")
        The metrics to combine, one to three of these.
    rule : str, default="youden"
        The index that decides: "youden", "closest" or "concordance", see `likelyshot.methods.combined.RULES`.
    lambda_max : float, default=None
        The upper bound of the rates 1 / prototype. Without it, a feature that is zero in all examples of a class
        would rule that class out. None: the paper's 40, or 1.5 / the mean of all features if that is more.
    normalise : bool, default=True
        Whether to scale every row to unit length first.
    temperature : float or "auto", default="auto"
        What scores are divided by in `predict_proba`. "auto" finds it from the labelled examples: some of them are
        held out and show how far the scores can be trusted (`likelyshot.confidence`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    support_ : ndarray of shape (n_samples, n_features_in_) or (n_samples, 2 * n_features_in_)
        The labelled examples, split in two if `rectified_`.
    labels_ : ndarray of shape (n_samples,)
        The class of every labelled example, as a position in `classes_`.
    rectified_ : bool
        Whether features are split into [relu(x), relu(-x)], because the method needs non-negative features and
        the labelled examples are signed.
    temperature_ : float
        The temperature of `predict_proba`. Found by `fit`, or the number given.
    calibration_ : Calibration
        The calibration given, or the one that `fit` made.
    n_features_in_ : int
        The number of features that `fit` saw.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if `X` was a table whose column names are all strings.

    Examples
    --------
    >>> support, labels = [[3, 4], [3, 4.2], [3, 5], [4, 3], [4.2, 3], [4, 2]], ["high"] * 3 + ["wide"] * 3
    >>> CombinedClassifier(metrics=("cosine", "mll")).fit(support, labels).predict([[6, 8.5]]).tolist()
    ['high']
    """

    calibration: Calibration | None = None
    metrics: Sequence[str] = METRICS
    rule: str = "youden"
    lambda_max: float | None = None
    normalise: bool = True
    temperature: float | str = "auto"

    def _method(self) -> Method:
        return functools.partial(METHODS["combined"], calibration=self.calibration_, rule=self.rule)

    def _metrics(self) -> Collection[str]:
        return self.metrics if isinstance(self.metrics, list | tuple) else ()

    def _given_calibration(self) -> Calibration | None:
        return self.calibration if isinstance(self.calibration, Calibration) else None

    def _learn(self) -> None:
        if self.calibration is not None:
            check_calibration(self.calibration)
        self.calibration_ = self._leave_one_out() if self.calibration is None else self.calibration

    def _leave_one_out(self) -> Calibration:
        x, y = _tensor(self.support_, np.float64), _tensor(self.labels_, np.int64)
        if not isinstance(self.metrics, list | tuple):
            raise InputError(f"expected metrics as a list of names, got {self.metrics!r}: choose from {METRICS}")
        ways, n = len(self.classes_), len(check_metrics(self.metrics))
        shots = y.bincount()[y].unsqueeze(-1)  # (s, 1)
        used = (shots > 1).flatten()  # (s,)
        if (count := int(used.sum())) <= n:
            raise InputError(
                f"calibrating on the labelled examples needs {n + 1} of them in classes that have at least two, got "
                f"{count}: label more, or pass calibration={STATISTICS['calibration'].python}"
            )
        x = l2_normalise(x) if self.normalise else x
        bound = float(rate_bound(x)) if self.lambda_max is None else self.lambda_max
        kind: dict[str, Any] = {"metrics": self.metrics, "lambda_max": bound, "normalise": False}
        columns = score_columns(x, y, x, n_ways=ways, **kind)  # (s, k, n)
        without_x = (shots * class_means(x, y, ways)[y] - x) / (shots - 1).clamp_min(1)  # (s, d), class without x
        without_x = without_x.maximum(x.amin(0))  # true but for rounding, which must not make it negative
        own_columns = score_columns(without_x[:, None], y.new_zeros(1), x[:, None], n_ways=1, **kind)  # (s, 1, 1, n)
        columns[torch.arange(len(y)), y] = own_columns[:, 0, 0]
        kind |= {"normalise": self.normalise, "shots": len(y) / ways, "dims": (x.shape[-1],) * n}
        return fit_calibration(columns[used], y[used], **kind)


def _needs_non_negative(name: str) -> bool:
    return name in METHODS and facts_of(METHODS[name]).non_negative


def _array(values: Any) -> Any:
    """Turn a tensor into an array that scikit-learn can check; leave all else to it, except masks, which it ignores."""
    check_unmasked(values)
    if isinstance(values, torch.Tensor):
        values = (values.float() if values.dtype == torch.bfloat16 else values).detach().cpu().numpy()
    return values


def _labels(y: Any) -> Any:
    """Free numbers and truth values from an object array, in which scikit-learn takes only strings."""
    check_unmasked(y)
    y = np.array(y, dtype=object) if isinstance(y, list | tuple) else _array(y)
    if getattr(y, "dtype", None) != np.dtype(object):
        return y
    if (plain := np.array(list(y))).dtype.kind in "biuf":
        return plain
    if kinds := {type(label).__name__ for label in np.ravel(y)} - {"str", "str_"}:
        mixed = ", ".join(sorted(kinds))
        raise InputError(f"expected labels that are all strings or all numbers, got some {mixed}: convert them")
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

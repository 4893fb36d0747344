"""The methods as scikit-learn classifiers: `fit` on the few labelled examples, `predict` the rest.

Each class is a shell around the pure function of `likelyshot.methods` that it names: it checks and encodes what comes
in, stores the labelled examples, and turns scores into labels and probabilities. numpy arrays, torch tensors, lists
and pandas tables are welcome; float32 (or anything that fits in it) is computed in float32, all else in float64.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from likelyshot.errors import InputError, nearest
from likelyshot.functional.normalise import l2_normalise
from likelyshot.functional.prototypes import class_means
from likelyshot.methods import METHODS, Method, combined, mll, mll_transductive
from likelyshot.methods.calibration import METRICS, Calibration, fit_calibration
from likelyshot.methods.combined import score_columns
from likelyshot.methods.inputs import check_non_negative

if TYPE_CHECKING:
    from typing_extensions import Self

#: How to get the statistics that some methods need from other data.
STATISTICS = {
    "base_mean": "the mean feature vector of the base classes",
    "calibration": "likelyshot.calibrate(validation features, tasks)",
}


class _MethodClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that stores its support and scores queries by a method; subclasses say which."""

    device: str = "cpu"
    temperature: float

    def _method(self) -> Method:
        """Bind the parameters to the method."""
        raise NotImplementedError

    def _metrics(self) -> Collection[str]:
        """Name the metrics that the method computes, for the tag of non-negative input; must not raise."""
        return ("mll",)

    def _normalises(self) -> bool:
        return bool(_keywords(self._method()).get("normalise", False))

    def _learn(self) -> None:
        """Estimate what the method needs beyond the support."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not {"mll", "mll_transductive"}.isdisjoint(self._metrics())
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Store the labelled examples X (s, d) with their classes y (s,), and check that the method takes them."""
        X, y = validate_data(self, _array(X), _labels(y))
        check_classification_targets(y)
        self.classes_, self.labels_ = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"few-shot classification needs at least two classes, got only one class, {self.classes_[0]!r}: "
                "add examples of another"
            )
        if self._normalises() and X.shape[1] == 1:
            raise InputError(
                "normalised to length one, 1 feature(s) per example all become the same: give more features or turn "
                "normalise off"
            )
        self.support_ = self._checked(X).copy()
        self._learn()
        self._probabilities(self._scores(self.support_[:1]))  # a parameter that the method refuses is refused here
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Name the class with the highest score for every row of X."""
        return np.asarray(self.classes_[self._validated_scores(X).argmax(-1)])

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Give the method's scores, (q, k), higher is better; of two classes (q,), how far the second is ahead."""
        scores = self._validated_scores(X)
        return scores if len(self.classes_) > 2 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give softmax(scores / temperature), (q, k).

        The order is that of the scores, but the values are overconfident when the features depend on each other, as
        those of a network do: a larger `temperature` tempers them. It is a constant, not yet fitted to the data.
        """
        return self._probabilities(self._validated_scores(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Give the accuracy of `predict(X)`."""
        return float(super().score(X, _labels(y), sample_weight))

    def _validated_scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._scores(self._checked(validate_data(self, _array(X), reset=False)))

    def _checked(self, X: NDArray[Any]) -> NDArray[Any]:
        """Refuse rows that the method has no score for, and choose the precision."""
        X = X.astype(np.float32 if np.can_cast(X.dtype, np.float32) else np.float64, copy=False)
        if self.__sklearn_tags__().input_tags.positive_only:
            check_non_negative(f"Negative values in data: {type(self).__name__}", _tensor(X, X.dtype))
        zero = np.flatnonzero(~X.any(axis=1)) if self._normalises() else ()
        if len(zero):
            raise InputError(
                f"row {zero[0]} of X is all zeros, {len(zero)} of {len(X)} are: it has no direction to normalise, so "
                "drop such rows or turn normalise off (a calibration has its own: calibrate with normalise=False)"
            )
        return X

    def _scores(self, query: NDArray[Any]) -> NDArray[Any]:
        dtype = np.result_type(self.support_, query)
        inputs = [_tensor(self.support_, dtype), _tensor(self.labels_, np.int64), _tensor(query, dtype)]
        try:
            inputs = [x.to(self.device) for x in inputs]
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"cannot compute {dtype} on device {self.device!r} ({reason}): use device='cpu'"
            ) from error
        scores = self._method()(*inputs, n_ways=len(self.classes_))
        return np.asarray(scores.detach().cpu().numpy())

    def _probabilities(self, scores: NDArray[Any]) -> NDArray[np.float64]:
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"temperature must be a positive finite number, got {self.temperature}: 1 is the default")
        behind = (scores - scores.max(-1, keepdims=True)).astype(np.float64)
        with np.errstate(over="ignore"):  # a small temperature may send the losers to exp(-inf) = 0
            likelihoods = np.exp(behind / self.temperature)
        return np.asarray(likelihoods / likelihoods.sum(-1, keepdims=True))


class FewShotClassifier(_MethodClassifier):
    """Any method by its name, or any function `(support, labels, query, *, n_ways, ...) -> scores`.

    Args:
        method: a key of `likelyshot.methods.METHODS`, or such a function.
        params: keyword parameters and statistics of the method, e.g. `{"lambda_max": 80.0}` or `{"base_mean": mean}`.
        temperature: divides the scores in `predict_proba`.
        device: where to compute, as torch names it.

    >>> support, labels = [[3.0, 4.0], [4.0, 3.0]], ["high", "wide"]
    >>> FewShotClassifier("cosine").fit(support, labels).predict([[6.0, 8.5]]).tolist()
    ['high']
    """

    def __init__(
        self,
        method: str | Method = "mll",
        params: Mapping[str, Any] | None = None,
        temperature: float = 1.0,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.params = params
        self.temperature = temperature
        self.device = device

    def _method(self) -> Method:
        if isinstance(self.method, str):
            if self.method not in METHODS:
                raise InputError(f"unknown method {self.method!r}: {nearest(self.method, METHODS)}")
            method = METHODS[self.method]
        elif callable(self.method):
            method = self.method
        else:
            raise InputError(
                f"expected the name of a method or a function, got {self.method!r}: {nearest('', METHODS)}"
            )
        name, params = _name(method), dict(self.params or {})
        keywords = _keywords(method)
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())
        for given in params:
            if given not in keywords and not takes_any:
                raise InputError(f"{name} has no parameter {given!r}: {nearest(str(given), keywords)}")
        for needed, default in keywords.items():
            if default is inspect.Parameter.empty and needed not in params:
                how = STATISTICS.get(needed, "...")
                raise InputError(f"{name} needs {needed}: give it as params={{{needed!r}: value}}, value = {how}")
        if "calibration" in params:
            _check_calibration(params["calibration"])
        return functools.partial(method, **{k: _statistic(v) for k, v in params.items()})

    def _metrics(self) -> Collection[str]:
        calibration = (self.params or {}).get("calibration")
        return calibration.metrics if isinstance(calibration, Calibration) else (_name(self.method),)

    def _normalises(self) -> bool:
        calibration = _keywords(self._method()).get("calibration")
        return calibration.normalise if isinstance(calibration, Calibration) else super()._normalises()


class MLLClassifier(_MethodClassifier):
    """Maximum log-likelihood of exponential features (`likelyshot.methods.mll`), each row of X on its own.

    Args:
        lambda_max: upper bound of the rates 1 / prototype.
        normalise: L2-normalise every row first.
        temperature: divides the scores in `predict_proba`.

    >>> classifier = MLLClassifier().fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
    >>> classifier.predict([[6.0, 8.5]]).tolist()
    ['high']
    """

    def __init__(self, lambda_max: float = 40.0, normalise: bool = True, temperature: float = 1.0) -> None:
        self.lambda_max = lambda_max
        self.normalise = normalise
        self.temperature = temperature

    def _method(self) -> Method:
        return functools.partial(mll, lambda_max=self.lambda_max, normalise=self.normalise)


class TransductiveMLLClassifier(_MethodClassifier):
    """Maximum log-likelihood whose prototypes follow the queries (`likelyshot.methods.mll_transductive`).

    The X of `predict`, `predict_proba`, `decision_function` and `score` is one query set: the result of a row depends
    on all rows of that X, so give all that is to be classified at once. Their order does not matter.

    Args:
        lambda_max: upper bound of the rates 1 / prototype.
        iterations: updates of the prototypes; 0 is `MLLClassifier`.
        eta: how far a prototype moves towards its queries in one update, 0..1.
        normalise: L2-normalise every row first.
        temperature: divides the scores in `predict_proba`.

    >>> classifier = TransductiveMLLClassifier().fit([[3.0, 4.0], [4.0, 3.0]], ["high", "wide"])
    >>> classifier.predict([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]]).tolist()
    ['high', 'high', 'wide']
    """

    def __init__(
        self,
        lambda_max: float = 40.0,
        iterations: int = 10,
        eta: float = 0.5,
        normalise: bool = True,
        temperature: float = 1.0,
    ) -> None:
        self.lambda_max = lambda_max
        self.iterations = iterations
        self.eta = eta
        self.normalise = normalise
        self.temperature = temperature

    def _method(self) -> Method:
        return functools.partial(
            mll_transductive,
            lambda_max=self.lambda_max,
            iterations=self.iterations,
            eta=self.eta,
            normalise=self.normalise,
        )


class CombinedClassifier(_MethodClassifier):
    """One to three metrics through their joint Gaussians (`likelyshot.methods.combined`), in `calibration_` once fitted.

    Without a `calibration` the Gaussians come from the support by leave-one-out: every example of a class with two or
    more is scored against its class without it (right pairs) and against all other classes (wrong pairs). Its class
    then has one shot fewer than at prediction, so the classes look a little less compact than they are, and a
    calibration on validation tasks is better where there are any.

    Args:
        calibration: what `likelyshot.calibrate` made for as many ways, shots (examples / classes) and dimensions;
            its `metrics`, `lambda_max` and `normalise` then hold instead of those given here.
        metrics: of "euclidean", "cosine" and "mll".
        rule: "youden", "closest" or "concordance".
        lambda_max: upper bound of the rates 1 / prototype in "mll".
        normalise: L2-normalise every row first.
        temperature: divides the scores in `predict_proba`.

    >>> support = [[3.0, 4.0], [3.0, 4.2], [2.9, 4.0], [4.0, 3.0], [4.2, 3.1], [4.0, 2.0]]
    >>> classifier = CombinedClassifier(metrics=("cosine", "mll")).fit(support, ["high"] * 3 + ["wide"] * 3)
    >>> classifier.predict([[6.0, 8.5]]).tolist()
    ['high']
    """

    def __init__(
        self,
        calibration: Calibration | None = None,
        metrics: Sequence[str] = METRICS,
        rule: str = "youden",
        lambda_max: float = 40.0,
        normalise: bool = True,
        temperature: float = 1.0,
    ) -> None:
        self.calibration = calibration
        self.metrics = metrics
        self.rule = rule
        self.lambda_max = lambda_max
        self.normalise = normalise
        self.temperature = temperature

    def _method(self) -> Method:
        return functools.partial(combined, calibration=self.calibration_, rule=self.rule)

    def _metrics(self) -> Collection[str]:
        return self.metrics if self.calibration is None else getattr(self.calibration, "metrics", ())

    def _normalises(self) -> bool:
        return self.normalise if self.calibration is None else _check_calibration(self.calibration).normalise

    def _learn(self) -> None:
        self.calibration_ = self.calibration if self.calibration is not None else self._leave_one_out()

    def _leave_one_out(self) -> Calibration:
        for metric in self.metrics:
            if metric not in METRICS:
                raise InputError(f"unknown metric {metric!r} for the combined metric: {nearest(metric, METRICS)}")
        x, y, ways = _tensor(self.support_, np.float64), _tensor(self.labels_, np.int64), len(self.classes_)
        shots = y.bincount(minlength=ways)[y]  # (s,)
        several = shots > 1
        if int(several.sum()) <= len(self.metrics):
            raise InputError(
                f"to calibrate {len(self.metrics)} metrics by leaving one out takes at least {len(self.metrics) + 1} "
                f"examples of classes with two or more, got {int(several.sum())}: label more, or give "
                "calibration=likelyshot.calibrate(validation features, tasks)"
            )
        x = l2_normalise(x) if self.normalise else x
        score = functools.partial(
            score_columns, metrics=self.metrics, lambda_max=self.lambda_max, normalise=False
        )  # of prototypes, which are a support of one each
        columns = score(x, y, x, n_ways=ways)  # (s, k, n)
        others = (shots.unsqueeze(-1) * class_means(x, y, ways)[y] - x) / (shots - 1).clamp_min(1).unsqueeze(-1)
        others = others.maximum(x.amin(0))  # as every mean is, but for rounding: nothing becomes negative
        own = score(others.unsqueeze(-2), y.new_zeros(1), x.unsqueeze(-2), n_ways=1)  # (s, 1, 1, n)
        columns[torch.arange(len(y)), y] = own[:, 0, 0]
        return fit_calibration(
            columns[several],
            y[several],
            metrics=self.metrics,
            shots=len(y) / ways,
            dims=(x.shape[-1],) * len(self.metrics),
            lambda_max=self.lambda_max,
            normalise=self.normalise,
        )


def _array(values: Any) -> Any:
    """Turn a tensor into an array that scikit-learn can check; leave everything else to it."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _labels(y: Any) -> Any:
    """As `_array`, and numbers and truth values in an object array out of it: scikit-learn takes only strings there."""
    y = _array(y)
    if getattr(y, "dtype", None) != object:
        return y
    y = np.asarray(y)
    kinds = {type(label) for label in y.flat}
    plain = np.array(y.tolist())
    if plain.dtype.kind in "biuf":
        return plain
    if len(kinds) > 1:
        raise InputError(
            f"expected labels of one type, got {', '.join(sorted(kind.__name__ for kind in kinds))}: convert them to "
            "strings, and drop examples without a label"
        )
    return y


def _tensor(array: NDArray[Any], dtype: Any) -> Tensor:
    """Share the array's memory where torch can, which wants it writable, contiguous and in native byte order."""
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def _statistic(value: Any) -> Any:
    """Turn numbers in an array or list into a tensor."""
    if isinstance(value, np.ndarray) or (isinstance(value, list) and np.asarray(value).dtype.kind in "biuf"):
        return torch.tensor(np.asarray(value))
    return value


def _name(method: Any) -> str:
    while isinstance(method, functools.partial):
        method = method.func
    return method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)


def _keywords(method: Method) -> dict[str, Any]:
    """The keyword parameters of a method with their values, `Parameter.empty` where there is none."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "n_ways"
    }


def _check_calibration(calibration: Any) -> Calibration:
    if not isinstance(calibration, Calibration):
        raise InputError(
            f"expected a likelyshot.Calibration, got {type(calibration).__name__}: make one with "
            "likelyshot.calibrate(validation features, tasks), or read one with likelyshot.Calibration.load(path)"
        )
    return calibration

"""The scikit-learn classifiers: the contract, the pure functions underneath, and every bad input."""

from __future__ import annotations

import contextlib
import functools

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.utils.estimator_checks import (
    check_classifiers_train,
    check_estimators_dtypes,
    parametrize_with_checks,
)

from likelyshot import (
    CombinedClassifier,
    FewShotClassifier,
    InputError,
    MLLClassifier,
    TransductiveMLLClassifier,
)
from likelyshot.confidence.held_out import support_temperature
from likelyshot.functional.scores import class_means
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of, needs_of
from likelyshot.methods.calibration import METRICS, fit_calibration
from likelyshot.methods.combined import score_columns

DIM = 12
ALL = [
    FewShotClassifier(),
    FewShotClassifier("euclidean"),
    FewShotClassifier("cosine", temperature=0.1),
    MLLClassifier(),
    TransductiveMLLClassifier(),
    CombinedClassifier(),
]
NAMES = ["few-shot", "euclidean", "cosine", "mll", "transductive", "combined"]


def draw(seed: int = 0, ways: int = 3, shots: int | list[int] = 4, queries: int = 25):
    """Features that are exponential, as those of a network nearly are: support, labels, query, truth."""
    rng = np.random.default_rng(seed)
    means = rng.exponential(size=(ways, DIM)) + 0.05
    labels = np.repeat(np.arange(ways), shots)
    truth = rng.integers(ways, size=queries)
    return rng.exponential(means[labels]), labels, rng.exponential(means[truth]), truth


def scores_of(method, support, labels, query, **params):
    ways = len(np.unique(labels))
    inputs = torch.tensor(support), torch.tensor(labels), torch.tensor(query)
    return METHODS[method](*inputs, n_ways=ways, **params).numpy()


def calibration_for(support, labels, query, truth, metrics=METRICS, **settings):
    settings = {"lambda_max": 40.0, "normalise": True} | settings
    ways = len(np.unique(labels))
    inputs = torch.tensor(support), torch.tensor(labels), torch.tensor(query)
    columns = score_columns(*inputs, n_ways=ways, metrics=metrics, **settings)
    shots, dims = len(labels) / ways, (support.shape[1],) * len(metrics)
    return fit_calibration(columns, torch.tensor(truth), metrics=metrics, shots=shots, dims=dims, **settings)


# ----------------------------------------------------------------------------- scikit-learn's contract

QUERY_SET = "transductive: X is one query set, so a subset of its rows is another question"


INDUCTIVE = {name for name, method in METHODS.items() if facts_of(method).kind != "transductive"}
#: What makes a method quicker.
FEW_STEPS = {
    "tim": {"steps": 20},
    "alpha_tim": {"steps": 20},
    "paddle": {"iterations": 20},
    "lr_ici": {"per_round": 50},
    "logistic": {"c": 1.0},
}
#: Other parameters and methods of the same classes: what scikit-learn's checks say of their shell holds for these too.
OTHERS = [
    MLLClassifier(lambda_max=10.0, normalise=False),
    TransductiveMLLClassifier(iterations=3, eta=0.3, normalise=False),
    CombinedClassifier(metrics=("euclidean", "cosine"), rule="closest", normalise=False),
    FewShotClassifier("euclidean", {"normalise": False}),
    *(
        FewShotClassifier(name, FEW_STEPS.get(name), temperature=1.0)
        for name, method in METHODS.items()
        if not needs_of(method) and name not in ("mll", "pt_map", "svm", "deepemd")  # svm is slow, deepemd needs maps
    ),
]


def expected_failures(estimator) -> dict[str, str]:
    inductive = INDUCTIVE.issuperset(estimator._metrics())
    return {} if inductive else {"check_methods_subset_invariance": QUERY_SET}


def warns_as_it_should(test):
    for message in (".* of X are all zeros", ".* needs non-negative features, and X has negative ones"):
        test = pytest.mark.filterwarnings(f"ignore:{message}:UserWarning")(test)
    return test


@parametrize_with_checks(
    [
        FewShotClassifier(),
        MLLClassifier(),
        TransductiveMLLClassifier(),
        CombinedClassifier(),
        FewShotClassifier("pt_map", temperature=1.0),
    ],
    expected_failed_checks=expected_failures,
)
@warns_as_it_should
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", OTHERS, ids=lambda e: getattr(e, "method", type(e).__name__))
@warns_as_it_should
def test_scikit_learn_checks_of_what_is_computed(estimator):
    check_classifiers_train("classifier", estimator)
    check_estimators_dtypes("classifier", estimator)


def test_tags_say_what_cannot_be_rectified():
    def positive_only(estimator):
        return estimator.__sklearn_tags__().input_tags.positive_only

    partial = functools.partial(METHODS["mll"], lambda_max=9.0)
    few_shot = [FewShotClassifier(), FewShotClassifier("mll_transductive"), FewShotClassifier(partial)]
    assert not any(map(positive_only, [MLLClassifier(), TransductiveMLLClassifier(), CombinedClassifier(), *few_shot]))
    calibration = calibration_for(*draw())
    assert positive_only(CombinedClassifier(calibration, metrics=("cosine",)))
    assert positive_only(FewShotClassifier("combined", {"calibration": calibration}))
    calibration = calibration_for(*draw(), metrics=("cosine",))
    assert not positive_only(CombinedClassifier(calibration))
    assert not positive_only(FewShotClassifier("combined", {"calibration": calibration}))
    for bad in (FewShotClassifier(None), CombinedClassifier("path")):
        positive_only(bad)  # whatever it says: fit says what is wrong


# ---------------------------------------------------------------------------------- the pure functions


@pytest.mark.parametrize("ways", [2, 3, 5])
@pytest.mark.parametrize(
    ("estimator", "method", "params"),
    [
        (FewShotClassifier(), "likelihood", {}),
        (FewShotClassifier("mll", {"lambda_max": 80.0}), "mll", {"lambda_max": 80.0}),
        (FewShotClassifier("euclidean", {"normalise": False}), "euclidean", {"normalise": False}),
        (FewShotClassifier(METHODS["cosine"]), "cosine", {}),
        (FewShotClassifier(functools.partial(METHODS["mll"], lambda_max=9.0)), "mll", {"lambda_max": 9.0}),
        (MLLClassifier(lambda_max=5.0), "mll", {"lambda_max": 5.0}),
        (MLLClassifier(normalise=False), "mll", {"normalise": False}),
        (TransductiveMLLClassifier(), "mll_transductive", {}),
        (
            TransductiveMLLClassifier(30.0, 4, 0.2, False),
            "mll_transductive",
            {"lambda_max": 30.0, "iterations": 4, "eta": 0.2, "normalise": False},
        ),
    ],
)
def test_scores_are_those_of_the_function(estimator, method, params, ways):
    support, labels, query, truth = draw(ways, ways, shots=[1, 4, 2, 3, 1][:ways])  # unequal shots
    expected = scores_of(method, support, labels, query, **params)
    classifier = clone(estimator).fit(support, labels)
    decision = classifier.decision_function(query)
    assert np.array_equal(decision, expected if ways > 2 else expected[:, 1] - expected[:, 0])
    assert np.array_equal(classifier.predict(query), expected.argmax(-1))
    assert classifier.score(query, truth) == (expected.argmax(-1) == truth).mean()


@pytest.mark.parametrize("as_what", [torch.tensor, np.asarray, list])
def test_simpleshot_with_its_base_mean(as_what):
    support, labels, query, _ = draw()
    base_mean = np.random.default_rng(1).normal(size=DIM)
    classifier = FewShotClassifier("simpleshot", {"base_mean": as_what(base_mean)}).fit(support - 1, labels)
    expected = scores_of("simpleshot", support - 1, labels, query - 1, base_mean=torch.tensor(base_mean))
    assert np.allclose(classifier.decision_function(query - 1), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", ["pt_map", "protolp"])
def test_class_shares_that_the_user_knows(method):
    support, labels, query, _ = draw(queries=40)
    shares = [0.7, 0.2, 0.1]
    known = FewShotClassifier(method, {"marginals": shares}, temperature=1.0).fit(support, labels)
    expected = scores_of(method, support, labels, query, marginals=torch.tensor(shares))
    assert np.array_equal(known.decision_function(query), expected)
    proportions = known.predict_proba(query).mean(0)
    assert np.allclose(proportions, shares, atol=1e-4)
    with pytest.raises(InputError, match=r"marginals must be .* 3 numbers"):
        FewShotClassifier(method, {"marginals": [0.5, 0.5]}).fit(support, labels)


@pytest.mark.parametrize("rule", ["youden", "closest", "concordance"])
def test_combined_with_its_calibration(rule):
    support, labels, query, truth = draw()
    calibration = calibration_for(support, labels, query, truth, ("cosine", "mll"), lambda_max=20.0)
    expected = scores_of("combined", support, labels, query, calibration=calibration, rule=rule)
    one = CombinedClassifier(calibration, rule=rule).fit(support, labels)
    other = FewShotClassifier("combined", {"calibration": calibration, "rule": rule}).fit(support, labels)
    assert one.calibration_ is calibration
    assert np.array_equal(one.decision_function(query), expected)
    assert np.array_equal(other.decision_function(query), expected)


def test_they_are_good_at_what_they_are_for():
    accuracy = dict.fromkeys(NAMES, 0.0)
    for seed in range(6):
        support, labels, query, truth = draw(seed, ways=5, shots=5, queries=400)
        for name, estimator in zip(NAMES, ALL, strict=True):
            accuracy[name] += clone(estimator).fit(support, labels).score(query, truth) / 6
    assert min(accuracy.values()) > 0.6  # chance is 0.2
    assert accuracy["transductive"] > accuracy["mll"] + 0.03  # the likelihood is the true one
    assert accuracy["mll"] > accuracy["cosine"] + 0.03


def test_no_iterations_is_the_inductive_classifier():
    support, labels, query, _ = draw()
    transductive = TransductiveMLLClassifier(lambda_max=20.0, iterations=0).fit(support, labels)
    inductive = MLLClassifier(lambda_max=20.0).fit(support, labels)
    assert np.array_equal(transductive.decision_function(query), inductive.decision_function(query))


def test_a_query_set_is_one_question_in_any_order():
    support, labels, query, _ = draw(ways=4, shots=1)
    classifier = TransductiveMLLClassifier().fit(support, labels)
    whole = classifier.decision_function(query)
    order = np.random.default_rng(0).permutation(len(query))
    assert np.allclose(classifier.decision_function(query[order]), whole[order], rtol=1e-9)
    assert not np.allclose(classifier.decision_function(query[:5]), whole[:5])
    assert np.array_equal(classifier.decision_function(query), whole)  # nothing is kept from the last call


# --------------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize("ways", [2, 4])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 30.0])
@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_probabilities(estimator, temperature, ways):
    support, labels, query, _ = draw(3, ways)
    classifier = clone(estimator).set_params(temperature=temperature).fit(support, labels)
    probabilities, scores = classifier.predict_proba(query), classifier.decision_function(query)
    if ways == 2:
        scores = np.stack([np.zeros_like(scores), scores], -1)
    assert probabilities.shape == (len(query), ways)
    assert np.allclose(probabilities.sum(-1), 1, rtol=0, atol=1e-14)
    assert np.allclose(probabilities, softmax(scores / temperature, -1), rtol=1e-9, atol=1e-300)
    assert np.array_equal(classifier.predict(query), probabilities.argmax(-1))
    order = np.take_along_axis(probabilities, scores.argsort(-1), -1)
    assert (np.diff(order, axis=-1) >= 0).all()


@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_the_automatic_temperature_is_that_of_the_support(estimator):
    support, labels, query, _ = draw(3, shots=[1, 4, 3])
    if isinstance(estimator, CombinedClassifier):
        support, labels, query, _ = draw(3)
    classifier = clone(estimator).set_params(temperature="auto").fit(support, labels)
    transductive = isinstance(estimator, TransductiveMLLClassifier)
    inputs = torch.tensor(support), torch.tensor(labels), 3
    expected = support_temperature(classifier._method(), *inputs, query=torch.tensor(query))
    scores = classifier.decision_function(query)
    assert np.allclose(classifier.predict_proba(query), softmax(scores / expected, -1), rtol=1e-6)
    assert transductive != hasattr(classifier, "temperature_")
    if not transductive:
        assert classifier.temperature_ == pytest.approx(expected)
    assert classifier.temperature == "auto"


@pytest.mark.parametrize("estimator", [MLLClassifier(), TransductiveMLLClassifier()])
def test_one_example_of_each_class_has_probabilities_too(estimator):
    support, labels, query, _ = draw(3, shots=1)
    probabilities = clone(estimator).fit(support, labels).predict_proba(query)
    assert np.allclose(probabilities.sum(-1), 1)


@pytest.mark.parametrize("temperature", [0, -1.0, float("nan"), "hot", None])
def test_a_nonsense_temperature_is_refused(temperature):
    support, labels, _, _ = draw()
    with pytest.raises(InputError, match="temperature must be a positive finite number"):
        MLLClassifier(temperature=temperature).fit(support, labels)


def test_probabilities_survive_extreme_temperatures():
    support, labels, query, _ = draw()
    for temperature in (1e-320, 1e-12, 1e300):
        probabilities = MLLClassifier(temperature=temperature).fit(support, labels).predict_proba(query)
        assert np.isfinite(probabilities).all()
        assert np.allclose(probabilities.sum(-1), 1)


# --------------------------------------------------------------------------------------- what comes in

INPUTS = {
    "float64": (np.asarray, np.float64),
    "float32": (lambda x: x.astype(np.float32), np.float32),
    "float16": (lambda x: x.astype(np.float16), np.float32),
    "longdouble": (lambda x: x.astype(np.longdouble), np.float64),
    "int64": (lambda x: (x * 20 + 1).astype(np.int64), np.float64),
    "uint8": (lambda x: np.clip(x * 20 + 1, 0, 255).astype(np.uint8), np.float32),
    "big-endian": (lambda x: x.astype(">f8"), np.float64),
    "fortran": (np.asfortranarray, np.float64),
    "reversed": (lambda x: x[:, ::-1], np.float64),
    "strided": (lambda x: x[:, ::2], np.float64),
    "list": (lambda x: x.tolist(), np.float64),
    "object": (lambda x: x.astype(object), np.float64),
    "tensor float64": (torch.tensor, np.float64),
    "tensor float32": (lambda x: torch.tensor(x).float(), np.float32),
    "tensor float16": (lambda x: torch.tensor(x).half(), np.float32),
    "tensor bfloat16": (lambda x: torch.tensor(x).bfloat16(), np.float32),
    "tensor with gradient": (lambda x: torch.tensor(x, requires_grad=True) * 2, np.float64),
    "tensor transposed": (lambda x: torch.tensor(x.T.copy()).T, np.float64),
    "frame": (lambda x: pd.DataFrame(x).add_prefix("feature"), np.float64),
    "frame float32": (lambda x: pd.DataFrame(x.astype(np.float32)).add_prefix("feature"), np.float32),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("estimator", [MLLClassifier(), TransductiveMLLClassifier(), FewShotClassifier("cosine")])
def test_input_types(estimator, kind):
    convert, dtype = INPUTS[kind]
    support, labels, query, _ = draw()
    support, query = convert(support), convert(query)
    exact = [
        x.detach().double().numpy() if isinstance(x, torch.Tensor) else np.array(x, dtype=float)
        for x in (support, query)
    ]
    reference = clone(estimator).fit(exact[0], labels)
    classifier = clone(estimator).fit(support, labels)
    scores = classifier.decision_function(query)
    assert scores.dtype == dtype
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    assert np.allclose(scores, reference.decision_function(exact[1]), rtol=tolerance, atol=tolerance)
    assert np.array_equal(classifier.predict(query), reference.predict(exact[1]))
    assert classifier.n_features_in_ == exact[0].shape[1]
    assert classifier.support_.dtype == dtype


@pytest.fixture
def _torch_warns_every_time():
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("_torch_warns_every_time")
def test_read_only_arrays():
    support, labels, query, _ = draw()
    mean = np.zeros(DIM)
    for array in (support, labels, query, mean):
        array.flags.writeable = False
    for estimator in (*ALL, FewShotClassifier("simpleshot", {"base_mean": mean})):
        assert clone(estimator).fit(support, labels).predict(query).shape == (25,)


def test_mixed_precision_is_float64():
    support, labels, query, _ = draw()
    for low, high in ((support.astype(np.float32), query), (support, query.astype(np.float32))):
        method = FewShotClassifier(lambda s, y, q, *, n_ways: q @ s[:n_ways].T)  # torch would refuse a mixture
        for estimator in (MLLClassifier(), method):
            assert estimator.fit(low, labels).decision_function(high).dtype == np.float64


def test_frames_give_feature_names_and_must_keep_them():
    support, labels, query, _ = draw()
    names = [f"feature{i}" for i in range(DIM)]
    classifier = MLLClassifier().fit(pd.DataFrame(support, columns=names), pd.Series(labels))
    assert classifier.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names should match"):
        classifier.predict(pd.DataFrame(query, columns=names[::-1]))


LABELS = {
    "str": (np.array(["crow", "gull", "wren"]), np.asarray),
    "list of str": (np.array(["crow", "gull", "wren"]), list),
    "object str": (np.array(["crow", "gull", "wren"], dtype=object), np.asarray),
    "int": (np.array([-5, 3, 1000]), np.asarray),
    "list of int": (np.array([-5, 3, 1000]), lambda y: y.tolist()),
    "object int": (np.array([-5, 3, 1000]), lambda y: y.astype(object)),
    "object Series of int": (np.array([-5, 3, 1000]), lambda y: pd.Series(y.astype(object))),
    "whole floats": (np.array([0.0, 1.0, 7.0]), np.asarray),
    "bool": (np.array([False, True]), np.asarray),
    "object bool": (np.array([False, True]), lambda y: y.astype(object)),
    "Series": (np.array(["crow", "gull", "wren"]), lambda y: pd.Series(y, index=range(100, 100 + len(y)))),
    "categorical": (np.array(["crow", "gull", "wren"]), lambda y: pd.Series(pd.Categorical(y))),
    "categorical int": (np.array([-5, 3, 1000]), lambda y: pd.Series(pd.Categorical(y))),
    "categorical unused": (np.array([4, 6]), lambda y: pd.Series(pd.Categorical(y, categories=[9, 6, 4]))),
    "nullable int": (np.array([-5, 3, 1000]), lambda y: pd.Series(y, dtype="Int64")),
    "string dtype": (np.array(["crow", "gull", "wren"]), lambda y: pd.Series(y, dtype="string")),
    "tensor": (np.array([-5, 3, 1000]), torch.tensor),
    "tensor bool": (np.array([False, True]), torch.tensor),
}


@pytest.mark.parametrize("kind", LABELS)
def test_label_types(kind):
    classes, convert = LABELS[kind]
    support, labels, query, truth = draw(ways=len(classes))
    expected = scores_of("mll", support, labels, query).argmax(-1)
    classifier = MLLClassifier().fit(support, convert(classes[labels]))
    assert classifier.classes_.tolist() == classes.tolist()
    assert classifier.predict(query).tolist() == classes[expected].tolist()
    assert classifier.score(query, convert(classes[truth])) == (expected == truth).mean()


def test_inputs_stay_as_they_were_and_the_support_is_a_copy():
    support, labels, query, _ = draw()
    before = support.copy(), labels.copy(), query.copy()
    for estimator in ALL:
        classifier = clone(estimator).fit(support, labels)
        classifier.predict_proba(query)
        assert all(np.array_equal(a, b) for a, b in zip(before, (support, labels, query), strict=True))
    for X in (support, torch.from_numpy(support)):
        classifier = MLLClassifier().fit(X, labels)
        scores = classifier.decision_function(query)
        X[:] = 1.0
        assert np.array_equal(classifier.decision_function(query), scores)
        support[:] = before[0]


@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_order_of_the_training_rows_does_not_matter(estimator):
    support, labels, query, _ = draw(shots=[2, 5, 3])
    names = np.array(["c", "a", "b"])[labels]
    order = np.random.default_rng(1).permutation(len(labels))
    one = clone(estimator).fit(support, names)
    other = clone(estimator).fit(support[order], names[order])
    assert np.allclose(one.decision_function(query), other.decision_function(query), rtol=1e-7, atol=1e-9)
    assert np.array_equal(one.predict(query), other.predict(query))


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from(ALL), st.randoms(use_true_random=False))
def test_renaming_the_classes_renames_the_predictions(seed, ways, estimator, random):
    support, labels, query, _ = draw(seed, ways)
    renamed = np.array(random.sample(range(100), ways))
    one = clone(estimator).fit(support, labels)
    other = clone(estimator).fit(support, renamed[labels])
    assert np.allclose(one.predict_proba(query), other.predict_proba(query)[:, renamed.argsort().argsort()], atol=1e-6)
    sure = np.diff(np.sort(one.predict_proba(query), axis=-1)[:, -2:]).ravel() > 1e-5
    assert np.array_equal(renamed[one.predict(query)][sure], other.predict(query)[sure])


# ------------------------------------------------------------------------------- calibrating by itself


@pytest.mark.parametrize("shots", [2, 3, [4, 1, 3], [1, 6, 1]])
@pytest.mark.parametrize("metrics", [METRICS, ("mll",), ("cosine", "euclidean")])
@pytest.mark.parametrize("normalise", [True, False])
def test_self_calibration_is_leave_one_out(shots, metrics, normalise):
    support, labels, query, _ = draw(5, shots=shots)
    classifier = CombinedClassifier(metrics=metrics, lambda_max=20.0, normalise=normalise).fit(support, labels)
    x, y = torch.tensor(support), torch.tensor(labels)
    kind = {"metrics": metrics, "lambda_max": 20.0, "normalise": normalise}
    columns, truth = [], []
    for i in range(len(y)):
        keep = torch.arange(len(y)) != i
        if y[i] in y[keep]:
            columns.append(score_columns(x[keep], y[keep], x[i : i + 1], n_ways=3, **kind))
            truth.append(y[i])
    expected = fit_calibration(
        torch.cat(columns), torch.stack(truth), shots=len(y) / 3, dims=(DIM,) * len(metrics), **kind
    )
    made = classifier.calibration_
    for ours, naive in ((made.intra, expected.intra), (made.cross, expected.cross)):
        assert np.allclose(ours.mean, naive.mean, rtol=1e-10)
        assert np.allclose(ours.covariance, naive.covariance, rtol=1e-7, atol=1e-10)
        assert ours.independent == naive.independent
    assert (made.metrics, made.ways, made.shots, made.dims) == (metrics, 3, len(y) / 3, expected.dims)
    scores = scores_of("combined", support, labels, query, calibration=made)
    assert np.array_equal(classifier.decision_function(query), scores)


def test_leaving_one_out_never_makes_a_negative_prototype():
    rng = np.random.default_rng(0)
    support = np.zeros((12, 200))
    support[[0, 6]] = rng.random((2, 200))  # the rest of their classes has nothing there: 6 (x / 6) - x = 0?
    x = torch.tensor(support[:6])
    assert (6 * class_means(x, torch.zeros(6, dtype=torch.int64), 1) - x[0]).min() < 0
    CombinedClassifier(normalise=False).fit(support, np.repeat([0, 1], 6))


def test_calibration_that_does_not_fit_is_refused():
    support, labels, query, truth = draw()
    calibration = calibration_for(support, labels, query, truth)
    given = CombinedClassifier(calibration)
    assert given.fit(support, labels).predict(query).shape == (25,)
    with pytest.raises(InputError, match=r"made for 4\.0 shots, these tasks have 3\.66"):
        given.fit(support[1:], labels[1:])
    with pytest.raises(InputError, match="made for 3 ways, these tasks have 2"):
        given.fit(support[labels < 2], labels[labels < 2])
    with pytest.raises(InputError, match="feature dimensions"):
        given.fit(support[:, :5], labels)
    with pytest.raises(InputError, match=r"expected a likelyshot.Calibration, got str: .*Calibration.load\(path\)"):
        CombinedClassifier("calibration.json").fit(support, labels)
    with pytest.raises(InputError, match=r"expected a likelyshot.Calibration, got dict"):
        FewShotClassifier("combined", {"calibration": {}}).fit(support, labels)


# ------------------------------------------------------------------------------------------- bad input


def with_row(value, row=2):
    support, labels, _, _ = draw()
    support[row] = value
    return support, labels


NEGATIVE = r"Negative values in data: \w+ needs non-negative features, got .*rectify"
ZEROS = r"1 of 12 rows of X are all zeros, first row 2: a zero row has no direction.* or use normalise=False"
BAD = [
    (FewShotClassifier("mlll"), None, r"unknown method 'mlll': did you mean 'mll'\? Known: alpha_tim, anil"),
    (FewShotClassifier(None), None, "unknown method None"),
    (
        FewShotClassifier("mll", {"lamda_max": 3}),
        None,
        "mll has no parameter 'lamda_max': did you mean 'lambda_max'",
    ),
    (FewShotClassifier("mll", {"n_ways": 3}), None, "mll has no parameter 'n_ways'"),
    (FewShotClassifier("simpleshot"), None, "simpleshot needs base_mean in params: the mean feature vector"),
    (FewShotClassifier("simpleshot", {"base_mean": None}), None, "simpleshot needs base_mean in params"),
    (
        FewShotClassifier("simpleshot", {"base_mean": [1.0]}),
        None,
        r"expected base_mean as a tensor of shape \(12,\), got \(1,\)",
    ),
    (FewShotClassifier("combined"), None, r"combined needs calibration in params: likelyshot.calibrate\("),
    (
        FewShotClassifier("mll", {"lambda_max": -1}),
        None,
        "lambda_max must be a number from 1e-12 to 1e\\+12, got -1",
    ),
    (MLLClassifier(lambda_max=0), None, "lambda_max must be a number from .*, got 0"),
    (MLLClassifier(temperature=0), None, "temperature must be a positive finite number, got 0"),
    (MLLClassifier(temperature=float("nan")), None, "temperature must be a positive finite number, got nan"),
    (TransductiveMLLClassifier(eta=2), None, "eta must be a number from 0 to 1, got 2"),
    (TransductiveMLLClassifier(iterations=-1), None, "iterations must be a whole number from 0 to 100000, got -1"),
    (CombinedClassifier(rule="yuden"), None, "unknown rule 'yuden': did you mean 'youden'"),
    (
        CombinedClassifier(metrics=("mll", "cosin")),
        None,
        "unknown metric 'cosin' for the combined metric: did you mean 'cosine'",
    ),
    (MLLClassifier(), (np.ones((3, 1)), [0, 1, 1]), r"1 feature\(s\) is not enough: a single feature carries no"),
    (MLLClassifier(), with_row(np.nan), "Input X contains NaN"),
    (MLLClassifier(), with_row(np.inf), "Input X contains infinity"),
    (MLLClassifier(), (np.ones((2, 3)), [0, 1, 1]), "inconsistent numbers of samples"),
    (MLLClassifier(), (np.ones((0, 3)), []), "0 sample"),
    (MLLClassifier(), (np.ones(3), [0, 1, 1]), "Expected 2D array, got 1D array"),
    (MLLClassifier(), (np.ones((3, 2)), [0.5, 1.5, 1.7]), "Unknown label type"),
    (MLLClassifier(), (np.ones((3, 2)), [0, np.nan, 1]), "Input y contains NaN"),
    (MLLClassifier(), (np.ones((3, 2)), None), "requires y to be passed"),
    (
        MLLClassifier(),
        (np.ones((3, 2)), ["a"] * 3),
        "few-shot classification needs at least two classes, got only one class, 'a': add examples",
    ),
    (
        MLLClassifier(),
        (np.ones((3, 2)), np.array(["a", 1, None], dtype=object)),
        "expected labels that are all strings or all numbers, got some NoneType, int",
    ),
    (
        CombinedClassifier(),
        (np.eye(5) + 1, [0, 1, 2, 3, 4]),
        r"needs 4 of them in classes that have at least two, got 0: .* pass calibration=likelyshot\.calibrate\(",
    ),
    (CombinedClassifier(), (np.eye(4) + 1, [0, 0, 0, 1]), "needs 4 of them in classes that have at least two, got 3"),
    (CombinedClassifier(), (np.ones((6, 3)), [0, 0, 0, 1, 1, 1]), "all scores of the calibration are equal"),
]


@pytest.mark.parametrize(("estimator", "data", "message"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_bad_input_is_refused_by_fit(estimator, data, message):
    support, labels = draw()[:2] if data is None else data
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(support, labels)


@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_bad_queries_are_refused(estimator):
    support, labels, query, _ = draw()
    with pytest.raises(NotFittedError):
        clone(estimator).predict(query)
    classifier = clone(estimator).fit(support, labels)
    for bad, message in (
        (query[:, 1:], "expecting 12 features"),
        (query[:0], "0 sample"),
        (query[0], "Expected 2D array"),
        (np.where(query == query[3, 3], np.nan, query), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.predict(bad)
    if classifier._non_negative():
        with pytest.raises(InputError, match=NEGATIVE):
            classifier.predict_proba(-query)
    else:
        assert classifier.predict(-query).shape == (25,)


SIGNED = r"Classifier needs non-negative features, and X has negative ones: features are split without loss"


@pytest.mark.parametrize(
    "estimator", [MLLClassifier(), TransductiveMLLClassifier(), CombinedClassifier(), FewShotClassifier("pt_map")]
)
def test_signed_features_are_rectified_and_that_is_said(estimator):
    support, labels, query, _ = draw()
    support, query = support - 0.5, query - 0.5
    with pytest.warns(UserWarning, match=SIGNED):
        classifier = clone(estimator).fit(support, labels)
    by_hand = clone(estimator).fit(both_signs(support), labels)
    assert (classifier.rectified_, by_hand.rectified_) == (True, False)
    assert classifier.n_features_in_ == 12
    assert np.array_equal(classifier.decision_function(query), by_hand.decision_function(both_signs(query)))
    assert np.array_equal(classifier.predict_proba(query), by_hand.predict_proba(both_signs(query)))


def both_signs(x):
    return np.concatenate([x.clip(min=0), (-x).clip(min=0)], axis=1)


def test_signed_features_are_refused_where_a_calibration_is_of_other_ones():
    calibration = calibration_for(*draw())
    with pytest.raises(InputError, match=NEGATIVE):
        CombinedClassifier(calibration).fit(*with_row(-0.5))


@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_zero_rows_have_no_direction_and_are_warned_of(estimator):
    support, labels, query, _ = draw()
    with pytest.warns(UserWarning, match=ZEROS):
        assert np.isfinite(clone(estimator).fit(*with_row(0.0)).decision_function(query)).all()
    classifier = clone(estimator).fit(support, labels)
    holes = np.where(np.arange(25)[:, None] % 10 == 7, 0, query)
    with pytest.warns(UserWarning, match="2 of 25 rows of X are all zeros, first row 7"):
        assert np.isfinite(classifier.predict_proba(holes)).all()


def test_zero_rows_are_fine_without_normalisation():
    support, labels = with_row(0.0)
    calibration = calibration_for(*draw(), normalise=False)
    for estimator in (
        MLLClassifier(normalise=False),
        TransductiveMLLClassifier(normalise=False),
        CombinedClassifier(normalise=False),
        CombinedClassifier(calibration),
        FewShotClassifier("combined", {"calibration": calibration}),
        FewShotClassifier("euclidean", {"normalise": False}),
    ):
        assert np.isfinite(estimator.fit(support, labels).predict_proba(support)).all()
    calibration = calibration_for(*draw())
    for estimator in (
        CombinedClassifier(calibration, normalise=False),
        FewShotClassifier("combined", {"calibration": calibration}),
    ):
        with pytest.warns(UserWarning, match=ZEROS):
            estimator.fit(support, labels)


NONSENSE = [None, "nonsense", 3, -1.5, 10**400, float("nan"), [["x"]], {}, True, object()]


@pytest.mark.parametrize("estimator", [*ALL[2:], FewShotClassifier("combined")], ids=lambda e: type(e).__name__)
def test_parameters_without_meaning_are_refused_or_do_no_harm(estimator):
    support, labels, query, _ = draw()
    for key in estimator.get_params():
        for value in NONSENSE:
            classifier = clone(estimator).set_params(**{key: value})
            with contextlib.suppress(InputError):
                assert np.isfinite(classifier.fit(support, labels).predict_proba(query)).all()


def test_normalise_of_a_function_of_ones_own_is_its_own():
    def standardised(support, labels, query, *, n_ways, normalise=True):
        return -torch.cdist(query, support)[:, :n_ways]

    classifier = FewShotClassifier(standardised, temperature=1.0).fit([[0.0], [1.0]], ["a", "b"])
    assert classifier.predict([[0.0], [0.9]]).tolist() == ["a", "b"]  # one feature, and a row of zeros


def test_an_unknown_device_is_an_error():
    with pytest.raises(InputError, match="device 'toaster' is not available on this machine"):
        FewShotClassifier(device="toaster").fit(*draw()[:2])


# ---------------------------------------------------------------------------- with the rest of sklearn


def rectify(X):
    return np.hstack([X.clip(0), (-X).clip(0)])


def test_pipelines_and_cross_validation():
    X, y, query, truth = draw(2, shots=20, queries=200)
    signed = make_pipeline(FunctionTransformer(rectify), TransductiveMLLClassifier())
    assert signed.fit(X - 1, y).score(query - 1, truth) > 0.6
    scaled = make_pipeline(MinMaxScaler(clip=True), MLLClassifier())
    assert cross_val_score(scaled, X, y, cv=4).mean() > 0.6
    for scoring in ("neg_log_loss", "roc_auc_ovr", "balanced_accuracy"):
        assert np.isfinite(cross_val_score(CombinedClassifier(temperature=3.0), X, y, cv=3, scoring=scoring)).all()
    binary = y < 1
    assert cross_val_score(MLLClassifier(), X, binary, cv=3, scoring="roc_auc").mean() > 0.7


def test_grid_search():
    X, y, query, truth = draw(2, shots=20, queries=200)
    grid = GridSearchCV(TransductiveMLLClassifier(), {"lambda_max": [5.0, 40.0], "eta": [0.3, 0.7]}, cv=3).fit(X, y)
    assert set(grid.best_params_) == {"lambda_max", "eta"}
    assert grid.score(query, truth) > 0.6
    search = {"method": ["mll", "cosine"], "params": [{"normalise": True}, {"normalise": False}]}
    assert GridSearchCV(FewShotClassifier(), search, cv=3).fit(X, y).best_score_ > 0.6


def test_clone_and_repr():
    calibration = calibration_for(*draw())
    for estimator in (
        CombinedClassifier(calibration, ("mll",), "closest", 3.0, False, 2.0),
        FewShotClassifier("simpleshot", {"base_mean": torch.zeros(DIM)}, device="cpu"),
        TransductiveMLLClassifier(1.0, 2, 0.3, False, 4.0),
    ):
        copy = clone(estimator)
        assert type(copy) is type(estimator)
        assert str(copy.get_params()) == str(estimator.get_params())
        assert hash(copy) != hash(estimator)
    assert repr(MLLClassifier(lambda_max=3.0)) == "MLLClassifier(lambda_max=3.0)"


@pytest.mark.parametrize("estimator", ALL, ids=NAMES)
def test_dump_load_and_threads(estimator, tmp_path):
    support, labels, query, _ = draw()
    classifier = clone(estimator).fit(support, np.array(["x", "y", "z"])[labels])
    expected = classifier.predict_proba(query)
    joblib.dump(classifier, tmp_path / "classifier.joblib")
    for mode in (None, "r"):
        loaded = joblib.load(tmp_path / "classifier.joblib", mmap_mode=mode)
        assert np.array_equal(loaded.predict_proba(query), expected)
    run = joblib.Parallel(n_jobs=4, prefer="threads")
    for result in run(joblib.delayed(classifier.predict_proba)(query) for _ in range(8)):
        assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("mll", {"lambda_max": "x"}, "lambda_max of mll must be a number, got 'x': leave it out for the default"),
        ("mll", {"normalise": "no"}, "normalise of mll must be True or False, got 'no'"),
        ("protolp", {"iterations": 2.5}, "iterations of protolp must be a whole number, got 2.5"),
        ("paddle", {"tau": True}, "tau of paddle must be a number, got True"),
        ("mll", [1], "expected params as a dictionary of names and values"),
        ("mll", [], "expected params as a dictionary of names and values"),
        ("mll", torch.ones(2), "expected params as a dictionary of names and values"),
        ("simpleshot", {"base_mean": "mean"}, "expected base_mean in params as numbers, got 'mean'"),
    ],
)
def test_parameters_of_another_kind_are_refused(method, params, message):
    with pytest.raises(InputError, match=message):
        FewShotClassifier(method, params).fit(*draw()[:2])


def test_statistics_may_come_in_any_container():
    support, labels, query, _ = draw()
    mean = support.mean(0)
    found = [
        FewShotClassifier("simpleshot", {"base_mean": kind(mean)}).fit(support, labels).decision_function(query)
        for kind in (np.asarray, torch.tensor, pd.Series)
    ]
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_labels_of_mixed_kinds_in_a_list_are_refused():
    with pytest.raises(InputError, match="expected labels that are all strings or all numbers"):
        FewShotClassifier().fit(draw()[0][:3], ["a", 1, None])


def test_masked_entries_are_refused():
    X, y = np.random.default_rng(0).random((6, 4)), np.arange(6) % 2
    classifier = MLLClassifier().fit(np.ma.masked_array(X, mask=False), y)
    masked = np.ma.masked_array(X, mask=X > 0.5)
    for call in (
        lambda: MLLClassifier().fit(masked, y),
        lambda: MLLClassifier().fit(X, np.ma.masked_array(y, mask=y == 1)),
        lambda: classifier.predict(masked),
        lambda: classifier.predict(list(masked)),
    ):
        with pytest.raises(InputError, match="masked array with masked entries"):
            call()

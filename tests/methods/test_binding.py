from __future__ import annotations

import functools

import pytest
import torch

from likelyshot import calibrate
from likelyshot.errors import InputError
from likelyshot.evaluation.run import Network, Networks
from likelyshot.methods import METHODS, binding
from likelyshot.methods.facts import STATISTICS


def test_parameters_and_needs_come_from_the_signatures():
    assert binding.parameters("mll_transductive") == {
        "lambda_max": None,
        "iterations": 10,
        "eta": 0.5,
        "normalise": True,
        "shrinkage": 0.0,
    }
    assert set(binding.parameters("combined")) == {"rule", "lambda_max", "normalise", "metrics"}
    assert binding.needs("combined") == ["calibration"]


@pytest.mark.parametrize(
    ("name", "key", "text", "value"),
    [
        ("mll", "lambda_max", "80", 80.0),
        ("mll", "normalise", "False", False),
        ("mll_transductive", "iterations", "3", 3),
        ("combined", "rule", "closest", "closest"),
        ("combined", "metrics", "cosine, mll", ("cosine", "mll")),
        ("pt_map", "marginals", "estimated", "estimated"),
        ("protolp", "marginals", "0.2, 0.3,0.5", (0.2, 0.3, 0.5)),
    ],
)
def test_values_are_read_by_the_type_of_the_default(name, key, text, value):
    assert binding.parse(name, key, text) == value


@pytest.mark.parametrize(
    ("name", "key", "text", "message"),
    [
        ("mll", "lambda_maks", "80", "did you mean 'lambda_max'"),
        ("mll", "lambda_max", "eighty", "must be a number"),
        ("mll_transductive", "iterations", "2.5", "must be a whole number"),
        ("mll", "normalise", "maybe", "must be yes or no"),
        ("mlll", "lambda_max", "1", "did you mean 'mll'"),
        ("pt_map", "marginals", "0.2,many", "must be a word, or numbers"),
    ],
)
def test_unreadable_values_are_refused(name, key, text, message):
    with pytest.raises(InputError, match=message):
        binding.parse(name, key, text)


def test_binding_gives_parameters_and_statistics():
    assert binding.bind("mll", {}) is METHODS["mll"]
    bound = binding.bind("mll", {"lambda_max": 80.0})
    assert isinstance(bound, functools.partial)
    assert bound.keywords == {"lambda_max": 80.0}
    mean = torch.ones(3)
    assert binding.bind("simpleshot", {}, {"base_mean": mean}).keywords == {"base_mean": mean}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("simpleshot", "simpleshot needs the mean of base features: give base features .--base"),
        ("bavardage", "bavardage needs the mean of base features"),
        ("combined", "combined needs score statistics of validation classes: give validation features .--val"),
    ],
)
def test_missing_statistics_are_named(name, missing):
    with pytest.raises(InputError, match=missing):
        binding.bind(name, {})


def test_a_statistic_that_only_an_added_method_needs_is_named(monkeypatch):
    def mine(support, labels, query, *, n_ways, prior):
        return query

    monkeypatch.setitem(METHODS, "mine", mine)
    with pytest.raises(InputError, match="mine needs prior: give it with functools"):
        binding.bind("mine", {})


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("mll_transductive", {"etta": 1}, "did you mean 'eta'"),
        ("mlll", {}, "did you mean 'mll'"),
        ("mll", {"shrinkage": None}, "shrinkage of mll must be a number, got None: its default is 0.0"),
        ("mll", {"lambda_max": "80"}, "must be a number"),
        ("mll", {"lambda_max": [80]}, "must be a number"),
        ("mll", {"lambda_max": True}, "must be a number"),
        ("mll", {"normalise": 1}, "must be True or False"),
        ("mll_transductive", {"iterations": 2.5}, "must be a whole number"),
        ("alpha_tim", {"alpha": "x"}, "must be a number"),
    ],
)
def test_parameters_of_another_kind_are_refused(name, params, message, features):
    with pytest.raises(InputError, match=message):
        binding.bind(name, params)
    with pytest.raises(InputError, match=message):
        Networks([Network(features)]).bind(name, params, ways=2, shots=1)


def test_the_defaults_of_calibrate_are_those_of_combined():
    own = binding.parameters_of(calibrate)
    assert {key: own[key] for key in STATISTICS["calibration"].params} == STATISTICS["calibration"].params


@pytest.mark.parametrize("names", [[""], [","], ["", " "]])
def test_no_name_is_not_a_method(names):
    with pytest.raises(InputError, match="expected the name of a method"):
        binding.parse_methods(names)

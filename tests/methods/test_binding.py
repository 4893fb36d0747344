from __future__ import annotations

import functools

import pytest
import torch

from likelyshot.data.features import Base
from likelyshot.errors import InputError
from likelyshot.methods import METHODS, binding


def test_parameters_and_needs_come_from_the_signatures():
    assert binding.parameters("mll_transductive") == {
        "lambda_max": 40.0,
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
    ],
)
def test_unreadable_values_are_refused(name, key, text, message):
    with pytest.raises(InputError, match=message):
        binding.parse(name, key, text)


def test_binding_gives_parameters_and_statistics(validation):
    statistics = binding.Statistics(base=Base(torch.ones(12)), validation=validation)
    assert binding.bind("mll", {}, statistics, ways=4, shots=1) is METHODS["mll"]
    bound = binding.bind("mll", {"lambda_max": 80.0}, statistics, ways=4, shots=1)
    assert isinstance(bound, functools.partial)
    assert bound.keywords == {"lambda_max": 80.0}
    assert binding.bind("simpleshot", {}, statistics, ways=4, shots=1).keywords["base_mean"].shape == (12,)
    with pytest.raises(InputError, match="bavardage needs the covariance within classes of base features"):
        binding.bind("bavardage", {}, statistics, ways=4, shots=1)
    whole = binding.Statistics(base=Base.of(validation))
    assert binding.bind("bavardage", {}, whole, ways=4, shots=1).keywords["base_within"].shape == (12, 12)
    made = binding.bind("combined", {"lambda_max": 80.0}, statistics, ways=4, shots=1).keywords["calibration"]
    assert (made.ways, made.shots, made.lambda_max) == (4, 1, 80.0)
    again = binding.bind("combined", {"lambda_max": 80.0}, statistics, ways=4, shots=1).keywords["calibration"]
    assert again is made
    given = binding.Statistics(calibration=made)
    assert binding.bind("combined", {"rule": "closest"}, given, ways=4, shots=1).keywords["calibration"] is made
    with pytest.raises(InputError, match="fixed by the given calibration"):
        binding.bind("combined", {"lambda_max": 80.0}, given, ways=4, shots=1)


@pytest.mark.parametrize(("name", "missing"), [("simpleshot", "--base"), ("combined", "--val")])
def test_missing_statistics_are_named(name, missing):
    with pytest.raises(InputError, match=missing):
        binding.bind(name, {}, binding.Statistics(), ways=4, shots=1)


def test_unknown_parameters_are_refused():
    with pytest.raises(InputError, match="did you mean 'eta'"):
        binding.bind("mll_transductive", {"etta": 1}, binding.Statistics(), ways=4, shots=1)

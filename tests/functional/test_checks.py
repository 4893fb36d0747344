from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.functional import checks


@pytest.mark.parametrize("number", [1e-12, 0.5, 3, 1e12, np.float32(2.0), np.int64(5)])
def test_reasonable_numbers_pass(number):
    checks.check_positive("tau", number, "try 1")
    checks.check_not_negative("tau", number, "try 1")
    checks.check_not_negative("tau", 0, "try 1")


def test_counts_switches_choices_and_shapes_pass():
    for count in (1, np.int32(7), 100_000):
        checks.check_count("steps", count, "try 10", least=1)
    for switch in (True, False, np.True_):
        checks.check_switch("normalise", switch)
    checks.check_choice("rule", "youden", {"youden": 1})
    checks.check_shape("mean", torch.zeros(2, 3), (2, 3), "make it")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(10**5000, "a very large number"), (10**200, r"1000*\.\.\."), ("a" * 100, r"'aaa*\.\.\."), ([1], r"\[1\]")],
    ids=["5000 digits", "200 digits", "long", "list"],
)
def test_long_values_are_cut_short(value, shown):
    with pytest.raises(InputError, match=rf"^tau must be a number from 1e-12 to 1e\+12, got {shown}: try 1$"):
        checks.check_positive("tau", value, "try 1")

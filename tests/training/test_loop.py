"""Rates against torch's own schedulers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot.training.loop import rate_factor
from likelyshot.training.recipes import Optimisation

S = torch.optim.lr_scheduler


def oracle(optimiser, chosen, epochs, steps):
    if chosen == "cosine":
        return S.CosineAnnealingLR(optimiser, epochs * steps)
    if chosen == "step":
        return S.MultiStepLR(optimiser, [steps, 2 * steps], gamma=0.3)
    if chosen == "onecycle":
        return S.OneCycleLR(optimiser, 1.0, total_steps=epochs * steps, cycle_momentum=False)
    return S.ConstantLR(optimiser, factor=1.0)


@pytest.mark.parametrize("chosen", ["cosine", "step", "onecycle", "constant"])
@settings(max_examples=15, deadline=None)
@given(epochs=st.integers(1, 5), steps=st.integers(4, 9))
def test_rates_are_those_of_torch(chosen, epochs, steps):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = oracle(optimiser, chosen, epochs, steps)
    wanted = Optimisation(epochs=epochs, schedule=chosen, milestones=(1, 2), decay=0.3)
    for step in range(epochs * steps):
        assert rate_factor(wanted, step, steps) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-9)
        optimiser.step()
        scheduler.step()

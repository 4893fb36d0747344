"""What the methods that take gradient steps share."""

from __future__ import annotations

import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from made_tasks import ragged

PROTOTYPES = ("entropy_min", "tim", "alpha_tim")


@pytest.mark.parametrize("name", PROTOTYPES)
def test_no_step_is_the_nearest_prototype(name):
    inputs = ragged(4)
    scores = METHODS[name](*inputs, n_ways=4, steps=0, tau=2.0)
    torch.testing.assert_close(scores, METHODS["euclidean"](*inputs, n_ways=4))


@pytest.mark.parametrize("name", [*PROTOTYPES, "baseline"])
def test_features_may_be_left_unnormalised(name):
    method, (support, labels, query) = METHODS[name], ragged(3)
    unit = [x / x.norm(dim=-1, keepdim=True) for x in (support, query)]
    torch.testing.assert_close(
        method(unit[0], labels, unit[1], n_ways=4, steps=20, normalise=False),
        method(support, labels, query, n_ways=4, steps=20),
    )
    with pytest.raises(InputError, match="normalise"):
        method(support * 1e200, labels, query, n_ways=4, normalise=False)

from __future__ import annotations

import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.functional.shares import class_shares, estimate_shares


def test_shares_are_scaled_to_sum_one_even_when_huge_or_tiny():
    for unit in (1e-300, 1.0, 1e300):
        shares = class_shares(torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 1.0]], dtype=torch.float64) * unit, 3)
        torch.testing.assert_close(shares, torch.tensor([[0.25, 0.25, 0.5], [0, 0, 1]], dtype=torch.float64))
    assert class_shares("uniform", 4).tolist() == class_shares("estimated", 4).tolist() == [0.25] * 4
    torch.testing.assert_close(class_shares(torch.tensor([3, 1]), 2), torch.tensor([0.75, 0.25], dtype=torch.float64))


@pytest.mark.parametrize(
    "bad",
    [
        "balanced",
        None,
        [[1.0], [1.0, 2.0]],
        [10**400, 1, 1],
        torch.ones(4),
        torch.tensor(1.0),
        torch.tensor([1.0, -1.0, 1.0]),
        torch.tensor([1.0, float("nan"), 1.0]),
        torch.tensor([1.0, float("inf"), 1.0]),
        torch.zeros(3),
        torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
    ],
    ids=str,
)
def test_nonsense_is_refused(bad):
    with pytest.raises(InputError, match="marginals must be"):
        class_shares(bad, 3)


def test_the_estimate_is_the_maximum_of_the_posterior():
    """Against a search over two classes of log prior + sum of counts * log share."""
    p = torch.tensor([[0.9, 0.8, 0.1, 0.5], [0.1, 0.2, 0.9, 0.5]], dtype=torch.float64)
    grid = torch.linspace(0.001, 0.999, 99_801, dtype=torch.float64)
    posterior = (1 + p[0].sum()) * grid.log() + (1 + p[1].sum()) * (1 - grid).log()
    torch.testing.assert_close(estimate_shares(p)[0], grid[posterior.argmax()], rtol=0, atol=2e-5)
    torch.testing.assert_close(estimate_shares(p).sum(), torch.tensor(1.0, dtype=torch.float64))

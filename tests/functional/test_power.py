from __future__ import annotations

import pytest
import torch

from likelyshot.functional.power import centre_units, power_transform


def test_by_hand():
    x = torch.tensor([[4.0, 0.0], [1e200, 4e200], [0.0, 0.0]], dtype=torch.float64)
    made = power_transform(x, 0.5)
    torch.testing.assert_close(made[0], torch.tensor([1.0, 0.0005], dtype=torch.float64), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(made[1], torch.tensor([1.0, 2.0], dtype=torch.float64) / 5**0.5)
    torch.testing.assert_close(made[2], torch.tensor([0.5, 0.5], dtype=torch.float64).sqrt())
    assert x[0, 0] == 4


def test_no_samples_stay_no_samples():
    assert power_transform(torch.ones(0, 3), 0.5).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_vectors_become_zero_and_others_unit(dtype):
    unit = torch.nn.functional.normalize(
        torch.rand(6, 7, dtype=dtype, generator=torch.Generator().manual_seed(0)), dim=1
    )
    made = centre_units(unit)
    torch.testing.assert_close(made.norm(dim=-1), torch.ones(6, dtype=dtype))
    apart = unit - unit.mean(0)
    torch.testing.assert_close(made, apart / apart.norm(dim=1, keepdim=True))
    assert not centre_units(unit[:1].expand(75, 7)).any()

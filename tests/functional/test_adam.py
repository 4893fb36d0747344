from __future__ import annotations

import pytest
import torch

from likelyshot.errors import InputError
from likelyshot.functional.adam import adam


def rosenbrock(w: torch.Tensor) -> torch.Tensor:
    return ((1 - w[..., 0]) ** 2 + 100 * (w[..., 1] - w[..., 0] ** 2) ** 2).sum()


@torch.enable_grad()
def slope(w: torch.Tensor) -> torch.Tensor:
    leaf = w.detach().clone().requires_grad_()
    return torch.autograd.grad(rosenbrock(leaf), leaf)[0]


def optimiser(start: torch.Tensor, steps: int, learning_rate: float) -> torch.Tensor:
    w = start.clone().requires_grad_()
    descent = torch.optim.Adam([w], lr=learning_rate)
    for _ in range(steps):
        descent.zero_grad()
        rosenbrock(w).backward()
        descent.step()
    return w.detach()


@pytest.mark.parametrize(("steps", "learning_rate"), [(1, 1e-3), (2, 0.1), (10, 1e-4), (300, 0.02)])
def test_equals_the_optimiser_of_torch(steps, learning_rate):
    start = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = adam(start, slope, steps, learning_rate)
    torch.testing.assert_close(found, optimiser(start, steps, learning_rate), rtol=1e-11, atol=1e-11)


def test_tasks_do_not_touch_each_other():
    start = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = adam(start, slope, 50, 0.01)
    for one, alone in zip(together, start, strict=True):
        assert torch.equal(one, adam(alone, slope, 50, 0.01))


def test_the_gradient_may_be_one_buffer_and_the_start_is_left_alone():
    start, buffer = torch.tensor([4.0, -1.0]), torch.empty(2)
    found = adam(start, lambda w: torch.mul(w, 2, out=buffer), 20, 0.1)
    torch.testing.assert_close(found, adam(start, lambda w: 2 * w, 20, 0.1), rtol=0, atol=0)
    assert start.tolist() == [4, -1]


def test_no_steps_are_the_start_itself_and_zero_gradients_stay_there():
    start = torch.tensor([4.0, -1.0])
    assert torch.equal(adam(start, slope, 0, 0.1), start)
    assert torch.equal(adam(start, torch.zeros_like, 9, 0.1), start)


def test_gradients_of_any_size_give_finite_steps():
    sizes = torch.tensor([0.0, 1e-300, 1e-160, 1e-8, 1.0, 1e150, 1e200, -1e200], dtype=torch.float64)
    found = adam(torch.zeros(8, dtype=torch.float64), lambda _: sizes.clone(), 5, 0.1)
    assert found.isfinite().all()
    torch.testing.assert_close(found[3:6], torch.tensor([-0.25, -0.5, -0.5], dtype=torch.float64))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_is_refused(bad):
    with pytest.raises(InputError, match="normalise"):
        adam(torch.zeros(2), lambda _: torch.tensor([0.0, bad]), 3, 0.1)

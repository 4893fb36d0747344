from __future__ import annotations

import math

import pytest
import torch

from likelyshot.functional.entropies import entropy_slope, information_slope, softmax_slope

ALPHAS = [0.3, 0.99, 1.0, 1.5, 2.0, 7.0, 20.0]


def logits(seed: int, spread: float = 3.0) -> torch.Tensor:
    """Tasks x classes x queries."""
    return spread * torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def entropy(p: torch.Tensor, alpha: float) -> torch.Tensor:
    if alpha == 1:
        return -(p * p.log()).sum(-2)
    return (1 - p.pow(alpha).sum(-2)) / (alpha - 1)


def by_autograd(loss, raw: torch.Tensor) -> torch.Tensor:
    leaf = raw.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf.softmax(-2)).sum(), leaf)[0]


@pytest.mark.parametrize("seed", range(3))
def test_entropy_slope_is_the_derivative(seed):
    raw = logits(seed)
    expected = by_autograd(lambda p: entropy(p, 1).mean(-1), raw)
    torch.testing.assert_close(entropy_slope(raw.log_softmax(-2)), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_information_slope_is_the_derivative(alpha):
    raw = logits(4)
    expected = by_autograd(
        lambda p: entropy(p, alpha).mean(-1) - entropy(p.mean(-1, keepdim=True), alpha).squeeze(-1), raw
    )
    torch.testing.assert_close(information_slope(raw.log_softmax(-2), alpha), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_information_slope_runs_continuously_into_the_logarithm(dtype):
    log_p = logits(5).log_softmax(-2).to(dtype)
    torch.testing.assert_close(information_slope(log_p, 1 + 1e-9), information_slope(log_p, 1.0))


def test_softmax_slope_is_the_jacobian():
    raw, slope = logits(6), logits(7)
    expected = by_autograd(lambda p: p * slope, raw)
    torch.testing.assert_close(softmax_slope(raw.softmax(-2), slope), expected)


def test_two_classes_by_hand():
    log_p = torch.tensor([[0.25], [0.75]], dtype=torch.float64).log()
    assert entropy_slope(log_p)[0, 0].item() == pytest.approx(0.25 * 0.75 * math.log(3))
    assert entropy_slope(log_p)[1, 0].item() == pytest.approx(-0.25 * 0.75 * math.log(3))


def test_one_query_holds_no_information():
    log_p = logits(8)[..., :1].log_softmax(-2)
    for alpha in ALPHAS:
        assert information_slope(log_p, alpha).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1e-3, *ALPHAS, 1e6])
def test_certain_probabilities_have_finite_slopes(dtype, alpha):
    raw = torch.tensor([[1e30, 0.0, -500.0], [0.0, 0.0, -1e30], [-1e30, 0.0, 1e30]], dtype=dtype)
    log_p = raw.log_softmax(-2).clamp_min(math.log(torch.finfo(dtype).tiny))
    assert information_slope(log_p, alpha).isfinite().all()
    assert entropy_slope(log_p).isfinite().all()
    absent = torch.cat([log_p, torch.full((1, 3), math.log(torch.finfo(dtype).tiny), dtype=dtype)])
    assert information_slope(absent, alpha).isfinite().all()

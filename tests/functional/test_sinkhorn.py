from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from likelyshot.functional import sinkhorn as module
from likelyshot.functional.sinkhorn import sinkhorn


def draw(seed, *batch, ways=5, queries=30, spread=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(*batch, ways, queries, generator=generator, dtype=torch.float64)
    shares = torch.rand(*batch, ways, generator=generator, dtype=torch.float64) + 0.02
    return logits, shares / shares.sum(-1, keepdim=True), torch.zeros(*batch, ways, dtype=torch.float64)


def oracle(logits, shares):
    """Sinkhorn's two scalings in turn, many times."""
    p = np.exp(logits.numpy())
    for _ in range(20_000):
        p = p * (shares.numpy() * p.shape[1] / p.sum(1))[:, None]
        p = p / p.sum(0)
    return torch.tensor(p)


@pytest.mark.parametrize("seed", range(4))
def test_equals_many_plain_scalings(seed):
    logits, shares, start = draw(seed)
    log_p, b = sinkhorn(logits, shares, start, tolerance=1e-10)
    torch.testing.assert_close(log_p.exp(), oracle(logits, shares), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close((logits + b.unsqueeze(-1)).log_softmax(-2), log_p)


@pytest.mark.parametrize("seed", range(3))
def test_equals_pot(seed):
    ot = pytest.importorskip("ot")
    logits, shares, start = draw(seed)
    rows = np.full(30, 1 / 30)
    plan = ot.sinkhorn(shares.numpy(), rows, -logits.numpy(), reg=1.0, stopThr=1e-12, numItermax=100_000)
    log_p, _ = sinkhorn(logits, shares, start, tolerance=1e-10)
    torch.testing.assert_close(log_p.exp() / 30, torch.tensor(plan), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 300.0, 1e4])
@pytest.mark.parametrize(("ways", "queries"), [(2, 1), (5, 75), (20, 7)])
def test_both_marginals_hold_and_all_is_finite(spread, ways, queries):
    logits, shares, start = draw(7, 3, ways=ways, queries=queries, spread=spread)
    log_p, b = sinkhorn(logits, shares, start, tolerance=1e-8)
    assert log_p.isfinite().all()
    assert b.isfinite().all()
    torch.testing.assert_close(log_p.exp().sum(-2), torch.ones(3, queries, dtype=torch.float64))
    if spread <= 30:  # with 1e4, a plan is as good as hard, and no potential in double precision balances it
        torch.testing.assert_close(log_p.exp().mean(-1), shares, rtol=0, atol=1e-8)


def test_two_classes_by_hand():
    """One query: p is the shares, whatever the logits."""
    shares = torch.tensor([0.2, 0.8], dtype=torch.float64)
    log_p, _ = sinkhorn(torch.tensor([[9.0], [1.0]], dtype=torch.float64), shares, torch.zeros(2), tolerance=1e-12)
    torch.testing.assert_close(log_p.exp().squeeze(-1), shares)


def test_every_task_stops_by_itself():
    easy, hard = draw(0, spread=0.1), draw(1, spread=20.0)
    together = sinkhorn(*(torch.stack(pair) for pair in zip(easy, hard, strict=True)), tolerance=1e-3)[0]
    for i, task in enumerate((easy, hard)):
        torch.testing.assert_close(together[i], sinkhorn(*task, tolerance=1e-3)[0], rtol=1e-12, atol=1e-12)
    further = sinkhorn(*easy, tolerance=1e-12)[0]
    assert not torch.allclose(together[0], further, rtol=1e-12, atol=1e-12)


def test_a_share_of_zero_empties_the_class_and_stays_finite():
    logits, _, start = draw(2, ways=3)
    log_p, b = sinkhorn(logits, torch.tensor([0.5, 0.0, 0.5]), start)
    assert log_p.isfinite().all()
    assert b.isfinite().all()
    assert log_p.exp()[1].mean() <= 1e-6


def test_starting_at_the_solution_takes_no_sweep(monkeypatch):
    logits, shares, start = draw(3)
    log_p, b = sinkhorn(logits, shares, start)
    monkeypatch.setattr(module, "MOST_SWEEPS", 0)
    again, same = sinkhorn(logits, shares, b)
    torch.testing.assert_close(again, log_p)
    assert torch.equal(same, b)
    assert not torch.allclose(sinkhorn(logits, shares, start)[0], log_p)


def test_no_queries_take_no_sweep(monkeypatch):
    monkeypatch.setattr(torch.linalg, "solve", None)
    log_p, b = sinkhorn(torch.zeros(3, 0), torch.ones(3) / 3, torch.zeros(3))
    assert log_p.shape == (3, 0)
    assert torch.equal(b, torch.zeros(3))


def test_newton_needs_few_sweeps_where_plain_ones_need_hundreds(monkeypatch):
    logits, shares, start = draw(4, spread=8.0)
    monkeypatch.setattr(module, "MOST_SWEEPS", 15)
    log_p, _ = sinkhorn(logits, shares, start)
    assert (log_p.exp().mean(-1) - shares).abs().max() < 1e-6
    b = torch.zeros(5, 1, dtype=torch.float64)
    for _ in range(15):
        mean = (logits + b).softmax(-2).mean(-1, keepdim=True)
        b = b + shares.unsqueeze(-1).log() - mean.log()
    assert ((logits + b).softmax(-2).mean(-1) - shares).abs().max() > 1e-4
    assert math.isclose(float(log_p.exp().sum()), 30)

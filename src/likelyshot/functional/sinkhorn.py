"""Soft assignments with given class shares, by entropic optimal transport in the log domain."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot import machine

MOST_SWEEPS = 1000  # a handful is usual
LONGEST_STEP = 4.0  # of a potential, by Newton: exp(4) = 55 times the odds
SLACK = 1e-12  # in the dual: below it, rounding would decide whether a step climbs


def sinkhorn(
    logits: Tensor, shares: Tensor, potentials: Tensor, *, tolerance: float = 1e-6, settle: bool = True
) -> tuple[Tensor, Tensor]:
    """Scale exp(logits) so that every query sums to 1 over the classes, and every class to its share of the queries.

    The assignment is p_kq = softmax_k(logits_kq + b_k), with potentials b that maximise the concave dual
    sum_k shares_k b_k - mean_q logsumexp_k(logits_kq + b_k), whose gradient is shares_k - mean_q p_kq.
    A sweep is a step of Newton's method, which needs 2 or 3 where Sinkhorn's need hundreds; where it climbs less than
    a quarter of what its slope promises, it is Sinkhorn's instead, b_k + log shares_k - log mean_q p_kq, which always
    climbs. Every task stops by itself.
    Shapes: logits (..., k, q), shares (..., k), potentials (..., k) -> log p (..., k, q), b (..., k).

    Args:
        shares: Share of the queries that each class gets, summing to 1; 0 is taken as the smallest positive number.
        potentials: Potentials b to start from, 0 or those of a similar problem.
        tolerance: Largest error of a class's share at which a task stops.
        settle: Whether all tasks must stop. On accelerators it is asked after every 8 sweeps, since the host waits for
            the answer; where another round follows, 8 sweeps do without asking.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    >>> log_p, _ = sinkhorn(logits, torch.tensor([1 / 3, 2 / 3]), torch.zeros(2))
    >>> log_p.exp().sum(-1)
    tensor([1.0000, 2.0000], dtype=torch.float64)
    """
    tiny = torch.finfo(logits.dtype).tiny
    logits = logits - logits.amax(-2, keepdim=True)
    target = shares.to(logits).clamp_min(tiny).unsqueeze(-1)  # (..., k, 1), as all vectors below
    b = potentials.to(logits).unsqueeze(-1)
    k, q = logits.shape[-2:]
    # The Hessian knows nothing of a constant in b, nor of empty classes: this makes it invertible.
    ridge = logits.new_full((k, k), 1 / k**2)
    ridge.diagonal().add_(SLACK)
    ask = 8 if machine.on_accelerator(logits) else 1  # after how many sweeps
    log_p, dual = _assign(logits, target, b)
    for sweep in range(MOST_SWEEPS if q else 0):  # without queries there is nothing to share out
        p = log_p.exp()
        mean = p.sum(-1, keepdim=True) / q
        slope = target - mean
        moving = slope.abs().amax(-2, keepdim=True) > tolerance
        if sweep % ask == 0 and (sweep > 0 or ask == 1):
            if ask > 1 and not settle:
                break
            if not moving.any():
                break
        hessian = torch.diag_embed(mean.squeeze(-1)) - p @ p.transpose(-1, -2) / q + ridge
        step = torch.linalg.solve_ex(hessian, slope).result
        step = step * (LONGEST_STEP / step.abs().amax(-2, keepdim=True).clamp_min(LONGEST_STEP))
        trial, trial_dual = _assign(logits, target, b + step)
        climbs = trial_dual >= dual + (slope * step).sum(-2, keepdim=True) / 4 - SLACK
        if ask > 1 or not (climbs | ~moving).all():
            step = torch.where(climbs, step, target.log() - mean.clamp_min(tiny).log())
            trial, trial_dual = _assign(logits, target, b + step)
        log_p = torch.where(moving, trial, log_p)
        b = torch.where(moving, b + step, b)
        dual = torch.where(moving, trial_dual, dual)
    return log_p, b.squeeze(-1)


def _assign(logits: Tensor, target: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Give log softmax_k(logits + b) and the dual at b."""
    moved = logits + b
    log_p = moved.log_softmax(-2)
    total = moved[..., :1, :] - log_p[..., :1, :]  # logsumexp: the difference is the same for every class
    return log_p, (target * b).sum(-2, keepdim=True) - total.sum(-1, keepdim=True) / max(1, total.shape[-1])

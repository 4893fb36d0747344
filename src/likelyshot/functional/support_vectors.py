"""The multi-class support vector machine of Crammer & Singer for many small tasks at once, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from likelyshot import machine

MAX_STEPS, TOLERANCE = 5_000, 1e-13


def project_rows(x: Tensor, total: float) -> Tensor:
    """Move every row to the nearest point of the simplex {b >= 0, sum b = total} (Held et al. 1974).

    Shapes: x (..., k) -> (..., k).

    Args:
        x: The rows.
        total: What each row sums to afterwards.

    >>> project_rows(torch.tensor([[0.5, 0.1, -3.0]]), 1.0)
    tensor([[0.7000, 0.3000, 0.0000]])
    """
    sorted_x = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    levels = (sorted_x.cumsum(-1) - total) / ranks
    positive = (sorted_x > levels).sum(-1, keepdim=True).clamp_min(1)
    return (x - levels.gather(-1, positive - 1)).clamp_min(0)


def crammer_singer(gram: Tensor, targets: Tensor, c: float) -> Tensor:
    """Find the dual variables of the multi-class support vector machine.

    min_a 1/2 sum_m a_m' K a_m - sum_i a_{i, y_i} with sum_m a_im = 0 and a_im <= c 1[m = y_i] (Crammer & Singer
    2001). The score of x for class m is sum_i a_im x_i . x. With b = c Y - a every row of b lies on a simplex:
    accelerated projected gradient, restarted where it turns back, every task to its own convergence. Gradients
    follow from the optimality conditions with the zeros of b held fixed. Where K has no inverse, a is one of several
    solutions, and all of them have the same scores.
    Shapes: gram (..., s, s), targets (..., s, k), both float64 and with the same leading dimensions -> (..., s, k).

    Args:
        gram: Inner products K of the support.
        targets: One-hot labels.
        c: Weight of the hinge loss of every sample.

    >>> gram, targets = torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    >>> crammer_singer(gram, targets, c=10.0).round(decimals=6)
    tensor([[ 0.5000, -0.5000],
            [-0.5000,  0.5000]], dtype=torch.float64)
    """
    leading = gram.shape[:-2]
    dual: Tensor = _Dual.apply(  # type: ignore[no-untyped-call]
        gram.flatten(0, -3) if leading else gram[None], targets.reshape(-1, *targets.shape[-2:]), c
    )
    return dual.view(*leading, *targets.shape[-2:])


class _Dual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gram: Tensor, targets: Tensor, c: float) -> Tensor:
        b = _solve(gram.detach(), targets, c)
        dual = c * targets - b
        ctx.save_for_backward(gram, dual, b > 0)
        return dual

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        gram, dual, free = ctx.saved_tensors
        t, s, k = dual.shape
        member = free.to(gram)
        # P projects a row on changes of its free entries that sum to zero
        project = (
            torch.diag_embed(member) - member.unsqueeze(-1) * member.unsqueeze(-2) / member.sum(-1)[..., None, None]
        )
        whole = torch.einsum("tiab,tij,tjbc->tiajc", project, gram, project).reshape(t, s * k, s * k)
        rest = torch.zeros_like(whole).view(t, s, k, s, k)
        rest.diagonal(dim1=1, dim2=3).copy_((torch.eye(k).to(gram) - project).movedim(1, -1))
        unit = (
            torch.eye(s * k).to(gram)
            * 1e-12
            * gram.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None].clamp_min(1e-300)
        )
        right = (project @ slope.unsqueeze(-1)).reshape(t, s * k, 1)
        u = torch.linalg.solve(whole + rest.view_as(whole) + unit, right).view(t, s, k)
        outer = u @ dual.mT
        return -(outer + outer.mT) / 2, None, None


def _solve(gram: Tensor, targets: Tensor, c: float) -> Tensor:
    """Find b: (t, s, s), (t, s, k) -> (t, s, k)."""
    if machine.on_accelerator(gram):  # by a bound, the largest row: the eigenvalues make the host wait
        largest = gram.abs().sum(-1).amax(-1).clamp_min(1e-300)[:, None, None]
    else:
        largest = torch.linalg.eigvalsh(gram)[..., -1].clamp_min(1e-300)[:, None, None]
    b = c * targets.new_ones(targets.shape) / targets.shape[-1]
    done = torch.empty_like(b)
    rows = torch.arange(len(gram), device=gram.device)  # tasks that go on
    ahead, momentum = b, torch.ones_like(largest)
    over = torch.zeros_like(rows, dtype=torch.bool)
    for count in range(MAX_STEPS):
        slope = targets - gram @ (c * targets - ahead)
        new = project_rows(ahead - slope / largest, c)
        step = new - b
        back = ((ahead - new) * step).sum((-2, -1), keepdim=True) > 0  # uphill: restart
        following = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        pull = torch.where(back, 0, (momentum - 1) / following)
        moved = torch.maximum((new - ahead).abs(), step.abs()).amax((-2, -1))
        momentum, ahead, b = torch.where(back, 1, following), new + pull * step, new
        finished = moved <= TOLERANCE * c
        if machine.on_accelerator(b):  # finished tasks continue without effect, so that the host seldom waits
            done, over = torch.where((over | ~finished)[:, None, None], done, b), over | finished
            if count % 1024 == 1023 and bool(over.all()):
                return done
        elif bool(finished.any()):
            done[rows[finished]] = b[finished]
            keep = ~finished
            if not bool(keep.any()):
                return done
            rows, gram, targets, largest = rows[keep], gram[keep], targets[keep], largest[keep]
            b, ahead, momentum = b[keep], ahead[keep], momentum[keep]
    if machine.on_accelerator(b):
        return torch.where(over[:, None, None], done, b)
    done[rows] = b
    return done

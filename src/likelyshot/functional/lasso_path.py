"""The Lasso path of incidental parameters: which samples a linear regression would rather except."""

from __future__ import annotations

import torch
from torch import Tensor

PENALTIES, SMALLEST = 100, 1e-3  # scikit-learn's grid: log-spaced, down to this share of the largest penalty
MAX_NEWTON, MAX_HALVINGS, TOLERANCE, ROUNDING = 100, 50, 1e-8, 1e-14


def lasso_leaving_times(basis: Tensor, y: Tensor) -> Tensor:
    """Measure how long each sample's parameters gamma_i stay zero on the group Lasso path as the penalty falls.

    The path is that of min_gamma 1/2 ||(I - H)(Y - gamma)||^2 + lambda sum_i ||gamma_i||_2, H the projection on the
    basis, at 100 penalties log-spaced from lambda_0, the least at which all gamma are zero, to lambda_0 / 1000.
    With H (Y - gamma) = basis B and r_i = y_i - basis_i B it is `huber_regression` for B, and
    gamma_i = max(0, 1 - lambda / ||r_i||) r_i. Where no gamma_i is zero, B minimises sum_i ||r_i||, whatever lambda:
    none becomes zero again, and the path of the zeros is complete.
    The time is j + 1 - ||r_i|| / lambda_j, j the last penalty at which gamma_i = 0: its fraction orders the samples
    that leave between the same two penalties by how close they are to leaving.
    Shapes: basis (t, n, p), y (t, n, k), both float64 -> (t, n).

    Args:
        basis: Columns that the regression uses, orthonormal or zero.
        y: One-hot labels of the samples.

    >>> basis = torch.full((1, 4, 1), 0.5, dtype=torch.float64)
    >>> y = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    >>> lasso_leaving_times(basis, y)  # the odd one out leaves first
    tensor([[99.6667, 99.6667, 99.6667,  0.0000]], dtype=torch.float64)
    """
    coefficients = basis.transpose(-1, -2) @ y  # B, (t, p, k)
    distances = torch.linalg.vector_norm(y - basis @ coefficients, dim=-1, keepdim=True)  # ||r_i||, (t, n, 1)
    largest = distances.amax(-2, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)  # lambda_0, (t, 1, 1)
    times: Tensor = 1 - distances / largest
    tasks = torch.arange(len(y), device=y.device)  # those with a zero left
    ratio = SMALLEST ** (1 / (PENALTIES - 1))
    before = coefficients
    for j in range(1, PENALTIES):
        penalty = largest[tasks] * ratio**j
        start = coefficients + ratio * (coefficients - before)  # B is nearly linear in lambda while the zeros stay
        their_basis, their_y = basis[tasks], y[tasks]
        before, coefficients = coefficients, huber_regression(their_basis, their_y, penalty, start)
        distances = torch.linalg.vector_norm(their_y - their_basis @ coefficients, dim=-1, keepdim=True)
        zero = distances <= penalty
        times[tasks] = torch.where(zero, j + 1 - distances / penalty, times[tasks])
        left = zero.any(-2).view(-1)
        tasks, coefficients, before = tasks[left], coefficients[left], before[left]
        if not len(tasks):
            break
    return times.squeeze(-1)


def huber_regression(basis: Tensor, y: Tensor, penalty: Tensor, start: Tensor) -> Tensor:
    """Fit y = basis B with Huber's loss of the residual norms, quadratic up to the penalty and linear beyond.

    Newton's method, every task to its own convergence, steps halved until the loss falls. The Hessian is that of least
    squares weighted by w_i = min(1, penalty / ||r_i||), less the part along r_i of the samples beyond the penalty:
    a trace of it is left, so that there always is one step and it descends.
    Shapes: basis (t, n, p), y (t, n, k), penalty (t, 1, 1), start (t, p, k) -> (t, p, k).

    Args:
        basis: Columns of the regression, orthonormal or zero.
        penalty: Norm of a residual at which the loss turns from quadratic to linear.
        start: Coefficients B to start from.

    >>> y = torch.tensor([[[0.0], [0.2], [9.0]]], dtype=torch.float64)
    >>> basis = torch.full((1, 3, 1), 3**-0.5, dtype=torch.float64)  # a constant: the loss is that of a robust mean
    >>> mean = huber_regression(basis, y, torch.ones(1, 1, 1, dtype=torch.float64), basis.transpose(1, 2) @ y)
    >>> (basis @ mean)[0, 0]
    tensor([0.6000], dtype=torch.float64)
    """
    n_tasks, p, k = start.shape
    transposed = basis.transpose(-1, -2)
    filler = torch.diag_embed((basis.square().sum(-2) < 0.5).to(y.dtype))  # a zero column keeps its zero coefficient
    identity = torch.eye(k, dtype=y.dtype, device=y.device)[:, None, :]

    def loss(residuals: Tensor) -> tuple[Tensor, Tensor]:
        distances = torch.linalg.vector_norm(residuals, dim=-1, keepdim=True)
        inside = torch.minimum(distances, penalty)
        return distances, (inside * (distances - inside / 2)).sum(-2, keepdim=True)

    coefficients, residuals = start, y - basis @ start
    distances, value = loss(residuals)
    for _ in range(MAX_NEWTON):
        weights = penalty / torch.maximum(distances, penalty)  # (t, n, 1)
        descent = transposed @ (weights * residuals)  # minus the gradient, (t, p, k)
        active = descent.abs().amax((-2, -1), keepdim=True) > TOLERANCE * penalty  # (t, 1, 1)
        if not active.any():
            break
        squares = transposed @ (weights * basis) + filler  # (t, p, p)
        along = residuals * ((weights < 1) * weights * weights.sqrt() / penalty)  # sqrt(w_i) r_i / ||r_i||
        radial = (basis.unsqueeze(-1) * along.unsqueeze(-2)).flatten(-2)  # (t, n, p k)
        hessian = (squares[:, :, None, :, None] * identity).view(n_tasks, p * k, p * k)
        hessian = torch.baddbmm(hessian, radial.transpose(-1, -2), radial, alpha=1e-9 - 1)
        step = torch.linalg.solve(hessian, descent.flatten(-2)).view_as(start)
        slope = (descent * step).sum((-2, -1), keepdim=True)
        change, length = basis @ step, active.to(y.dtype)
        for _ in range(MAX_HALVINGS):
            distances, trial = loss(residuals - length * change)
            falls = trial <= value - 1e-4 * length * slope + ROUNDING * value
            if falls.all():
                break
            length = torch.where(falls, length, length / 2)
        coefficients, residuals, value = coefficients + length * step, residuals - length * change, trial
    return coefficients

"""Multinomial logistic regression of many small tasks at once, exactly or from inner products alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from likelyshot import machine

MAX_NEWTON, MAX_CONJUGATE, MAX_HALVINGS = 100, 200, 30
TOLERANCE = 1e-12
#: On accelerators, tasks of at most so many weights take so many steps of Newton's method with the whole Hessian, each
#: of the best of so many lengths 1, 1/2, 1/4, ...: the host never waits.
WHOLE_HESSIAN, STEPS, LENGTHS = 640, 16, 4
#: Numbers in a matrix for each of several classes that are worked on at once: 64 MB.
LARGEST_AT_ONCE = 1 << 24


def logistic_logits(x: Tensor, targets: Tensor, penalty: float) -> Tensor:
    """Fit softmax(x W + b) to the targeted samples and return the logits of all samples.

    Minimises sum_i CE(t_i, softmax(x_i W + b)) + penalty/2 ||W||^2: scikit-learn's LogisticRegression with
    C = 1/penalty, the intercept b free.
    Newton's method, every task to its own convergence: directions by conjugate gradients with the Hessian's
    diagonal as preconditioner, steps halved until the objective falls. Logits sum to zero over the classes.
    A class without targets has no finite intercept: the others are fitted without it, and its logit is put one
    below the lowest of theirs.
    Shapes: x (t, n, d), targets (t, n, k), both float64 -> (t, n, k).

    Args:
        targets: One-hot labels; a sample whose row is zero takes no part in the fit.
        penalty: Weight of ||W||^2 / 2, above 0.

    >>> x = torch.tensor([[[-1.0], [1.0], [2.0]]], dtype=torch.float64)
    >>> targets = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    >>> logistic_logits(x, targets, penalty=0.1).round(decimals=3)
    tensor([[[ 1.3230, -1.3230],
             [-1.3230,  1.3230],
             [-2.6470,  2.6470]]], dtype=torch.float64)
    """
    x = torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)  # the intercept is the last weight
    transposed, squares = x.transpose(-1, -2), x.square().transpose(-1, -2)
    decay = torch.full_like(x[:1, :1].transpose(-1, -2), penalty)  # (1, d+1, 1)
    decay[:, -1] = 0
    counted = targets.sum(-1, keepdim=True)  # (t, n, 1)
    absent = targets.sum(-2, keepdim=True) == 0  # (t, 1, k)
    barrier = torch.zeros_like(absent, dtype=x.dtype).masked_fill_(absent, -torch.inf)
    enough = TOLERANCE * (1 + _norm(x * counted))

    def objective(weights: Tensor, logits: Tensor) -> Tensor:
        entropies = targets * ((logits + barrier).logsumexp(-1, keepdim=True) - logits)
        return entropies.sum((-2, -1), keepdim=True) + 0.5 * (decay * weights.square()).sum((-2, -1), keepdim=True)

    weights = x.new_zeros(len(x), x.shape[-1], targets.shape[-1])
    if machine.on_accelerator(x) and weights[0].numel() <= WHOLE_HESSIAN:
        weights = _whole_steps(x, weights, targets, barrier, decay, objective)
        return _centred(x @ weights, absent)
    logits = x @ weights
    value = objective(weights, logits)
    for _ in range(MAX_NEWTON):
        p = (logits + barrier).softmax(-1)
        p_counted = counted * p
        gradient = transposed @ (p_counted - targets) + decay * weights
        size = _norm(gradient)
        active = size > enough  # (t, 1, 1)
        if not active.any():
            break
        diagonal = (squares @ (p_counted * (1 - p)) + decay).clamp_min_(TOLERANCE)
        accuracy = torch.maximum(size * size.sqrt().clamp_max(0.1), enough / 10)
        hessian = functools.partial(_hessian_product, x, p, p_counted, decay)
        step = _conjugate_gradients(hessian, diagonal, -gradient * active, accuracy)
        change = x @ step
        slope = (gradient * step).sum((-2, -1), keepdim=True)
        length = active.to(x.dtype)
        for _ in range(MAX_HALVINGS):
            trial = objective(weights + length * step, logits + length * change)
            falls = trial <= value + 1e-4 * length * slope + TOLERANCE * (1 + value)
            if falls.all():
                break
            length = torch.where(falls, length, length / 2)
        weights, logits, value = weights + length * step, logits + length * change, trial
    return _centred(x @ weights, absent)


def kernel_logistic(gram: Tensor, known: Tensor, weights: Tensor, penalty: float, steps: int = 20) -> Tensor:
    """Fit softmax(W x) from inner products of the samples, and return C with W = C x, the coefficients of the samples.

    Minimises sum_i v_i CE(t_i, softmax(W x_i)) + penalty/2 ||W||^2, by accelerated steps of the bound of Boehning 1992:
    the Hessian is at most half that of a ridge regression, whose inverse is taken once. After 20 steps,
    with unit vectors and a penalty of 0.1, the logits are within a few per cent of those of the minimum.
    A class without samples has coefficients of 0, and takes no part.
    Shapes: gram (..., s, s), known (..., k, s), weights (..., 1, s) -> (..., k, s); logits are C gram, (..., k, s).

    Args:
        gram: Inner products of the samples.
        known: Their classes, 1[y = k].
        weights: How much every sample counts, v.
        penalty: Weight of ||W||^2 / 2, above 0.
        steps: Number of steps.

    >>> x = torch.tensor([[-1.0], [1.0], [2.0]])
    >>> known = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> kernel_logistic(x @ x.T, known, torch.ones(1, 3), penalty=0.1) @ x
    tensor([[-1.3394],
            [ 1.3394]])
    """
    roots = weights.sqrt()  # of the samples and their coefficients: all of them then weigh the same
    scaled = roots.mT * gram * roots
    bound = scaled / 2
    bound.diagonal(dim1=-2, dim2=-1).add_(penalty)
    inverse = torch.linalg.inv_ex(bound).inverse
    barrier = torch.where(known.sum(-1, keepdim=True) > 0, 0.0, -torch.inf)  # (..., k, 1)
    before = coefficients = torch.zeros_like(known * roots)
    pace = 1.0
    for _ in range(steps):
        faster = (1 + (1 + 4 * pace * pace) ** 0.5) / 2
        ahead = coefficients + (pace - 1) / faster * (coefficients - before)
        p = ((ahead @ scaled) / roots + barrier).softmax(-2)
        gradient = roots * (p - known) + penalty * ahead
        before, coefficients, pace = coefficients, ahead - gradient @ inverse, faster
    return coefficients * roots


def held_out_logits(gram: Tensor, logits: Tensor, known: Tensor, weights: Tensor, penalty: float) -> Tensor:
    """Give the logits of every sample by the regression without it, from one Newton step for each class.

    Without sample i, W_k moves along (X' V_k X + penalty I)^-1 x_i, with V_k the curvatures v p (1 - p) of all samples:
    z_ik + h v (p - t) / (1 - h v p (1 - p)), with h = x_i' (X' V_k X + penalty I)^-1 x_i. Classes move as if the
    others stood still (approximate leave-one-out of Rad & Maleki 2020, block-diagonal).
    Shapes: gram (..., s, s), logits (..., k, s), known (..., k, s), weights (..., 1, s) -> (..., k, s).

    Args:
        gram: Inner products of the samples.
        logits: Those of all samples by the regression on all samples.
        known: Their classes, 1[y = k].
        weights: How much every sample counts, v.
        penalty: Weight of ||W||^2 / 2, above 0.

    >>> x = torch.tensor([[-1.0], [1.0], [2.0]])
    >>> known = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> logits = kernel_logistic(x @ x.T, known, torch.ones(1, 3), penalty=0.1) @ (x @ x.T)
    >>> held_out_logits(x @ x.T, logits, known, torch.ones(1, 3), penalty=0.1)[1]
    tensor([-0.9801,  0.9801,  2.5937])
    """
    barrier = torch.where(known.sum(-1, keepdim=True) > 0, 0.0, -torch.inf)
    p = (logits + barrier).softmax(-2)
    curvature = weights * p * (1 - p)  # (..., k, s)
    at_once = max(1, LARGEST_AT_ONCE // max(gram.numel(), 1))
    parts = torch.split(curvature, at_once, -2)
    reach = torch.cat([_reach(gram, part, penalty) for part in parts], -2)
    step = reach * weights * (p - known)
    moved: Tensor = logits + step / (1 - reach * curvature).clamp_min(torch.finfo(logits.dtype).eps)
    return moved


def _reach(gram: Tensor, curvature: Tensor, penalty: float) -> Tensor:
    """Compute h = x_i' (X' V_k X + penalty I)^-1 x_i from inner products: (..., k, s)."""
    roots = curvature.sqrt().unsqueeze(-1)  # (..., k, s, 1)
    gram = gram.unsqueeze(-3)
    inner = roots * gram * roots.mT
    inner.diagonal(dim1=-2, dim2=-1).add_(penalty)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(inner).L, roots * gram, upper=False)
    reach: Tensor = (gram.diagonal(dim1=-2, dim2=-1) - white.square().sum(-2)).clamp_min(0) / penalty
    return reach


def _centred(logits: Tensor, absent: Tensor) -> Tensor:
    """Have logits sum to zero over the classes; those of classes without targets are one below the lowest other."""
    present = ~absent
    logits = logits - (logits * present).sum(-1, keepdim=True) / present.sum(-1, keepdim=True)
    lowest = logits.masked_fill(absent, torch.inf).amin(-1, keepdim=True)
    return torch.where(absent, lowest - 1, logits)


def _whole_steps(
    x: Tensor,
    weights: Tensor,
    targets: Tensor,
    barrier: Tensor,
    decay: Tensor,
    objective: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Take a fixed number of steps of Newton's method, each with the whole Hessian and by the best of a few lengths."""
    size, dim, ways = weights.shape
    counted = targets.sum(-1, keepdim=True)
    eye = torch.eye(ways, dtype=x.dtype, device=x.device)
    ridge = (decay.expand(size, dim, ways).reshape(size, -1) + 1e-10).diag_embed()  # intercepts may shift together
    lengths = x.new_tensor([*(0.5**power for power in range(LENGTHS)), 0.0]).view(-1, 1, 1, 1)
    for _ in range(STEPS):
        logits = x @ weights
        p = (logits + barrier).softmax(-1)
        gradient = x.mT @ (counted * p - targets) + decay * weights
        spread = counted.unsqueeze(-1) * (p.unsqueeze(-1) * eye - p.unsqueeze(-1) * p.unsqueeze(-2))  # (t, n, k, k)
        hessian = torch.einsum("tni,tnab,tnj->tiajb", x, spread, x).reshape(size, dim * ways, dim * ways) + ridge
        step = -torch.linalg.solve_ex(hessian, gradient.reshape(size, -1, 1)).result.view_as(weights)
        candidates = weights + lengths * step  # (m, t, d+1, k)
        values = objective(candidates, logits + lengths * (x @ step))  # (m, t, 1, 1)
        best = values.nan_to_num(torch.inf).argmin(0, keepdim=True)  # the longest of equals, and none if none falls
        weights = candidates.take_along_dim(best.expand(1, *weights.shape), 0)[0]
    return weights


def _hessian_product(x: Tensor, p: Tensor, p_counted: Tensor, decay: Tensor, v: Tensor) -> Tensor:
    u = x @ v  # (t, n, k)
    return x.transpose(-1, -2) @ (p_counted * (u - (p * u).sum(-1, keepdim=True))) + decay * v


def _norm(x: Tensor) -> Tensor:
    return x.square().sum((-2, -1), keepdim=True).sqrt()


def _conjugate_gradients(
    matrix: Callable[[Tensor], Tensor], diagonal: Tensor, right: Tensor, accuracy: Tensor
) -> Tensor:
    """Solve matrix(x) = right until the residual of every task is below its accuracy."""
    solution, residual = torch.zeros_like(right), right
    direction = scaled = residual / diagonal
    power = (residual * scaled).sum((-2, -1), keepdim=True)
    for _ in range(MAX_CONJUGATE):
        active = _norm(residual) > accuracy  # (t, 1, 1)
        if not active.any():
            break
        image = matrix(direction)
        curvature = (direction * image).sum((-2, -1), keepdim=True)
        length = torch.where(active & (curvature > 0), power / curvature, 0)
        solution = solution + length * direction
        residual = residual - length * image
        scaled = residual / diagonal
        power, before = (residual * scaled).sum((-2, -1), keepdim=True), power
        direction = scaled + torch.where(before > 0, power / before, 0) * direction
    return solution

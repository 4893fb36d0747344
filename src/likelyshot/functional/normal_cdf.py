r"""The cumulative distribution function of the normal distribution in one, two and three dimensions.

Quadrature of smooth one-dimensional integrals: deterministic, and accurate relative to both tails. With the
limits h, the correlations :math:`r_{ij} = \sin a_{ij}`, the univariate :math:`\Phi` and Plackett's identity
:math:`\partial F / \partial r_{ij} = \varphi_2(h_i, h_j; r_{ij}) \Phi(u_k)`, the correlations are led to the
wanted ones from others for which F is known:

.. math::
    F_2 &= \Phi(h_2) \Phi(h_3) + \frac{1}{2\pi} \int_0^{a_{23}} g(h_2, h_3; \sin a) da \\
        &= \max(0, \Phi(h_2) - \Phi(-h_3)) + \frac{1}{2\pi} \int_{-\pi/2}^{a_{23}} g(h_2, h_3; \sin a) da \\
    F_3 &= \Phi(h_1) F_2(h_2, h_3; r_{23}) + \frac{1}{2\pi} \sum_{j=2,3} \int_0^1
           a_{1j} \, g(h_1, h_j; \sin t a_{1j}) \, \Phi(u_k(t)) \, dt

where :math:`g(h, k; r) = \exp(-(h^2 + k^2 - 2hkr) / (2 - 2r^2))`, and :math:`u_k(t)` is :math:`h_k`
standardised by its conditional mean and deviation given :math:`h_1, h_j`, under the correlations at t.

Sources: Plackett, "A reduction formula for normal multivariate integrals", Biometrika 1954 (the identity);
Drezner and Wesolowsky, "On the computation of the bivariate normal integral", J. Stat. Comput. Simul. 1990
(the angle); Genz, "Numerical computation of rectangular bivariate and trivariate normal and t probabilities",
Stat. Comput. 2004 (the path).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.errors import InputError

_TOLERANCE = 1e-6  # of symmetry, unit diagonal and smallest eigenvalue: rounding to float32 passes
_SMALLEST_ANGLE = 1e-8  # |r| = 1 is computed as |r| = cos(1e-8), which moves F by less than 1e-8
_SMALLEST_GAP = 1e-12  # nodes are not graded further than this
_PAIR_NODES, _TRIPLE_NODES, _NODES_PER_GRADING = 40, 24, 12  # chosen by the relative error at z = -30
_BLOCK_ELEMENTS = 2**15  # nodes x points of one temporary, 256 KiB: two of them stay in the L2 cache
_FAR = 40.0  # Phi(-40) is zero in float64: further out nothing changes
_SQUARABLE = 1e150  # has a finite square
_TINY = torch.finfo(torch.float64).tiny
_SLOW_EXP, _SLOW_ERFC = -708.39, 26.54  # beyond, exp and erfc are below tiny, and slow

_Array = NDArray[np.float64]


class _Integral(NamedTuple):
    """The nodes of one integral, over the correlation of variables i and j."""

    i: int
    j: int
    weight: Tensor  # (nodes,)
    exponent: Tensor  # (nodes, 2): log g = exponent @ [(h_i - h_j)^2, (h_i + h_j)^2]
    conditional: Tensor | None = None  # (nodes, 3): -u_k / sqrt(2) = conditional @ h


class _Plan(NamedTuple):
    """What depends on the correlations only."""

    order: list[int]  # of the variables: the last two are the pair of F_2
    from_independence: bool  # the first form of F_2, or else the second
    pair: list[_Integral]
    triple: list[_Integral]


def normal_log_cdf(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of F = P(X_1 <= z_1, ..., X_n <= z_n) and of 1 - F, for standard normals, n = 1, 2 or 3.

    The equations are at the top of this file. The absolute error of F is below 1e-12, the relative error of
    1 - F below 1e-11, and that of F below 1e-4 for z > -10 and 1e-2 for z > -30 if at most one correlation is
    negative. With two or three negative ones F is a difference: below 1e-15 only its bounds can be trusted.

    For n > 1, where F is below the smallest normal number, log F = log(tiny) + min_i log Phi(z_i), and where
    1 - F is, log(1 - F) = log(tiny) + max_i log Phi(-z_i). So the order goes on, below all that is computed.

    Args:
        z: points (..., n), of any size including infinities.
        correlation: the correlation matrix (n, n); F is accurate to 1e-7 if it is singular.

    Returns:
        log F and log(1 - F), (...) each, in float64 and without gradient.

    >>> log_f, log_s = normal_log_cdf(torch.tensor([[0.0, 0.0], [9.0, 20.0]]), torch.eye(2))
    >>> log_f.exp()[0].item(), log_s[1].item()
    (0.25, -43.628...)
    """
    z = z.detach().to(torch.float64)
    lower, upper = _lower_and_upper(z, correlation)
    squarable = z.clamp(-_SQUARABLE, _SQUARABLE).where(z.isfinite(), z)  # (..., n)
    if z.shape[-1] == 1:
        return torch.special.log_ndtr(squarable[..., 0]), torch.special.log_ndtr(-squarable[..., 0])
    log_lower = torch.where(upper < 0.5, torch.log1p(-upper), torch.log(lower))
    log_upper = torch.where(upper < 0.5, torch.log(upper), torch.log1p(-lower))
    least = squarable.amin(-1)
    far = math.log(_TINY) + torch.special.log_ndtr(torch.stack([least, -least]))
    return torch.where(lower < _TINY, far[0], log_lower), torch.where(upper < _TINY, far[1], log_upper)


def normal_cdf(z: Tensor, correlation: Tensor) -> Tensor:
    """F = P(X_1 <= z_1, ..., X_n <= z_n) for standard normals: z (..., n), correlation (n, n) -> (...).

    As :func:`normal_log_cdf`, without the logarithm.

    Args:
        z: Upper bounds, (..., n).
        correlation: Correlations of the normals, (n, n).

    >>> normal_cdf(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]])).item()
    0.33333...
    """
    return _lower_and_upper(z.detach().to(torch.float64), correlation)[0]


def _lower_and_upper(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """F and 1 - F, each computed for itself, in blocks of points."""
    plan = _plan(*_checked_correlations(z, correlation))
    h = z.reshape(-1, len(plan.order)).T[plan.order].clamp(-_FAR, _FAR)  # (n, points)
    block = max(256, _BLOCK_ELEMENTS // max([32, *(len(part.weight) for part in plan.pair + plan.triple)]))
    lower, upper = z.new_empty(2, h.shape[1])
    for start in range(0, h.shape[1], block):
        columns = slice(start, start + block)
        lower[columns], upper[columns] = _block(h[:, columns], plan)
    return lower.reshape(z.shape[:-1]), upper.reshape(z.shape[:-1])


def _block(h: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    cdf, tail = torch.erfc(h / -math.sqrt(2)) / 2, torch.erfc(h / math.sqrt(2)) / 2  # (n, points) each
    lower, upper = cdf[-1], tail[-1]
    if len(h) > 1:
        change = _integrate(h, plan.pair)
        if plan.from_independence:
            lower, upper = cdf[-2] * lower + change, tail[-2] + cdf[-2] * upper - change
        else:
            start = cdf[-2:].amin(0) - tail[-2:].amin(0)  # Phi(h_2) - Phi(-h_3), by the smaller pair
            lower, upper = start.clamp(min=0) + change, (tail[-2] + upper).clamp(max=1) - change
    if len(h) > 2:
        change = _integrate(h, plan.triple)
        lower, upper = cdf[0] * lower + change, tail[0] + cdf[0] * upper - change
    return lower.clamp(min=0).minimum(cdf.amin(0)), upper.clamp(max=1).maximum(tail.amax(0))


def _integrate(h: Tensor, parts: list[_Integral]) -> Tensor:
    """The sum of the integrals at the points h (n, points) -> (points,)."""
    total = torch.zeros_like(h[0])
    for i, j, weight, exponent, conditional in parts:
        squares = torch.stack([(h[i] - h[j]).square(), (h[i] + h[j]).square()])  # (2, points)
        density = (exponent.to(h.device) @ squares).clamp_(min=_SLOW_EXP).exp_()  # (nodes, points)
        if conditional is not None:
            density *= (conditional.to(h.device) @ h).clamp_(max=_SLOW_ERFC).erfc_()
        total += weight.to(h.device) @ density
    return total


def _checked_correlations(z: Tensor, correlation: Tensor) -> list[float]:
    """The upper triangle of the matrix: nothing, r12, or r12, r13 and r23."""
    n = z.shape[-1] if z.ndim else 0
    if n not in (1, 2, 3):
        raise InputError(
            f"expected points (..., n), n = 1, 2 or 3, got shape {tuple(z.shape)}: choose up to 3 variables"
        )
    if correlation.shape != (n, n):
        raise InputError(
            f"expected a ({n}, {n}) correlation matrix for points of {n} dimensions, got shape "
            f"{tuple(correlation.shape)}: pass one matrix for all points"
        )
    matrix = correlation.detach().to("cpu", torch.float64).numpy()
    excess = max(np.abs(matrix - matrix.T).max(), np.abs(matrix.diagonal() - 1).max())
    if not excess <= _TOLERANCE or np.linalg.eigvalsh(matrix)[0] < -_TOLERANCE:
        raise InputError(
            "expected a symmetric, positive semi-definite correlation matrix with ones on its diagonal, got "
            f"{matrix.tolist()}: divide the covariance by the standard deviations"
        )
    return [float(r) for r in matrix[np.triu_indices(n, 1)]]


@lru_cache(maxsize=256)
def _plan(*correlations: float) -> _Plan:
    limit = math.pi / 2 - _SMALLEST_ANGLE
    angles = [min(max(math.asin(min(max(r, -1.0), 1.0)), -limit), limit) for r in correlations]
    if not angles:
        return _Plan([0], True, [], [])
    if len(angles) == 1:
        return _Plan([0, 1], angles[0] >= 0, _pair(0, 1, angles[0]), [])
    # If a12, a13 >= 0 nothing cancels in F_3: the pair 2, 3 is the only negative one, or else the closest.
    negative = [index for index in range(3) if angles[index] < 0]
    pair = negative[0] if len(negative) == 1 else max(range(3), key=lambda index: abs(angles[index]))
    order = [[2, 0, 1], [1, 0, 2], [0, 1, 2]][pair]
    a12, a13 = (angles[index] for index in range(3) if index != pair)
    return _Plan(order, angles[pair] >= 0, _pair(1, 2, angles[pair]), _triple(a12, a13, angles[pair]))


def _pair(i: int, j: int, a: float) -> list[_Integral]:
    """The integral of F_2 over the angle, from 0 to a positive a, or from -pi/2 to a negative one."""
    if a == 0:
        return []
    if a > 0:
        s, weight = _graded_nodes(math.pi / 2 / a - 1, _PAIR_NODES)
        length, exponent = a, _exponent(math.pi / 2 - a + a * s)
    else:  # as the positive correlation of h_i and -h_j
        s, weight = _graded_nodes(0.0, _PAIR_NODES)
        length = math.pi / 2 + a
        exponent = _exponent(length * s)[:, ::-1]
    return [_Integral(i, j, _tensor(weight * length / (2 * math.pi)), _tensor(exponent))]


def _triple(a12: float, a13: float, a23: float) -> list[_Integral]:
    """The two integrals of F_3, over s = 1 - t."""
    # The matrix is positive definite as long as theta_ij = arccos r_ij = pi/2 - t a_ij are the sides of a
    # spherical triangle: each below the sum of the others, all three together below 2 pi. It ends at t = end.
    theta23 = math.pi / 2 - a23
    bounds = [(theta23, a12 - a13), (math.pi - theta23, a12 + a13), (math.pi / 2, a12), (math.pi / 2, a13)]
    end = min((bound / abs(speed) for bound, speed in bounds if speed), default=math.inf)
    s, weight = _graded_nodes(end - 1, _TRIPLE_NODES)
    theta12, theta13 = math.pi / 2 - a12 + a12 * s, math.pi / 2 - a13 + a13 * s
    half = (theta12 + theta13 + theta23) / 2
    whole, side12, side13, side23 = (np.sin(half - side) for side in (0.0, theta12, theta13, theta23))
    root = np.sqrt(np.maximum(4 * whole * side12 * side13 * side23, _TINY))  # of the determinant
    integrals = []
    for j, a, theta, near, far in ((1, a12, theta12, side12, side13), (2, a13, theta13, side13, side12)):
        conditional = np.empty((len(s), 3))
        conditional[:, 0] = near * side23 - whole * far  # r_1j r_23 - r_1k, without its cancellation
        conditional[:, j] = near * far - whole * side23  # r_1j r_1k - r_23
        conditional[:, 3 - j] = np.sin(theta) ** 2
        conditional /= -math.sqrt(2) * (np.sin(theta) * root)[:, None]
        scaled = _tensor(weight * a / (4 * math.pi))  # 1 / 2 pi, and Phi = erfc / 2
        integrals += [_Integral(0, j, scaled, _tensor(_exponent(theta)), _tensor(conditional))] if a else []
    return integrals


def _exponent(theta: _Array) -> _Array:
    """For r = cos(theta), log g = -(h - k)^2 / (4 - 4r) - (h + k)^2 / (4 + 4r), where nothing cancels."""
    return np.stack([-1 / (8 * np.sin(theta / 2) ** 2), -1 / (8 * np.cos(theta / 2) ** 2)], 1)


def _graded_nodes(gap: float, base: int) -> tuple[_Array, _Array]:
    """Nodes and weights for the integral over s from 0 to 1 of a function that is singular at s = -gap.

    Gauss-Legendre in x with s = (e^(cx) - 1) / (e^c - 1) and c = -log(gap), which moves -gap to -infinity.
    """
    c = -math.log(min(max(gap, _SMALLEST_GAP), 0.99))
    x, weight = _gauss_legendre(8 * round((base + _NODES_PER_GRADING * c) / 8))
    return np.expm1(c * x) / math.expm1(c), weight * c * np.exp(c * x) / math.expm1(c)


@lru_cache(maxsize=64)
def _gauss_legendre(n: int) -> tuple[_Array, _Array]:
    x, weight = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, weight / 2


def _tensor(values: _Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))

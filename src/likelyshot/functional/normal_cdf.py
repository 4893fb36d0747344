r"""The cumulative distribution function of the normal distribution in one, two and three dimensions.

Deterministic quadrature of one-dimensional integrals, vectorised over the points, with relative accuracy in
both tails. With standardised limits :math:`h`, correlations :math:`r_{ij} = \sin a_{ij}`, the univariate
:math:`\Phi`, and Plackett's identity :math:`\partial F / \partial r_{ij} = \varphi_2(h_i, h_j; r_{ij}) \Phi(u_k)`,
the correlations are led from a matrix for which F is known to the wanted one:

.. math::
    F_2(h) &= \Phi(h_2) \Phi(h_3) + \frac{1}{2\pi} \int_0^{a_{23}} g(h_2, h_3; \sin a) \, da \\
           &= \max(0, \Phi(h_2) + \Phi(h_3) - 1) + \frac{1}{2\pi} \int_{-\pi/2}^{a_{23}} g(h_2, h_3; \sin a) \, da \\
    F_3(h) &= \Phi(h_1) F_2(h_2, h_3; r_{23}) + \frac{1}{2\pi} \sum_{j=2,3} \int_0^1
              a_{1j} \, g(h_1, h_j; \sin t a_{1j}) \, \Phi(u_k(t)) \, dt

where :math:`g(h, k; r) = \exp(-(h^2 + k^2 - 2hkr) / (2 - 2r^2))` and :math:`u_k(t)` is the standardised distance of
:math:`h_k` from its conditional mean given :math:`h_1, h_j` under the correlations :math:`\sin t a_{1j}, r_{23}`.

Sources: Plackett, "A reduction formula for normal multivariate integrals", Biometrika 1954 (the identity); Drezner
and Wesolowsky, "On the computation of the bivariate normal integral", J. Stat. Comput. Simul. 1990 (the angle);
Genz, "Numerical computation of rectangular bivariate and trivariate normal and t probabilities", Stat. Comput.
2004 (the path). The path reaches a singular matrix at the earliest at some t* >= 1, so the Gauss-Legendre nodes
are graded geometrically toward t = 1, the more so the nearer t* is.
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

_CORRELATION_TOLERANCE = 1e-6  # of symmetry, unit diagonal and smallest eigenvalue: float32 input passes
_SMALLEST_ANGLE = 1e-8  # |r| = 1 is computed as |r| = cos(1e-8), which moves F by less than 1e-8
_SMALLEST_GAP = 1e-12  # the nodes are not graded further than this
_BIVARIATE_NODES, _TRIVARIATE_NODES, _NODES_PER_GRADING = 40, 24, 12  # measured: relative error at z = -30
_FAR = 40.0  # the normal CDF of -40 is zero in float64, so that more is the same
_SQUARABLE = 1e150  # where a square still is finite
_BLOCK_ELEMENTS = 2**15  # nodes x points of one temporary, 256 KiB: two of them stay in the L2 cache
_TINY = torch.finfo(torch.float64).tiny

_Array = NDArray[np.float64]


class _Integral(NamedTuple):
    """A quadrature of a Plackett integral over the correlation of variables i and j."""

    i: int
    j: int
    weight: Tensor  # (m,)
    exponent: Tensor  # (m, 2): times (h_i - h_j)^2 and (h_i + h_j)^2 it is log g
    conditional: Tensor | None  # (m, 3): times h it is -u_k / sqrt(2); None in two dimensions


class _Plan(NamedTuple):
    """What depends on the correlations alone."""

    order: list[int]  # of the variables: the last two are the pair of F_2
    from_independence: bool  # which of the two forms of F_2
    pair: _Integral | None  # None is zero
    triple: list[_Integral]


def normal_log_cdf(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of the lower-orthant probability F = P(X_1 <= z_1, ..., X_n <= z_n) and of 1 - F.

    The equations and sources are in the module's docstring. Absolute error of F about 1e-13; relative error of 1 - F
    about 1e-12, and of F below 1e-3 down to underflow (usually far below) unless two or three correlations
    of three variables are negative: then F below 1e-15 is noise within its bounds (0, min_i Phi(z_i)).

    For n > 1, where F is below the smallest normal float64, log F = log(tiny) + min_i log Phi(z_i), where 1 - F
    is, log(1 - F) = log(tiny) + max_i log Phi(-z_i): an order that goes on, below all that did not underflow.

    Args:
        z: standardised points, (..., n), n = 1, 2 or 3; infinities are allowed.
        correlation: their correlation matrix, (n, n); singular ones are accurate to 1e-8.

    Returns:
        log F and log(1 - F), (...) each, float64, without gradient.

    >>> log_f, log_s = normal_log_cdf(torch.tensor([[0.0, 0.0], [20.0, 9.0]]), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    >>> log_f.exp()[0].item(), log_s[1].item()
    (0.3333..., -43.628...)
    """
    z = z.detach().to(torch.float64)
    lower, upper = _lower_and_upper(z, correlation)
    finite = z.clamp(-_SQUARABLE, _SQUARABLE).where(z.isfinite(), z)  # (..., n)
    log_margins, log_margin_tails = torch.special.log_ndtr(finite), torch.special.log_ndtr(-finite)
    if z.shape[-1] == 1:
        return log_margins[..., 0], log_margin_tails[..., 0]
    log_lower = torch.where(upper < 0.5, torch.log1p(-upper), torch.log(lower))
    log_upper = torch.where(upper < 0.5, torch.log(upper), torch.log1p(-lower))
    log_tiny = math.log(_TINY)
    return (
        torch.where(lower < _TINY, log_tiny + log_margins.amin(-1), log_lower),
        torch.where(upper < _TINY, log_tiny + log_margin_tails.amax(-1), log_upper),
    )


def normal_cdf(z: Tensor, correlation: Tensor) -> Tensor:
    """Lower-orthant probability F = P(X_1 <= z_1, ..., X_n <= z_n) of standard normals, n = 1, 2 or 3.

    As :func:`normal_log_cdf`, without the logarithms: z (..., n), correlation (n, n) -> (...), float64.

    >>> normal_cdf(torch.zeros(3), torch.eye(3)).item()
    0.125
    """
    return _lower_and_upper(z.detach().to(torch.float64), correlation)[0]


def _lower_and_upper(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """F and 1 - F, each with its own relative accuracy."""
    plan = _plan(*_checked_correlations(z, correlation))
    n = len(plan.order)
    h = z.reshape(-1, n).T[plan.order].clamp(-_FAR, _FAR)  # (n, points)
    integrals = [part for part in (plan.pair, *plan.triple) if part is not None]
    block = max(64, _BLOCK_ELEMENTS // max((len(part.weight) for part in integrals), default=32))
    lower, upper = z.new_empty(2, h.shape[1])
    for start in range(0, h.shape[1], block):
        stop = start + block
        lower[start:stop], upper[start:stop] = _block(h[:, start:stop], plan)
    return lower.reshape(z.shape[:-1]), upper.reshape(z.shape[:-1])


def _block(h: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    cdf, tail = torch.erfc(h / -math.sqrt(2)) / 2, torch.erfc(h / math.sqrt(2)) / 2  # (n, points): Phi(h), Phi(-h)
    lower, upper = cdf[-1], tail[-1]
    if len(h) > 1:
        if plan.from_independence:
            lower, upper = cdf[-2] * cdf[-1], tail[-2] + cdf[-2] * tail[-1]
        else:
            lower, upper = (cdf[-2] - tail[-1]).clamp(min=0), (tail[-2] + tail[-1]).clamp(max=1)
        change = _integrate(h, plan.pair)
        lower, upper = lower + change, upper - change
    if len(h) > 2:
        change = sum((_integrate(h, part) for part in plan.triple), torch.zeros_like(lower))
        lower, upper = cdf[0] * lower + change, tail[0] + cdf[0] * upper - change
    sum_of_tails = tail.sum(0)  # the bounds of Frechet
    lower = lower.maximum((1 - sum_of_tails).clamp(min=0)).minimum(cdf.amin(0))
    return lower, upper.maximum(tail.amax(0)).minimum(sum_of_tails.clamp(max=1))


def _integrate(h: Tensor, part: _Integral | None) -> Tensor:
    """The integral of one pair of variables at the points h (n, points) -> (points,)."""
    if part is None:
        return torch.zeros_like(h[0])
    squares = torch.stack([(h[part.i] - h[part.j]).square(), (h[part.i] + h[part.j]).square()])
    density = (part.exponent.to(h.device) @ squares).exp_()  # (m, points)
    if part.conditional is not None:
        density *= (part.conditional.to(h.device) @ h).erfc_()
    return part.weight.to(h.device) @ density


def _checked_correlations(z: Tensor, correlation: Tensor) -> tuple[float, ...]:
    """The upper triangle of the correlation matrix: (), (r12) or (r12, r13, r23)."""
    n = z.shape[-1] if z.ndim else 0
    if n not in (1, 2, 3):
        raise InputError(
            f"expected points (..., n) of 1, 2 or 3 dimensions, got shape {tuple(z.shape)}: put the dimensions last"
        )
    if correlation.shape != (n, n):
        raise InputError(
            f"expected a ({n}, {n}) correlation matrix for points of {n} dimensions, got shape "
            f"{tuple(correlation.shape)}: pass one matrix for all points"
        )
    matrix = correlation.detach().to("cpu", torch.float64).numpy()
    excess = max(np.abs(matrix - matrix.T).max(), np.abs(matrix.diagonal() - 1).max())
    if not excess <= _CORRELATION_TOLERANCE or np.linalg.eigvalsh(matrix)[0] < -_CORRELATION_TOLERANCE:
        raise InputError(
            "expected a symmetric, positive semi-definite correlation matrix with a diagonal of ones, got "
            f"{matrix.tolist()}: divide the covariance by its standard deviations"
        )
    return tuple(float(r) for r in matrix[np.triu_indices(n, 1)])


@lru_cache(maxsize=256)
def _plan(*correlations: float) -> _Plan:
    """The order of the variables and the quadratures, for (), (r12) or (r12, r13, r23)."""
    limit = math.pi / 2 - _SMALLEST_ANGLE
    angles = [min(max(math.asin(min(max(r, -1.0), 1.0)), -limit), limit) for r in correlations]
    if not angles:
        return _Plan([0], True, None, [])
    if len(angles) == 1:
        return _Plan([0, 1], angles[0] >= 0, _pair_integral(0, 1, angles[0]), [])
    # The pair of F_2 may have any sign without cancellation: the only negative pair, or else the closest.
    negatives = [index for index, angle in enumerate(angles) if angle < 0]
    pair = negatives[0] if len(negatives) == 1 else max(range(3), key=lambda index: abs(angles[index]))
    order = [[2, 0, 1], [1, 0, 2], [0, 1, 2]][pair]
    a12, a13 = [angles[index] for index in ([1, 2], [0, 2], [0, 1])[pair]]
    a23 = angles[pair]
    return _Plan(order, a23 >= 0, _pair_integral(1, 2, a23), _triple_integrals(a12, a13, a23))


def _pair_integral(i: int, j: int, a: float) -> _Integral | None:
    """The integral of g / 2 pi over the angle, from 0 to a, or to a negative a from -pi/2."""
    if a == 0:
        return None
    if a > 0:
        s, weight = _graded_nodes(math.pi / 2 / a - 1, _BIVARIATE_NODES)
        length, exponent = a, _exponent(math.pi / 2 - a + a * s)
    else:  # as the positive correlation of h_i and -h_j
        s, weight = _graded_nodes(0.0, _BIVARIATE_NODES)
        length = math.pi / 2 + a
        exponent = _exponent(length * s)[:, ::-1]
    return _Integral(i, j, _tensor(weight * length / (2 * math.pi)), _tensor(exponent), None)


def _triple_integrals(a12: float, a13: float, a23: float) -> list[_Integral]:
    """The two integrals of F_3 over s = 1 - t."""
    # The matrix of the arcs theta_ij = arccos r_ij = pi/2 - t a_ij is positive definite while they form a spherical
    # triangle: each less than the sum of the others, all together less than a full circle. All are linear in t.
    theta23 = math.pi / 2 - a23
    ends = [(theta23, a12 - a13), (math.pi - theta23, a12 + a13), (math.pi / 2, a12), (math.pi / 2, a13)]
    gap = min((limit / abs(speed) - 1 for limit, speed in ends if speed), default=math.inf)
    s, weight = _graded_nodes(gap, _TRIVARIATE_NODES)
    theta12, theta13 = math.pi / 2 - a12 + a12 * s, math.pi / 2 - a13 + a13 * s
    half = (theta12 + theta13 + theta23) / 2
    determinant = 4 * np.sin(half) * np.sin(half - theta12) * np.sin(half - theta13) * np.sin(half - theta23)
    deviation = np.sqrt(np.maximum(determinant, _TINY))
    r23 = math.cos(theta23)
    integrals = []
    for j, k, a, theta, other in ((1, 2, a12, theta12, theta13), (2, 1, a13, theta13, theta12)):
        if a == 0:
            continue
        conditional = np.empty((len(s), 3))  # u_k = conditional @ h
        conditional[:, 0] = np.cos(theta) * r23 - np.cos(other)
        conditional[:, j] = np.cos(theta) * np.cos(other) - r23
        conditional[:, k] = np.sin(theta) ** 2
        conditional /= (np.sin(theta) * deviation)[:, None]
        scaled = _tensor(weight * a / (4 * math.pi)), _tensor(_exponent(theta)), _tensor(conditional / -math.sqrt(2))
        integrals.append(_Integral(0, j, *scaled))
    return integrals


def _exponent(theta: _Array) -> _Array:
    """Coefficients of log g for r = cos(theta): -(h-k)^2 / (4 - 4r) - (h+k)^2 / (4 + 4r), which cannot cancel."""
    return np.stack([-1 / (8 * np.sin(theta / 2) ** 2), -1 / (8 * np.cos(theta / 2) ** 2)], 1)


def _graded_nodes(gap: float, base: int) -> tuple[_Array, _Array]:
    """Nodes and weights over s in (0, 1) for integrands that are singular at s = -gap.

    Gauss-Legendre in x after s = (e^(cx) - 1) / (e^c - 1), c = log(1 / gap), which sends the singularity to -infinity.
    """
    grading = -math.log(min(max(gap, _SMALLEST_GAP), 0.99))
    x, weight = _gauss_legendre(8 * round((base + _NODES_PER_GRADING * grading) / 8))
    scale = math.expm1(grading)
    return np.expm1(grading * x) / scale, weight * grading * np.exp(grading * x) / scale


@lru_cache(maxsize=64)
def _gauss_legendre(n: int) -> tuple[_Array, _Array]:
    x, weight = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, weight / 2


def _tensor(values: _Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))

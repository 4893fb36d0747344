"""Which distribution do features follow? Maximum-likelihood fits of six families to thousands of features at once.

Features behind a ReLU are exactly zero for many images, and no density gives an exact value any probability. So that
likelihoods can be compared, every family has the same point mass at zero, the share of zeros p: an image at zero
counts log p, any other log(1 - p) + log density. All families but one are fitted to the positive values. The exception
is the exponential of the paper, with one rate for all images, zeros included (eq. 2); the zero-inflated
exponential is the one whose rate is that of the positive values. Without zeros the two are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

#: The families, and how many parameters each has beside the point mass that all share.
FAMILIES = {
    "exponential": 1,
    "half-normal": 1,
    "gamma": 2,
    "Weibull": 2,
    "log-normal": 2,
    "zero-inflated exponential": 1,
}

#: No family is fitted narrower than this relative spread, about the resolution of float16: equal values stay finite.
LEAST_SPREAD = 1e-3
_MOST_STEPS, _TOLERANCE = 20, 1e-9  # Newton's steps; five or six do


class Fits(NamedTuple):
    """How well each family fits; families in the order of FAMILIES.

    Args:
        log_likelihood: Nats per image, the point mass at zero included, (families, ...).
        ks: Largest distance of the distribution functions (Kolmogorov-Smirnov), (families, ...).
    """

    log_likelihood: Tensor
    ks: Tensor


def fit_families(x: Tensor) -> Fits:
    """Fit all families to non-negative values by maximum likelihood, and measure how well they fit.

    The largest distance of the distribution functions is over all values; the exponential of eq. (2) has no point
    mass there, so that its distance is at least the share of zeros. Only zeros have log-likelihood 0.
    Shapes: x (..., n), n values of each feature -> twice (families, ...), float64.

    >>> fits = fit_families(torch.tensor([[0.0, 0.0, 1.0, 3.0]]))
    >>> dict(zip(FAMILIES, fits.ks[:, 0].round(decimals=3).tolist()))["exponential"]
    0.5
    """
    x = x.double().sort(-1).values
    n, positive = x.shape[-1], x > 0
    many = positive.sum(-1, keepdim=True).double()  # (..., 1), as all that follows
    some, count = many > 0, many.clamp_min(1)
    unit = torch.where(some, x.amax(-1, keepdim=True), 1)
    logs = torch.where(positive, x, unit).log() - unit.log()  # from the values themselves: ratios could underflow
    x = x / unit
    mean = torch.where(some, x.sum(-1, keepdim=True) / count, 1)
    mean_log = logs.sum(-1, keepdim=True) / count
    variance_log = ((logs - mean_log).square() * positive).sum(-1, keepdim=True) / count

    overall = torch.where(some, x.sum(-1, keepdim=True) / n, 1)  # 1 / lambda of eq. (2)
    sigma = torch.where(some, (x.square().sum(-1, keepdim=True) / count).sqrt(), 1)
    shape = gamma_shape(mean.log() - mean_log)
    power = weibull_shape(logs, positive)
    log_scale = torch.where(some, ((power * logs).exp() * positive).sum(-1, keepdim=True) / count, 1).log() / power
    width = variance_log.sqrt().clamp_min(LEAST_SPREAD)

    densities = torch.cat(  # mean log density of the positive values, in units of the largest
        [
            -overall.log() - mean / overall,
            math.log(2 / math.pi) / 2 - sigma.log() - 0.5,
            shape * (shape / mean).log() - torch.lgamma(shape) + (shape - 1) * mean_log - shape,
            power.log() - power * log_scale + (power - 1) * mean_log - 1,
            -mean_log - width.log() - math.log(2 * math.pi) / 2 - variance_log / width.square() / 2,
            -mean.log() - 1,
        ],
        -1,
    ).movedim(-1, 0)
    share = (many / n)[..., 0]
    mass = torch.special.xlogy(share, share) + torch.special.xlogy(1 - share, 1 - share)
    log_likelihood = mass + share * (densities - unit.log()[..., 0])

    place = torch.arange(n, dtype=x.dtype, device=x.device)
    before, after = (place - n + many) / count, (place + 1 - n + many) / count  # of the positive values

    def distance(cdf: Tensor) -> Tensor:
        gap = torch.maximum(after - cdf, cdf - before).where(positive, 0).amax(-1)
        return share * gap

    whole = -torch.expm1(-x / overall)
    ks = [
        torch.maximum((place + 1) / n - whole, whole - place / n).amax(-1),
        distance(torch.erf(x / sigma / math.sqrt(2))),
        distance(torch.special.gammainc(shape.expand_as(x), shape * x / mean)),
        distance(-torch.expm1(-(power * (logs - log_scale)).exp())),
        distance(torch.special.ndtr((logs - mean_log) / width)),
        distance(-torch.expm1(-x / mean)),
    ]
    return Fits(log_likelihood, torch.stack(ks))


def gamma_shape(gap: Tensor) -> Tensor:
    """Solve log k - digamma(k) = gap, the likelihood equation of a gamma distribution's shape k.

    Newton's method on 1/k (Minka 2002, "Estimating a Gamma distribution"); at most 1 / LEAST_SPREAD^2.
    Shapes: (...) -> (...), float64.

    Args:
        gap: Logarithm of the mean of the values, minus the mean of their logarithms.

    >>> k = gamma_shape(torch.tensor([0.5], dtype=torch.float64))
    >>> round((k.log() - torch.digamma(k)).item(), 6)
    0.5
    """
    gap = gap.clamp_min(LEAST_SPREAD**2 / 2)
    shape = (3 - gap + ((gap - 3).square() + 24 * gap).sqrt()) / (12 * gap)
    for _ in range(_MOST_STEPS):
        slope = shape - shape.square() * torch.polygamma(1, shape)
        step = shape * (shape.log() - torch.digamma(shape) - gap) / slope
        shape = shape / (1 + step)
        if float(step.abs().amax()) < _TOLERANCE:
            break
    return shape.clamp_max(LEAST_SPREAD**-2)


def weibull_shape(logs: Tensor, member: Tensor) -> Tensor:
    """Solve c (E_c[y] - E_0[y]) = 1, the likelihood equation of a Weibull distribution's shape c.

    E_c weighs the logarithms y by exp(c y). Newton's method on the logarithm of both sides, over log c; at most that of
    a relative spread of LEAST_SPREAD.
    Shapes: logs (..., n), member (..., n) bool -> (..., 1), float64.

    Args:
        logs: Logarithms y of the values, the largest 0.
        member: Which of the values count.

    >>> y = torch.tensor([-2.0, -1.0, 0.0], dtype=torch.float64)
    >>> c = weibull_shape(y, torch.ones(3, dtype=torch.bool))
    >>> weights = torch.softmax(c * y, -1)
    >>> (c * ((weights * y).sum() - y.mean())).item()
    1.0...
    """
    most = math.pi / math.sqrt(6) / LEAST_SPREAD
    count = member.sum(-1, keepdim=True).clamp_min(1)
    mean = (logs * member).sum(-1, keepdim=True) / count
    spread = (((logs - mean).square() * member).sum(-1, keepdim=True) / count).sqrt()
    shape = (math.pi / math.sqrt(6) / spread).clamp_max(most)
    tiny = torch.finfo(logs.dtype).tiny
    for _ in range(_MOST_STEPS):
        weights = (shape * logs).exp() * member
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(tiny)
        weighted = (weights * logs).sum(-1, keepdim=True)
        variance = (weights * (logs - weighted).square()).sum(-1, keepdim=True)
        rise = (weighted - mean).clamp_min(tiny)
        step = (shape * rise).log() / (1 + shape * variance / rise)
        stepped = (shape * (-step).exp()).clamp_max(most)
        moved, shape = float((stepped / shape - 1).abs().amax()), stepped
        if moved < _TOLERANCE:
            break
    return shape


def histogram(x: Tensor, width: Tensor, bins: int) -> Tensor:
    """Count values by bins of one width from 0 on; counts / (n width) is the density of the paper's eq. (1).

    Shapes: x (..., n) non-negative, width (...) -> (..., bins) int64.

    Args:
        width: Width of a bin, one number per feature.
        bins: Number of bins; the last one also counts what lies beyond it.

    >>> histogram(torch.tensor([[0.0, 0.4, 0.5, 1.0]]), torch.tensor([0.5]), 2)
    tensor([[2, 2]])
    """
    place = (x / width.unsqueeze(-1)).long().clamp_max(bins - 1)
    counts = torch.zeros(*x.shape[:-1], bins, dtype=torch.int64, device=x.device)
    return counts.scatter_add_(-1, place, torch.ones_like(place))


def rate_test(counts: Tensor, means: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Test whether a feature has one exponential rate in all classes: Rao's score test, with dispersion.

    sum_c n_c (m_c / m - 1)^2 / phi against chi-squared with c - 1 degrees of freedom; m_c are the means of the classes,
    m that of all images, phi = variance / m^2 of all images. phi is 1 for exponential features and keeps others from
    being found different for their dispersion alone (McCullagh & Nelder 1989, chapter 8), which the likelihood ratio
    does not: it finds most features of shuffled labels different.
    Shapes: counts (c,), means and variances (c, d) -> statistic and p (d,), float64.

    Args:
        counts: Number of images n_c of every class.
        means: Mean m_c of every class and feature.
        variances: Variance of every class and feature, with the denominator n_c.

    >>> counts, means = torch.tensor([50, 50]), torch.tensor([[1.0, 1.0], [1.1, 3.0]])
    >>> rate_test(counts, means, means.square())[1] < 0.01
    tensor([False,  True])
    """
    n, means = counts.double().unsqueeze(-1), means.double()
    overall = (n * means).sum(0) / n.sum()  # (d,)
    between = (n * (means - overall).square()).sum(0)
    total = between + (n * variances.double()).sum(0)
    statistic = torch.where(total > 0, (n.sum() - 1) * between / total, 0)
    half = torch.full_like(statistic, (len(counts) - 1) / 2)
    return statistic, torch.special.gammaincc(half, statistic / 2)


def holm(p: Tensor) -> Tensor:
    """Correct p-values for being many: the i-th smallest of d times d - i + 1, never falling, at most 1 (Holm 1979).

    Shapes: p (d,) -> (d,).

    >>> holm(torch.tensor([0.01, 0.04, 0.03]))
    tensor([0.0300, 0.0600, 0.0600])
    """
    order = p.argsort(stable=True)
    factors = torch.arange(len(p), 0, -1, device=p.device)
    adjusted = (p[order] * factors).cummax(0).values.clamp_max(1)
    return torch.empty_like(adjusted).scatter_(0, order, adjusted)

"""The likelihood mixture: an exponential and a Gaussian likelihood for every class, fitted to support and queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import check_count, check_non_negative, prepare
from likelyshot.functional.gram import join, mean_weights, squared_distances_to_means
from likelyshot.functional.neighbours import nearest_neighbours
from likelyshot.functional.scores import l2_normalise
from likelyshot.functional.shares import class_shares
from likelyshot.functional.sinkhorn import sinkhorn
from likelyshot.functional.within import discount_within

#: Samples above which there are no neighbours: their graph is quadratic.
LARGEST_GRAPH = 6000
#: Guards, of unit vectors: the least mean feature, the least mean squared distance, and rounding.
LEAST_MEAN, LEAST_DISTANCE, ROUNDING = 1e-6, 1e-3, 100


class Constants(NamedTuple):
    """The numbers of the method, the same for all data; chosen on validation classes (`tools/ahead.py`)."""

    directions: float = 25.0  # independent ones in which samples of a class differ, D
    exponential: float = 0.5  # weight of the exponential likelihood; the rest is the Gaussian's
    power: float = 0.5  # of the features, for the Gaussian and the neighbours
    prior_examples: float = 1.0  # that every class has before any is seen: the average class, the centre
    prior_scatter: float = 0.5  # squared length by which unit vectors vary in a direction before examples are seen
    prior_queries: float = 2.0  # that every class has before any is seen
    neighbours: int = 4
    agreement: float = 2.0  # how much the neighbours' mean responsibility counts
    trusted_shots: float = 10.0  # beyond the first, at which the support alone counts as much as with the queries
    far: float = 1.5  # mean squared distances from the nearest class at which a query counts half


@torch.no_grad()
def likelihood_mixture(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
) -> Tensor:
    """Score by the log-posterior of a mixture whose classes have an exponential and a Gaussian likelihood.

    Paper: this library, after Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Responsibilities r: of the support its labels, fixed; of the queries at first none. x are unit vectors; y are unit
    vectors of sqrt(x), minus the mean of all samples, unit again. In every round, with N_k the sum of class k's r:
    e_qk = sum_i log lambda_ki - lambda_k . x_q, the paper's exponential likelihood, 1 / lambda_k = (sum r x + m) /
    (N_k + 1) with m the mean of the support's class means, and at least the mean of all features;
    g_qk = -D/2 d_qk / w, a Gaussian of D = 25 directions: d the squared distance of y to sum r y / (N_k + 1), in the
    metric of `discount_within`, and w its r-weighted mean over the queries (in round 0, the mean of the nearest);
    l = (g + e) / 2, with e scaled to the spread of g over the classes; then (1 - t) l + t l_0, where l_0 is l of
    round 0, from the support alone, scaled to the spread of l, and t = (n - 1) / (n + 9) with n shots;
    r = softmax_k(l + log share_k + 2 A), share_k proportional to 2 + the sum of the queries' r, A the mean r of the
    4 nearest samples by sqrt(x). Share and A begin after round 0. In sums a query counts
    sigmoid(D/2 (1.5 - min_k d_qk / w)): a query that is unlike every class moves no class.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), marginals (..., k), non-negative -> (..., q, k).

    Args:
        marginals: Class shares of the queries: "estimated" as above, or "uniform" or a number per class, which r then
            has exactly, by Sinkhorn.
        iterations: Number of rounds after the first. With 0, no query depends on another: all statistics are those of
            the support, and known shares are a prior.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> likelihood_mixture(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 1, 0])
    """
    check_count("iterations", iterations, "7 are enough, 0 are for single queries")
    check_non_negative("likelihood_mixture", support, query)
    return mixture_scores(
        support,
        labels,
        query,
        n_ways=n_ways,
        marginals=marginals,
        iterations=iterations,
        normalise=normalise,
        constants=Constants(),
    )


@torch.no_grad()
def mixture_scores(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    marginals: str | Tensor = "estimated",
    iterations: int = 7,
    normalise: bool = True,
    constants: Constants,
) -> Tensor:
    """Compute `likelihood_mixture` with other constants, for ablations."""
    support, query = prepare(support, labels, query, n_ways, normalise)
    shares = class_shares(marginals, n_ways).to(query.device)
    estimated = isinstance(marginals, str) and marginals == "estimated"
    samples, r = join(support, labels, query, n_ways)  # (..., n, d), (..., k, n)
    r = r.expand(*np.broadcast_shapes(r.shape[:-2], shares.shape[:-1]), -1, -1)
    s, alone = support.shape[-2], iterations == 0
    known, first = r[..., :s], 0 if alone else s  # the first sample to be scored
    seen = samples[..., :s, :] if alone else samples
    roots = l2_normalise(samples.pow(constants.power))
    products = roots @ roots.mT
    gram = discount_within(_centred_units(products, seen.shape[-2]), known, constants.prior_scatter)
    graph = None
    if not alone and r.shape[-1] <= LARGEST_GRAPH:
        graph = _neighbour_graph(products, constants.neighbours)[..., s:]  # (..., n, q)
    floor = seen.mean((-2, -1), keepdim=True).clamp_min(LEAST_MEAN)
    present = (known.sum(-1, keepdim=True) > 0).sum(-2, keepdim=True).clamp_min(1)  # classes with support
    common = (mean_weights(known) @ samples[..., :s, :]).sum(-2, keepdim=True) / present
    trust = ((s - present) / (s - present + constants.trusted_shots * present)).to(r)  # t, of the mean number of shots
    asked = samples[..., first:, :].mT
    weights, potentials = r, torch.zeros_like(shares)
    for step in range(iterations + 1):
        counts = weights.sum(-1, keepdim=True) + constants.prior_examples
        means = (weights @ samples + constants.prior_examples * common) / counts
        rates = torch.maximum(means, floor).reciprocal()
        e = _centre(rates.log().sum(-1, keepdim=True) - rates @ asked)  # (..., k, q)
        d = squared_distances_to_means(gram, weights / counts)[..., first:]
        if alone:
            w = _weighted_mean(d[..., :s], 1 - known)
        elif step == 0:
            w = d.amin(-2, keepdim=True).mean(-1, keepdim=True)
        else:
            w = _weighted_mean(d, weights[..., s:])
        ratio = d / w.clamp_min(LEAST_DISTANCE)
        g = _centre(-constants.directions / 2 * ratio)
        judged = slice(s) if alone else slice(None)
        z = torch.lerp(g, e * _ratio(_spread(g[..., judged]), _spread(e[..., judged])), constants.exponential)
        if step == 0:
            start = z
        else:
            z = torch.lerp(z, start * _ratio(_spread(z), _spread(start)), trust)
            if graph is not None:
                z = z + constants.agreement * (r @ graph)
        if alone:
            prior = shares.to(z).clamp_min(torch.finfo(z.dtype).tiny).log().unsqueeze(-1)
            return (z[..., s:] + prior).log_softmax(-2).mT
        if estimated:
            if step > 0:
                z = z + (constants.prior_queries + weights[..., s:].sum(-1, keepdim=True)).log()
            z = z.log_softmax(-2)
        else:
            log_p, potentials = sinkhorn(z.double(), shares, potentials)
            z = log_p.to(z.dtype)
        p = z.exp()
        near = torch.sigmoid(constants.directions / 2 * (constants.far - ratio.amin(-2, keepdim=True)))
        r, weights = torch.cat([known, p], -1), torch.cat([known, p * near], -1)
    return z.mT


def _neighbour_graph(gram: Tensor, neighbours: int) -> Tensor:
    """Give the share of every sample in the neighbourhood of another, either being near the other: (..., n, n)."""
    near = nearest_neighbours(gram, neighbours)
    near = near + near.mT
    return near / near.sum(-2, keepdim=True).clamp_min(1)  # symmetric before: columns are the receivers


def _centred_units(gram: Tensor, count: int) -> Tensor:
    """Give the inner products of unit vectors after the mean of the first `count` is taken off, at unit length again.

    What is left of a vector by rounding only becomes zero.
    """
    to_mean = gram[..., :count].mean(-1, keepdim=True)
    gram = gram - to_mean - to_mean.mT + to_mean[..., :count, :].mean(-2, keepdim=True)
    squares = gram.diagonal(dim1=-2, dim2=-1)
    scale = torch.where(squares > ROUNDING * torch.finfo(gram.dtype).eps, squares, torch.inf).rsqrt()
    return gram * scale.unsqueeze(-1) * scale.unsqueeze(-2)


def _centre(x: Tensor) -> Tensor:
    return x - x.mean(-2, keepdim=True)


def _spread(x: Tensor) -> Tensor:
    """Give the root mean square over classes and queries of what is centred: (..., k, q) -> (..., 1, 1)."""
    return x.square().mean((-2, -1), keepdim=True).sqrt()


def _ratio(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y > torch.finfo(y.dtype).tiny, x / y, 0)


def _weighted_mean(x: Tensor, weights: Tensor) -> Tensor:
    total = weights.sum((-2, -1), keepdim=True)
    return (x * weights).sum((-2, -1), keepdim=True) / total.clamp_min(torch.finfo(x.dtype).tiny)

"""BAVARDAGE: a variational Gaussian mixture on features scaled by the spread of the base classes."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.errors import InputError
from likelyshot.functional.checks import centre, check_count, check_positive, check_shape
from likelyshot.functional.gram import join, mean_weights, squared_distances_to_means
from likelyshot.functional.span import gram_factor

#: Images of a CUB class. The released code, whose values of `clip` and `t_vb` these are, sums squares over a class.
CLASS_SIZE = 60
#: What the released code adds to the diagonal of the within-class sums of squares.
RIDGE = 1e-6
#: Directions of the task with less than this share of the largest one's energy are rounding, not span.
RANK_TOLERANCE = 1e-10


@torch.no_grad()
def bavardage(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    base_mean: Tensor | None,
    base_within: Tensor,
    t_km: float = 10.0,
    km_iterations: int = 5,
    t_vb: float | None = None,
    iterations: int = 5,
    clip: float = 5.0,
    alpha: float = 2.0,
    beta: float = 10.0,
) -> Tensor:
    """Score by the log-responsibility in a variational Gaussian mixture, on features scaled by base-class spread.

    Paper: Hu et al. 2023, Adaptive dimension reduction and variational inference for transductive few-shot
    classification. CL2N features x. Responsibilities r start from soft k-means, softmax_k(-t_km ||x - m_k||^2), support
    fixed. Then y = scaled x (see `scaled_gram`) and, repeated: alpha_k = alpha + sum of the queries' r_k;
    beta_k = beta + sum of all r_k; m_k = sum r_k y / beta_k;
    log r_k = digamma(alpha_k) - t_vb/2 ||y - m_k||^2 - (K-1) / (2 beta_k) + constant, support fixed.
    The paper projects y on the K-1 directions between the m_k: it adds the same to all classes of a query (y - m_k
    differs between classes only within them), so that it needs no computing; only the K-1 above is left of it.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_mean (d,), base_within (d, d) -> (..., q, k).

    Args:
        base_mean: Mean vector of the base classes (d,), `likelyshot.Base.of(features).mean`; None if the features are
            CL2N already.
        base_within: Covariance within the base classes (d, d), `likelyshot.Base.of(features).within`. It is taken times
            60, so that the published t_vb and clip hold for base classes of any size.
        t_km: Factor of the squared distances in the soft k-means.
        km_iterations: Number of rounds of the soft k-means.
        t_vb: Precision of the Gaussians, a factor of the squared distances. Default: the published 4 from 512 features
            on, and 2048 / d below; with 4 it falls by 24 points at 64 features (docs/decisions, 7).
        iterations: Number of rounds of the variational mixture.
        clip: Largest factor by which a direction is scaled up.
        alpha: Prior count of every class's share: the larger, the more equal the classes.
        beta: Prior weight that draws the means of the classes to the origin.

    >>> support, query = torch.tensor([[1.0, 0.2], [0.2, 1.0]]), torch.tensor([[1.0, 0.4], [0.0, 1.0], [0.1, 1.0]])
    >>> base = {"base_mean": torch.zeros(2), "base_within": 0.001 * torch.eye(2)}
    >>> bavardage(support, torch.tensor([0, 1]), query, n_ways=2, **base).argmax(-1)
    tensor([0, 1, 1])
    """
    t_vb = max(4.0, 2048 / support.shape[-1]) if t_vb is None else t_vb
    for name, value in {"t_km": t_km, "t_vb": t_vb, "clip": clip, "alpha": alpha, "beta": beta}.items():
        check_positive(name, value, "leave it out for the published value")
    for name, count in {"km_iterations": km_iterations, "iterations": iterations}.items():
        check_count(name, count, "the paper uses 5", least=1)
    support, query = centre(support, labels, query, n_ways, base_mean)
    samples, weights = join(support.double(), labels, query.double(), n_ways)
    gram = samples @ samples.transpose(-1, -2)
    queries = slice(support.shape[-2], None)
    for _ in range(km_iterations):
        distances = squared_distances_to_means(gram, mean_weights(weights))[..., queries]
        weights[..., queries] = distances.mul_(-t_km).softmax(-2)
    gram = scaled_gram(samples, gram, base_within, clip)
    for _ in range(iterations):
        alpha_k = alpha + weights[..., queries].sum(-1, keepdim=True)  # (..., k, 1)
        beta_k = beta + weights.sum(-1, keepdim=True)
        distances = squared_distances_to_means(gram, weights / beta_k)[..., queries]
        scores = alpha_k.digamma() - t_vb / 2 * distances - (n_ways - 1) / (2 * beta_k)
        weights[..., queries] = scores.softmax(-2)
    return scores.log_softmax(-2).transpose(-1, -2).to(query.dtype)


def scaled_gram(samples: Tensor, gram: Tensor, base_within: Tensor, clip: float) -> Tensor:
    """Compute inner products of samples scaled by e^-1/2, at most clip, along the principal axes of the base spread.

    With U an orthonormal basis of the samples' span and S the within-class sums of squares of the base, the axes are
    the eigenvectors of (U' S^-1 U)^-1 and e its eigenvalues: the spread within the span, given none outside of it, as
    in the released code. (U' S U, the spread whatever lies outside, was worse on validation classes.) Inverted, these
    are the eigenvalues of U' S^-1 U = W' W, W = L^-1 U, S = L L', so that neither matrix is inverted.
    Shapes: samples (..., n, d), gram (..., n, n), base_within (d, d), in float64 -> (..., n, n).

    Args:
        gram: Inner products of the samples.
        base_within: Covariance within the base classes, as in `bavardage`.
        clip: Largest factor by which a direction is scaled.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> scaled_gram(x, x @ x.T, torch.tensor([[1 / 15, 0.0], [0.0, 1e-6]], dtype=torch.float64), clip=5.0)
    tensor([[ 0.2500,  0.0000],
            [ 0.0000, 25.0000]], dtype=torch.float64)
    """
    dim = samples.shape[-1]
    how = "likelyshot.functional.covariance.within_class_covariance"
    check_shape("base_within", base_within, (dim, dim), f"make it from base features of the same encoder with {how}")
    lower = _base_factor(base_within, base_within._version, how).to(samples)
    flat = samples.reshape(-1, dim)
    whitened = torch.linalg.solve_triangular(lower.T, flat, upper=True, left=False).view_as(samples)  # X L'^-1
    if machine.on_accelerator(gram):  # U = X' G'^-1 with G G' = X X': one decomposition less for the host to wait for
        coordinates = gram_factor(gram)  # X U
        w = torch.linalg.solve_triangular(coordinates.mT, whitened.mT, upper=True, left=False)
    else:
        energy, axes = torch.linalg.eigh(gram)  # U = X' V energy^-1/2, of the directions that are there
        present = energy > RANK_TOLERANCE * energy[..., -1:]
        length = torch.where(present, energy, 0).sqrt().unsqueeze(-2)
        coordinates = axes * length
        w = whitened.mT @ (axes / length.masked_fill(~present.unsqueeze(-2), float("inf")))
    inverse_spread, principal = torch.linalg.eigh(w.mT @ w)  # 1/e
    scaled = coordinates @ principal * inverse_spread.clamp(0, clip**2).sqrt().unsqueeze(-2)
    products: Tensor = scaled @ scaled.transpose(-1, -2)
    return products


@functools.lru_cache(maxsize=2)
def _base_factor(base_within: Tensor, version: int, how: str) -> Tensor:
    """Give L with L L' = S; `version` is that of the tensor, which may change in place."""
    squares = CLASS_SIZE * base_within.double()
    squares.diagonal().add_(RIDGE)
    factor = torch.linalg.cholesky_ex(squares)
    if factor.info:
        raise InputError(f"expected base_within to be positive semi-definite, and it is not: make it with {how}")
    lower: Tensor = factor.L
    return lower

"""What the inner products of a task's samples tell: means, distances, neighbours, class shares, what to discount.

For methods that do not mind a rotation: with n samples of d > n features, every round costs n n k instead of n d k.
Classes come before samples here, (..., k, n): small matrix products and softmaxes run several times faster so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from likelyshot.errors import InputError, shown
from likelyshot.functional.scores import one_hot


def join(support: Tensor, labels: Tensor, query: Tensor, n_ways: int) -> tuple[Tensor, Tensor]:
    """Put the samples of a task in one list, support first, with their class weights: 1[y = k], and 0 for a query.

    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> samples (..., s+q, d), weights (..., k, s+q).

    >>> _, weights = join(torch.zeros(2, 3), torch.tensor([1, 0]), torch.zeros(1, 3), n_ways=2)
    >>> weights
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    member = one_hot(labels, n_ways, support.dtype).transpose(-1, -2)  # (..., k, s)
    leading = np.broadcast_shapes(support.shape[:-2], member.shape[:-2], query.shape[:-2])
    support, query, member = (x.expand(*leading, *x.shape[-2:]) for x in (support, query, member))
    weights = torch.cat([member, member.new_zeros(*leading, n_ways, query.shape[-2])], dim=-1)
    return torch.cat([support, query], dim=-2), weights


def mean_weights(weights: Tensor) -> Tensor:
    """Scale the weights of every class to sum to 1; a class without weight keeps zeros, and has its mean at the origin.

    Shapes: weights (..., k, n) -> (..., k, n).

    >>> mean_weights(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tensor([[0.2500, 0.7500],
            [0.0000, 0.0000]])
    """
    return weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def squared_distances_to_means(gram: Tensor, weights: Tensor) -> Tensor:
    """Compute ||x_n - w_k||^2 to the means w_k = sum_n c_kn x_n, as G_nn - 2 (c G)_kn + c_k G c_k', G_mn = x_m . x_n.

    Shapes: gram (..., n, n), weights (..., k, n) -> (..., k, n).

    Args:
        gram: Inner products G of the samples.
        weights: Weights c of the samples in every mean; they need not sum to 1.

    >>> x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> squared_distances_to_means(x @ x.T, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    tensor([[1., 1., 5.],
            [4., 8., 0.]])
    """
    products = weights @ gram
    squares = (products * weights).sum(-1, keepdim=True) + gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return squares.sub_(products, alpha=2).clamp_min_(0)


def move_to_means(weights: Tensor, known: Tensor, p: Tensor, eta: float) -> Tensor:
    """Move prototypes to the weighted mean of support and queries, m_k + eta (mean - m_k); an empty class stays.

    Shapes: weights (..., k, s + q), known (..., k, s), p (..., k, q) -> (..., k, s + q).

    Args:
        weights: Prototypes, as weights over support and queries.
        known: Membership of the support, 1[y = k].
        p: Membership of the queries.
        eta: How far the prototypes move, from 0 to 1.

    >>> move_to_means(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0]]), torch.tensor([[1.0]]), 0.5)
    tensor([[0.7500, 0.2500]])
    """
    mass = torch.cat([known, p], -1)
    total = mass.sum(-1, keepdim=True)
    tiny = torch.finfo(mass.dtype).tiny
    return torch.lerp(weights.expand_as(mass), mass / total.clamp_min(tiny), eta * (total > tiny).to(mass))


def nearest_neighbours(gram: Tensor, k: int) -> Tensor:
    """Mark the k nearest others of every vector.

    Vectors equally near up to rounding share the places left for them equally: a row always sums to k (to n - 1 where
    there are fewer others), and the order of the vectors does not matter, not even among duplicates.
    Shapes: gram (..., n, n) -> (..., n, n): row i holds 1 where x_j is near x_i, 0 elsewhere and on the diagonal.

    Args:
        gram: Inner products of the vectors, which are of unit length or about as long.
        k: Number of neighbours, without the vector itself.

    >>> x = torch.tensor([[0.0], [0.1], [0.3], [0.5]])
    >>> nearest_neighbours(x @ x.T, 1)
    tensor([[0.0000, 1.0000, 0.0000, 0.0000],
            [1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 1.0000, 0.0000]])
    """
    far, rounding = 1e6, 64 * torch.finfo(gram.dtype).eps
    nearness = gram - gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) / 2  # (||x_i||^2 - ||x_i - x_j||^2) / 2
    nearness.diagonal(dim1=-2, dim2=-1).fill_(-far)
    near, nearest = torch.zeros_like(nearness), torch.empty_like(nearness)
    k = min(k, gram.shape[-1] - 1)
    places = torch.full_like(nearness[..., :1], k)
    for _ in range(k):
        torch.ge(nearness, nearness.amax(-1, keepdim=True) - rounding, out=nearest)
        count = nearest.sum(-1, keepdim=True)
        share = (places / count).clamp_max(1)
        near.addcmul_(nearest, share)
        places -= share * count
        nearness.sub_(nearest, alpha=far)  # they have their place
    return near


def discounted_directions(y: Tensor, known: Tensor, prior: float | Tensor) -> Tensor:
    """Give W with (S / prior + I)^-1 = I - W'W, S the scatter of labelled samples within their classes.

    S = sum_i (y_i - m_{c_i})(y_i - m_{c_i})': the covariance of linear discriminant analysis, with `prior` as what a
    direction varies by before any example is seen. With the rows of Z the deviations from the class means, S = Z'Z and
    (Z'Z / prior + I)^-1 = I - Z'(prior I + Z Z')^-1 Z: a system as large as the labelled samples are many.
    With one example per class S and W are zero and nothing changes.
    Shapes: y (..., s, d), known (..., k, s), prior a number or (..., 1, 1) -> (..., m, d), m the smaller of s and d.

    Args:
        y: Labelled samples.
        known: Membership of the samples, 1[y = k].
        prior: What a direction varies by before any example is seen.

    >>> y = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> w = discounted_directions(y, torch.tensor([[1.0, 1.0]]), prior=2.0)
    >>> torch.eye(2) - w.T @ w
    tensor([[0.5000, 0.0000],
            [0.0000, 1.0000]])
    """
    deviations = y - known.mT @ (mean_weights(known) @ y)
    if deviations.shape[-2] > deviations.shape[-1]:
        deviations = torch.linalg.qr(deviations).R
    return _whiten(deviations, _on_diagonal(deviations @ deviations.mT, prior))


def discounted_products(gram: Tensor, known: Tensor, prior: float | Tensor) -> Tensor:
    """Give inner products in the metric (S / prior + I)^-1 of `discounted_directions`, from the plain ones.

    Those of deviations with samples, and of deviations with each other, follow from those of the samples.
    Shapes: gram (..., n, n), known (..., k, s) with the s labelled samples first, prior a number or (..., 1, 1) ->
    (..., n, n).

    Args:
        gram: Inner products of all samples.
        known: Membership of the labelled samples, 1[y = k].
        prior: What a direction varies by before any example is seen.

    >>> y = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 1.0]])
    >>> discounted_products(y @ y.T, torch.tensor([[1.0, 1.0]]), prior=2.0)
    tensor([[ 0.5000, -0.5000,  1.0000],
            [-0.5000,  0.5000, -1.0000],
            [ 1.0000, -1.0000,  3.0000]])
    """
    s, means = known.shape[-1], mean_weights(known)
    deviations = gram[..., :s, :] - known.mT @ (means @ gram[..., :s, :])  # (..., s, n): Z y'
    inner = deviations[..., :s] - (deviations[..., :s] @ means.mT) @ known  # (..., s, s): Z Z'
    shadow = _whiten(deviations, _on_diagonal(inner, prior))
    return gram - shadow.mT @ shadow


def scatter_within(y: Tensor, weights: Tensor) -> Tensor:
    """Give the scatter of samples within classes that they belong to by weights: y'(diag(rho) - R' diag(1/N) R) y.

    It is the sum of r_kn (y_n - m_k)(y_n - m_k)' over classes and samples, m_k the weighted mean of class k, with the
    rows of R the weights r_k, N_k their sum, and rho_n the sum of sample n's.
    Shapes: y (..., n, d), weights (..., k, n) -> (..., d, d).

    Args:
        y: Samples.
        weights: How much each sample belongs to each class.

    >>> scatter_within(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    tensor([[2.]])
    """
    sums = weights @ y
    return (weights.sum(-2).unsqueeze(-1) * y).mT @ y - sums.mT @ (mean_weights(weights) @ y)


def softly_discounted_products(gram: Tensor, weights: Tensor, prior: float | Tensor) -> Tensor:
    """Give inner products in the metric (S / prior + I)^-1, S = y'A y of `scatter_within`, from the plain ones G.

    y (y'A y / prior + I)^-1 y' = G (I + A G / prior)^-1. With the weights of labelled samples alone, it is what
    `discounted_products` computes from a smaller system.
    Shapes: gram (..., n, n), weights (..., k, n), prior a number or (..., 1, 1) -> (..., n, n).

    Args:
        gram: Inner products G of all samples.
        weights: How much each sample belongs to each class.
        prior: What a direction varies by before any sample is seen.

    >>> y = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 1.0]])
    >>> softly_discounted_products(y @ y.T, torch.tensor([[1.0, 1.0, 0.0]]), prior=2.0)
    tensor([[ 0.5000, -0.5000,  1.0000],
            [-0.5000,  0.5000, -1.0000],
            [ 1.0000, -1.0000,  3.0000]])
    """
    within = (weights.sum(-2).unsqueeze(-1) * gram - weights.mT @ (mean_weights(weights) @ gram)) / prior  # A G / prior
    within.diagonal(dim1=-2, dim2=-1).add_(1)
    products: Tensor = torch.linalg.solve_ex(within, gram, left=False).result
    return products


def held_out_distances(
    products: Tensor, squares: Tensor, known: Tensor, counts: Tensor, prior: float | Tensor
) -> Tensor:
    """Compute squared distances of labelled samples to the centres of classes, each sample left out of its own.

    Products are those in the metric (S / prior + I)^-1 of `discounted_directions`; the sample is left out of S too.
    Without sample i, one of n in its class, its own centre c moves so that y_i - c grows by N / (N - 1), and S loses
    n / (n - 1) v v' with v = y_i minus the mean of the n. By Sherman & Morrison, the distance to every centre is then
    `|u|^2 + b (u . v)^2 / (1 - b |v|^2)`, u = y_i - c, b = n / (n - 1) / prior.
    Shapes: products (..., k, s), squares (..., 1, s), known (..., k, s), counts (..., k, 1), prior a number or
    (..., 1, 1) -> (..., k, s).

    Args:
        products: Inner products of every centre with every labelled sample.
        squares: Those of the samples with themselves.
        known: Membership of the samples, 1[y = k].
        counts: N: samples in every centre, with those at the origin that were there before any was seen.
        prior: What a direction varies by before any example is seen.

    >>> y, known = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0, 1.0]])
    >>> metric = 1 / (2 / 2.0 + 1)  # S = 2; without a sample S = 0 and the metric is 1
    >>> squares = metric * y.square().mT
    >>> held_out_distances(metric * 2 * y.mT, squares, known, known.sum(-1, keepdim=True), prior=2.0)
    tensor([[4., 4.]])
    """
    shots, tiny = known.sum(-1, keepdim=True), torch.finfo(products.dtype).eps
    of_own = known.mT  # (..., s, k) picks what belongs to the own class
    length = (products * known).sum(-1, keepdim=True) / counts  # (..., k, 1) of the centres
    with_means = (products * known).sum(-2, keepdim=True) * (of_own @ (counts / shots.clamp_min(1))).mT  # y . mean
    centres_with_means = products @ (of_own / shots.mT.clamp_min(1)) @ known  # (..., k, s) c_k . mean of the own class
    means_squared = (centres_with_means * known).sum(-2, keepdim=True) * (of_own @ (counts / shots.clamp_min(1))).mT
    distances = squares + length - 2 * products
    v_squared = squares - 2 * with_means + means_squared
    u_v = squares - with_means - products + centres_with_means
    own_shots = (of_own @ shots).mT  # (..., 1, s)
    b = own_shots / (own_shots - 1).clamp_min(1) / prior
    grown = torch.where(known > 0, counts / (counts - 1).clamp_min(tiny), 1)
    left_out = distances + b * u_v.square() / (1 - b * v_squared).clamp_min(tiny)
    return (grown.square() * left_out).clamp_min(0)


def _on_diagonal(x: Tensor, prior: float | Tensor) -> Tensor:
    """Add a number, or one per matrix (..., 1, 1), to the diagonal."""
    prior = prior[..., 0] if isinstance(prior, Tensor) else prior
    x.diagonal(dim1=-2, dim2=-1).add_(prior)
    return x


def _whiten(x: Tensor, inner: Tensor) -> Tensor:
    """Give L^-1 x with L L' = inner, which is positive definite: no need to ask the device whether it was."""
    white: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(inner).L, x, upper=False)
    return white


def class_shares(marginals: str | Tensor | Sequence[float], n_ways: int) -> Tensor:
    """Give the class shares to start from: the given numbers scaled to sum 1, else uniform.

    Shapes: marginals "uniform", "estimated", (k,) or (..., k) -> (k,) or (..., k), in double precision.

    Args:
        marginals: "uniform", "estimated" (which start alike), or a non-negative number per class.

    >>> class_shares(torch.tensor([1.0, 3.0]), 2), class_shares("estimated", 2)
    (tensor([0.2500, 0.7500], dtype=torch.float64), tensor([0.5000, 0.5000], dtype=torch.float64))
    """
    if isinstance(marginals, str) and marginals in ("uniform", "estimated"):
        return torch.full((n_ways,), 1 / n_ways, dtype=torch.float64)
    try:
        shares = torch.as_tensor(marginals, dtype=torch.float64)
        fits = shares.ndim > 0 and shares.shape[-1] == n_ways
    except (TypeError, ValueError, RuntimeError, OverflowError):
        fits = False
    if not fits:
        raise InputError(
            f"marginals must be 'uniform', 'estimated' or {n_ways} numbers, one per class, got {shown(marginals)}: "
            "if you do not know the shares, use 'estimated'"
        )
    largest = shares.amax(-1, keepdim=True)
    if not (shares.isfinite().all() and (shares >= 0).all() and (largest > 0).all()):
        raise InputError(
            f"marginals must be finite, not negative and not all zero, got {shown(shares.tolist())}: give the share "
            "of the queries that you expect of each class"
        )
    shares = shares / largest
    return shares / shares.sum(-1, keepdim=True)


def estimate_shares(p: Tensor) -> Tensor:
    """Estimate class shares from soft assignments, (1 + sum_q p_kq) / (k + q).

    The maximum a posteriori under a Dirichlet(2, ..., 2) prior: one imaginary query per class, so none is ruled out.
    Shapes: p (..., k, q) -> (..., k).

    >>> estimate_shares(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    tensor([0.7500, 0.2500])
    """
    return (1 + p.sum(-1)) / (p.shape[-1] + p.shape[-2])

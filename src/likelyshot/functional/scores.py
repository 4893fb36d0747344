"""From vectors to scores: unit vectors, class means (prototypes), and how well each query fits each class."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.machine import inputs_are_checked

NOT_FINITE = (
    "expected finite features, but got NaN or infinity: check the encoder or the file that they come from "
    "(while training, a lower learning rate helps)"
)


def l2_normalise(x: Tensor) -> Tensor:
    """Scale every vector to unit Euclidean length, x / ||x||_2; a zero vector stays zero.

    Shapes: (..., d) -> (..., d). Where squares could overflow or vanish, divides by the largest entry first. NaN
    and infinity are refused.

    >>> l2_normalise(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if inputs_are_checked():
        return x / torch.where(length > 0, length, 1)
    if length.numel() and float(length.detach().amin()) > 1e-15 and float(length.detach().amax()) < 1e15:
        return x / length
    if not bool(x.detach().isfinite().all()):
        raise InputError(NOT_FINITE)
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.detach().abs().amax(-1, keepdim=True).clamp_min(tiny)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / length.clamp_min(tiny)


def rectify(x: Tensor) -> Tensor:
    """Split signed features losslessly into non-negative ones, [relu(x), relu(-x)].

    Shapes: (..., d) -> (..., 2d).

    >>> rectify(torch.tensor([1.0, -2.0]))
    tensor([1., 0., 0., 2.])
    """
    return torch.cat([x.clamp_min(0), (-x).clamp_min(0)], dim=-1)


def one_hot(labels: Tensor, n_ways: int, dtype: torch.dtype) -> Tensor:
    """Mark the class of every sample, 1[y = k].

    Shapes: labels (..., s) -> (..., s, k).

    >>> one_hot(torch.tensor([1, 0]), 2, torch.float32)
    tensor([[0., 1.],
            [1., 0.]])
    """
    return (labels.unsqueeze(-1) == torch.arange(n_ways, device=labels.device)).to(dtype)


def class_means(support: Tensor, labels: Tensor, n_ways: int) -> Tensor:
    """Average the support of every class: the prototypes m_k (Snell et al. 2017, eq. 1).

    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d). A class without support gets zeros.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2)
    tensor([[2.],
            [5.]])
    """
    member = one_hot(labels, n_ways, support.dtype)  # (..., s, k)
    share = member / member.sum(-2, keepdim=True).clamp_min(1)
    return share.transpose(-1, -2) @ support


def shrunk_means(support: Tensor, labels: Tensor, n_ways: int, shrinkage: float) -> Tensor:
    """Average the support of every class together with `shrinkage` examples that look like the average class.

    (n_k m_k + shrinkage m) / (n_k + shrinkage), with m the mean of the m_k. The mean of few examples is zero for some
    features that its class has, which puts it far from all queries: the fewer examples, the more so.
    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d).

    Args:
        shrinkage: Number of examples of the average class; 0 gives `class_means`.

    >>> shrunk_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2, shrinkage=1.0)
    tensor([[2.5000],
            [4.2500]])
    """
    means = class_means(support, labels, n_ways)
    if shrinkage == 0:
        return means
    shots = one_hot(labels, n_ways, support.dtype).sum(-2).unsqueeze(-1)  # (..., k, 1)
    common = means.sum(-2, keepdim=True) / (shots > 0).sum(-2, keepdim=True).clamp_min(1)
    return (shots * means + shrinkage * common) / (shots + shrinkage)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ||x - y||^2 of every pair by one matrix product.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k). Measured from the mean of y and in units of the
    largest entry: nothing cancels that need not, and nothing overflows before the result itself does.

    >>> squared_distances(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]]))
    tensor([[25.,  0.]])
    """
    unit = torch.maximum(_largest(x), _largest(y)).clamp_min(torch.finfo(x.dtype).tiny)  # (..., 1, 1)
    x, y = x / unit, y / unit
    origin = y.mean(-2, keepdim=True)
    x, y = x - origin, y - origin
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * x @ y.transpose(-1, -2)).clamp_min(0) * unit * unit


def _largest(x: Tensor) -> Tensor:
    x = x.detach()
    if x.shape[-2] == 0:
        return x.new_zeros(*x.shape[:-2], 1, 1)
    return torch.maximum(x.amax((-2, -1), keepdim=True), -x.amin((-2, -1), keepdim=True))


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Compute cos(x, y) = x.y / (||x|| ||y||) of every pair; 0 where a vector is zero.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k).

    >>> cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """
    return l2_normalise(x) @ l2_normalise(y).transpose(-1, -2)


#: The default bound of the rates: the paper's, or so many times the rate of the average feature where that is more.
PAPER_BOUND, RATE_BOUND = 40.0, 1.5


def rate_bound(means: Tensor, lambda_max: float | None = None) -> float | Tensor:
    """Give the largest rate of a task: lambda_max, or else 40, and 1.5 / the mean of all its features if that is more.

    It is more for long vectors of unit length, whose features are small: from about 300 to 600 features on.
    Shapes: means (..., k, d) -> (..., 1, 1), or the number that is given.

    Args:
        means: Mean of every feature of every class, non-negative.
        lambda_max: Largest rate, above 0, if it is given.

    >>> rate_bound(torch.tensor([[0.02, 0.0], [0.01, 0.01]]))
    tensor([[150.]])
    >>> rate_bound(torch.tensor([[0.2, 0.0]])), rate_bound(torch.tensor([[0.2, 0.0]]), 80.0)
    (tensor([[40.]]), 80.0)
    """
    if lambda_max is not None:
        return lambda_max
    mean = means.mean((-2, -1), keepdim=True)
    return torch.where(mean > 0, RATE_BOUND / mean, PAPER_BOUND).clamp(PAPER_BOUND, 1e12)


def exponential_rates(means: Tensor, lambda_max: float | Tensor) -> Tensor:
    """Estimate the rate of an exponential distribution, lambda = 1 / mean (paper eq. 3), at most lambda_max.

    Shapes: (...) -> (...). The mean is floored at 1 / lambda_max before the division: the same as clipping
    lambda (Algorithm 1, line 8), without a division by zero.

    Args:
        means: Mean of every feature, non-negative.
        lambda_max: Largest rate, above 0, as `rate_bound` gives it.

    >>> exponential_rates(torch.tensor([0.5, 0.0]), lambda_max=40.0)
    tensor([ 2., 40.])
    """
    return means.clamp_min(1 / lambda_max).reciprocal()


def exponential_log_likelihood(x: Tensor, rates: Tensor) -> Tensor:
    """Sum the exponential log-densities of a vector's features, sum_i log lambda_i - lambda . x (paper eq. 6).

    Shapes: x (..., q, d), rates (..., k, d) -> (..., q, k): a matrix product and a constant per class.

    >>> exponential_log_likelihood(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 0.5]]))
    tensor([[-3., -3.]])
    """
    return rates.log().sum(-1).unsqueeze(-2) - x @ rates.transpose(-1, -2)

"""LaplacianShot: nearest prototype, and neighbouring queries agree."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.functional.checks import centre, check_count, check_not_negative, check_switch
from likelyshot.functional.gram import join, mean_weights, nearest_neighbours, squared_distances_to_means


@torch.no_grad()
def laplacianshot(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    base_mean: Tensor | None,
    lam: float = 0.7,
    neighbours: int = 3,
    iterations: int = 20,
    tolerance: float = 1e-6,
    rectified: bool = False,
) -> Tensor:
    """Score by the log-probability of a class under a nearest-prototype cost, with neighbouring queries alike.

    Paper: Ziko et al. 2020, Laplacian regularized few-shot learning.
    On CL2N features, a_qk = ||f_q - m_k||^2, and W_qp = 1 where p is one of the queries nearest to q (W is not
    symmetrised; equally near queries share the places left for them). Algorithm 1: Y = softmax(-a), then
    Y <- softmax(-a + lam W Y), until the energy E(Y) = sum_qk Y (log Y + a - lam W Y) hardly changes. Every task stops
    by itself. The score is log Y.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_mean (d,) -> (..., q, k).

    Args:
        base_mean: Mean vector of the base classes (d,), `likelyshot.Base.of(features).mean`; None if the features are
            CL2N already.
        lam: How strongly neighbouring queries pull each other to the same class; the paper uses 0.1 to 1.5, and 0 is
            the nearest prototype.
        neighbours: Number of nearest queries, counting the query itself as the published code does; 3 in the paper.
        iterations: Largest number of updates, 20 in the paper.
        tolerance: Relative change of the energy at which a task stops, tested from the third update on as in the
            published code.
        rectified: Rectify the prototypes by the queries first, as the authors' own script does. Queries are shifted by
            mean(S) - mean(Q), every sample x goes to the class of largest cos(x, m_k), and the mean of
            softmax_k(10 cos(x, m_k)) x over the samples of a class is its prototype. It helps at 1-shot and harms at
            5-shot.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[9.0, 1.0], [8.0, 1.0], [7.0, 8.0]])
    >>> laplacianshot(support, torch.tensor([0, 1]), query, n_ways=2, base_mean=torch.zeros(2)).argmax(-1)
    tensor([0, 0, 0])
    """
    check_not_negative("lam", lam, "the paper uses 0.1 to 1.5")
    check_count("neighbours", neighbours, "the query itself counts, and the paper uses 3", least=1)
    check_count("iterations", iterations, "the paper uses 20")
    check_not_negative("tolerance", tolerance, "the paper uses 1e-6")
    check_switch("rectified", rectified)
    support, query = centre(support, labels, query, n_ways, base_mean)
    if rectified:
        query = query + (support.mean(-2, keepdim=True) - query.mean(-2, keepdim=True))
    samples, weights = join(support, labels, query, n_ways)
    gram, first = samples @ samples.transpose(-1, -2), support.shape[-2]  # queries start at row `first`
    means = mean_weights(weights)
    if rectified:
        means = rectified_means(gram, means)
    cost = squared_distances_to_means(gram, means)[..., first:]  # a, (..., k, q)
    pull = lam * nearest_neighbours(gram[..., first:, first:], neighbours - 1).transpose(-1, -2)  # lam W'
    scores = (-cost).log_softmax(-2)  # log Y, (..., k, q)
    agreement = scores.exp() @ pull  # lam W Y
    energy = cost.new_full((*cost.shape[:-2], 1, 1), torch.inf)
    running = energy > 0
    for step in range(iterations):
        scores = torch.where(running, (agreement - cost).log_softmax(-2), scores)
        shares = scores.exp()
        agreement = shares @ pull
        before, energy = energy, (shares * (scores + cost - agreement)).sum((-2, -1), keepdim=True)
        if step > 1:
            running &= (energy - before).abs() > tolerance * before.abs()
            if not machine.on_accelerator(running) and not running.any():
                break
    return scores.transpose(-1, -2).contiguous()


def rectified_means(gram: Tensor, means: Tensor) -> Tensor:
    """Move prototypes to the weighted samples that are most like them; a class without such samples keeps its own.

    Shapes: gram (..., n, n), means (..., k, n) as weights over the samples -> (..., k, n).
    """
    rounding = 64 * torch.finfo(gram.dtype).eps
    products = means @ gram  # m_k . x_n
    squares = (products * means).sum(-1, keepdim=True) * gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    similarity = torch.where(squares > rounding**2, products * squares.clamp_min(rounding**2).rsqrt(), 0)
    member = (similarity >= similarity.amax(-2, keepdim=True) - rounding).to(gram)  # of every class that ties
    count = member.sum(-1, keepdim=True)
    return torch.where(count > 0, member * (10 * similarity).softmax(-2) / count.clamp_min(1), means)

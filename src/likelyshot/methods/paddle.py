"""PADDLE: k-means that begins at the support and pays for every class it keeps."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot import machine
from likelyshot.functional.checks import check_count, check_not_negative, check_positive, prepare
from likelyshot.functional.gram import join, mean_weights, squared_distances_to_means


@torch.no_grad()
def paddle(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    lam: float = 75.0,
    tau: float = 70.0,
    iterations: int = 100,
    normalise: bool = True,
) -> Tensor:
    """Score by soft k-means that begins at the support, with a prior that lets classes without queries die out.

    Paper: Martin et al. 2022, Towards practical few-shot query sets: transductive minimum description length inference.
    l_qk = -tau/2 ||z_q - w_k||^2 / s + (lam / N) v_k, with N queries and s the mean squared distance of all samples to
    their mean. Begins with the support means w and v = 0. Repeated:
    u = softmax_k(l); v_k = log(mean_q u_qk) + 1; w_k = mean of class k's support (weight 1) and all queries (u_qk).
    The scores are l after the last update. An empty class has v = log 1e-6 + 1, as in the released code; a class
    without support begins at the origin.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        lam: Weight of the prior: the larger, the more queries go to the classes that already have most. 75 in the
            paper, for 75 queries.
        tau: Factor of the squared distances, in units of s. Ours: the published formula has none, and the
            released code instead divides raw features by their range among the queries, which blows up those that are
            zero in nearly all. 70 was chosen on validation classes.
        iterations: Largest number of updates; 0 is the nearest prototype.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.9], [1.0, 0.7], [1.0, 0.8]])
    >>> paddle(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 0])
    """
    check_not_negative("lam", lam, "the paper uses 75, for 75 queries")
    check_positive("tau", tau, "70 suits all features that we tried")
    check_count("iterations", iterations, "100 is customary")
    support, query = prepare(support, labels, query, n_ways, normalise)
    samples, weights = join(support, labels, query, n_ways)
    gram = samples @ samples.transpose(-1, -2)
    factor = tau * _precision(gram)
    assigned = weights[..., support.shape[-2] :]  # u, the part of the weights that belongs to the queries, (..., k, q)

    def attraction() -> Tensor:
        distances = squared_distances_to_means(gram, mean_weights(weights))
        return distances[..., support.shape[-2] :].mul(-factor / 2)

    scores = attraction()
    for _ in range(iterations):
        u = scores.softmax(-2)
        if not machine.on_accelerator(u) and torch.equal(u, assigned):
            break  # a fixed point of every task, so that further rounds would change none
        assigned.copy_(u)
        v = (u.mean(-1, keepdim=True) + 1e-6).log() + 1
        scores = attraction().add_(v, alpha=lam / query.shape[-2])
    return scores.transpose(-1, -2)


def _precision(gram: Tensor) -> Tensor:
    """Give one over the mean squared distance of the samples to their mean, mean_n G_nn - mean_mn G_mn."""
    squares = gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    spread = squares - gram.mean((-2, -1))
    return spread.clamp_min(1e-6 * squares).clamp_min(1e-12).reciprocal()[..., None, None]

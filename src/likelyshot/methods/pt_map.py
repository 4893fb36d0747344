"""PT-MAP: power transform, then prototypes and an optimal transport in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import check_non_negative, check_rounds, prepare
from likelyshot.functional.gram import class_shares, estimate_shares, move_to_means, squared_distances_to_means
from likelyshot.functional.power import centre_units, power_transform
from likelyshot.functional.scores import one_hot
from likelyshot.functional.sinkhorn import sinkhorn


@torch.no_grad()
def pt_map(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    marginals: str | Tensor | Sequence[float] = "uniform",
    power: float = 0.5,
    lam: float = 10.0,
    eta: float = 0.2,
    iterations: int = 20,
    tolerance: float = 1e-6,
) -> Tensor:
    """Score by the log-probability of an optimal transport of the queries to prototypes, which follow it.

    Paper: Hu et al. 2021, Leveraging the feature distribution in transfer-based few-shot learning.
    Features (f + 1e-6)^power, L2, minus the mean of the support or of the queries, L2. Repeated: p = Sinkhorn of
    exp(-lam ||f_q - m_k||^2) to rows of 1 and columns of q * share_k; m_k <- m_k + eta (weighted mean - m_k), over the
    queries with weights p and the support with its labels. The scores are log p with the last prototypes.
    Only inner products matter (the paper's QR keeps them), so prototypes are weights over the samples. A class without
    support starts at the centre, a class without any weight stays; a single query is its own mean, and ties.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), marginals (..., k), non-negative -> (..., q, k).

    Args:
        marginals: Shares of the classes among the queries: "uniform" as in the paper, numbers that you know, or
            "estimated". Then p_kq = softmax_k(log share_k - lam ||f_q - m_k||^2) without a constraint on the columns,
            and each round share_k = (1 + sum_q p_kq) / (k + q): a Gaussian mixture by expectation maximisation, with a
            Dirichlet(2) prior.
        power: Exponent of the features, above 0 and at most 1; 0.5 in the paper makes skewed features more Gaussian.
        lam: Factor of the squared distances, 10 in the paper: the larger, the harder the assignment.
        eta: How far a round moves the prototypes, from 0 to 1; 0.2 in the paper.
        iterations: Number of rounds, 20 in the paper.
        tolerance: Largest error of a class's share at which the transport stops, 1e-6 in the paper's code.

    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> pt_map(support, torch.tensor([0, 1]), query, n_ways=2, marginals="estimated").argmax(-1)
    tensor([0, 1, 0])
    """
    check_rounds(lam, eta, iterations, tolerance)
    check_non_negative("pt_map", support, query)
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    shares = class_shares(marginals, n_ways).to(query.device)
    support = centre_units(power_transform(support, power))
    query = centre_units(power_transform(query, power))
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2], labels.shape[:-1], shares.shape[:-1])
    samples = torch.cat([x.expand(*leading, *x.shape[-2:]) for x in (support, query)], -2)  # (..., n, d)
    gram = (samples @ samples.transpose(-1, -2)).double()  # (..., n, n); all that follows is small
    known = one_hot(labels, n_ways, torch.float64).transpose(-1, -2).expand(*leading, -1, -1)  # (..., k, s)
    p = gram.new_zeros(*leading, n_ways, query.shape[-2])  # (..., k, q)
    weights = move_to_means(gram.new_zeros(()), known, p, 1.0)  # (..., k, n): m_k = sum_n weights_kn f_n
    shares = shares.expand(*leading, n_ways)
    potentials = torch.zeros_like(shares)
    for step in range(iterations + 1):
        if step > 0:
            weights = move_to_means(weights, known, p, eta)
        logits = -lam * squared_distances_to_means(gram, weights)[..., known.shape[-1] :]
        if isinstance(marginals, str) and marginals == "estimated":
            log_p = (logits + shares.log().unsqueeze(-1)).log_softmax(-2)
            p = log_p.exp()
            shares = estimate_shares(p)
        else:
            log_p, potentials = sinkhorn(logits, shares, potentials, tolerance=tolerance, settle=step == iterations)
            p = log_p.exp()
    return log_p.transpose(-1, -2).to(query.dtype)

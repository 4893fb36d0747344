"""protoLP: prototypes and label propagation over their graph in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import (
    check_count,
    check_fraction,
    check_non_negative,
    check_not_negative,
    check_rounds,
    prepare,
)
from likelyshot.functional.gram import class_shares, estimate_shares, move_to_means, squared_distances_to_means
from likelyshot.functional.power import centre_units, power_transform
from likelyshot.functional.scores import one_hot
from likelyshot.functional.sinkhorn import sinkhorn

OWN = 1e-8  # weight of a prototype's own class as its label: the system stays regular where no support is connected


@torch.no_grad()
def protolp(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    marginals: str | Tensor | Sequence[float] = "estimated",
    power: float = 0.5,
    dim: int = 40,
    lam: float = 10.0,
    gamma: float = 1.0,
    beta: float = 0.6,
    eta: float = 0.2,
    iterations: int = 20,
    tolerance: float = 1e-6,
) -> Tensor:
    """Score by the log-probability of prototypes that follow spread labels, propagated over the graph of prototypes.

    Paper: Zhu & Koniusz 2023, Transductive few-shot learning with prototype-based label propagation by iterative
    graph refinement.
    Features (f + 1e-6)^power, L2, the first `dim` singular directions of the task, centred, L2. Prototypes m start as
    the L2-normalised support means. Repeated: z = assignment of the queries to prototypes by -lam ||f_q - m_k||^2, the
    support fixed by its labels Y; graph of prototypes W = Z'Z with degrees D = Z'1 and Laplacian L = I - D^-1 W;
    labels of prototypes A = (Y'Y + gamma L)^-1 Y'Y, of queries p = z A; m_k <- m_k + eta (weighted mean - m_k) with
    the weights beta p + (1 - beta) z. The scores are log z with the last prototypes.
    A has rows that sum to 1, and so has p. With equal columns L is the released I - W D^-1.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), marginals (..., k), non-negative -> (..., q, k).

    Args:
        marginals: Shares of the classes among the queries, as in `pt_map`. "estimated" forces no class size. "uniform"
            (the released code) or numbers that you know: Sinkhorn makes z and p sum to q * share_k over the queries.
        power: Exponent of the features, above 0 and at most 1; 0.5 in the paper makes skewed features more Gaussian.
        dim: Number of singular directions that are kept, 40 in the released code.
        lam: Factor of the squared distances, 10 in the released code: the larger, the harder the assignment.
        gamma: Weight of the graph, 1 in the released code: the larger, the further labels spread; 0 spreads none.
        beta: Weight of the spread labels p against the assignment z, from 0 to 1; 0.6 in the released code.
        eta: How far a round moves the prototypes, from 0 to 1; 0.2 in the released code.
        iterations: Number of rounds; 20, where the released code has 100 (decision 7 in the docs).
        tolerance: Largest error of a class's share at which Sinkhorn stops.

    >>> support, query = torch.tensor([[9.0, 1.0], [1.0, 9.0]]), torch.tensor([[7.0, 2.0], [2.0, 8.0], [8.0, 1.0]])
    >>> protolp(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 1, 0])
    """
    check_rounds(lam, eta, iterations, tolerance)
    check_non_negative("protolp", support, query)
    check_count("dim", dim, "the paper's code uses 40", least=1)
    check_not_negative("gamma", gamma, "the paper's code uses 1")
    check_fraction("beta", beta, "the paper's code uses 0.6")
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    shares = class_shares(marginals, n_ways).to(query.device)
    support, query = power_transform(support, power), power_transform(query, power)
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2], labels.shape[:-1], shares.shape[:-1])
    samples = torch.cat([x.expand(*leading, *x.shape[-2:]) for x in (support, query)], -2)  # (..., n, d)
    samples = centre_units(_principal(samples.double(), dim))
    tiny = torch.finfo(samples.dtype).tiny
    gram = samples @ samples.transpose(-1, -2)  # (..., n, n)
    known = one_hot(labels, n_ways, torch.float64).transpose(-1, -2).expand(*leading, -1, -1)  # (..., k, s)
    z = gram.new_zeros(*leading, n_ways, query.shape[-2])  # (..., k, q)
    weights = move_to_means(gram.new_zeros(()), known, z, 1.0)  # (..., k, n): m_k = sum_n weights_kn f_n
    length = (weights @ gram * weights).sum(-1, keepdim=True).clamp_min(0).sqrt()
    weights = weights / torch.where(length > 100 * torch.finfo(length.dtype).eps, length, 1)
    shares = shares.expand(*leading, n_ways)
    estimated = isinstance(marginals, str) and marginals == "estimated"
    potentials = potentials_p = torch.zeros_like(shares)
    for step in range(iterations + 1):
        if step > 0:
            p = _propagate(z, known.sum(-1), gamma).transpose(-1, -2) @ z
            if not estimated:
                log_p, potentials_p = sinkhorn(
                    p.clamp_min(tiny).log(), shares, potentials_p, tolerance=tolerance, settle=False
                )
                p = log_p.exp()
            weights = move_to_means(weights, known, torch.lerp(z, p, beta), eta)
        logits = -lam * squared_distances_to_means(gram, weights)[..., known.shape[-1] :]
        if estimated:
            log_z = (logits + shares.log().unsqueeze(-1)).log_softmax(-2)
            z = log_z.exp()
            shares = estimate_shares(z)
        else:
            log_z, potentials = sinkhorn(logits, shares, potentials, tolerance=tolerance, settle=step == iterations)
            z = log_z.exp()
    return log_z.transpose(-1, -2).to(query.dtype)


def _principal(samples: Tensor, dim: int) -> Tensor:
    """Give the coordinates along the first singular directions, by the Gram matrix: (..., n, d) -> (..., n, m)."""
    squares, directions = torch.linalg.eigh(samples @ samples.transpose(-1, -2))  # rising
    rounding = squares.shape[-1] * torch.finfo(squares.dtype).eps * squares[..., -1:]
    lengths = torch.where(squares > rounding, squares, 0).sqrt().unsqueeze(-2)
    coordinates: Tensor = directions[..., -dim:] * lengths[..., -dim:]
    return coordinates


def _propagate(z: Tensor, count: Tensor, gamma: float) -> Tensor:
    """Solve (Y'Y + gamma L) A = Y'Y for the labels of the prototypes: (..., k, q), (..., k) -> (..., k, k)."""
    counts = torch.diag_embed(count)  # Y'Y
    graph = counts + z @ z.transpose(-1, -2)  # W, over support and queries
    degrees = (count + z.sum(-1)).unsqueeze(-1)
    eye = torch.eye(z.shape[-2], dtype=z.dtype, device=z.device)
    laplacian = eye - graph / degrees.clamp_min(torch.finfo(z.dtype).tiny)
    anchored = counts + OWN * eye
    spread: Tensor = torch.linalg.solve_ex(anchored + gamma * laplacian, anchored).result
    return spread

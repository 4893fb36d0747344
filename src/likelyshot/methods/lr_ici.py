"""LR+ICI: logistic regression that takes in its own predictions, the most credible first."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_count, check_positive, prepare
from likelyshot.functional.lasso_path import lasso_leaving_times
from likelyshot.functional.logistic_regression import logistic_logits
from likelyshot.functional.scores import one_hot


@torch.no_grad()
def lr_ici(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    penalty: float = 0.1,
    dims: int = 5,
    per_round: int = 5,
    normalise: bool = True,
) -> Tensor:
    """Score by the logits of a logistic regression on the support and all pseudo-labelled queries, credible ones first.

    Paper: Wang et al. 2020, Instance credibility inference for few-shot learning.
    Logistic regression: min sum_i CE(y_i, softmax(W f_i + b)) + penalty/2 ||W||^2, first on the support.
    Then rounds, until all queries are taken: y_q = argmax of the logits, of all queries again; Y = one-hot labels and
    pseudo-labels; X = first `dims` principal components of support and queries (centred, no constant column);
    H = X (X'X)^-1 X'; path of the group Lasso min 1/2 ||(I - H)(Y - gamma)||^2 + lambda sum_i ||gamma_i||_2;
    of every pseudo-class take the `per_round` queries not yet taken whose gamma_i leaves zero last as lambda falls, or
    all that are left; refit on the support and all taken, with their new pseudo-labels. Scores are the last logits.
    A class without support gets no pseudo-labels: its score is one below the lowest other. All in double precision.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        penalty: Weight of ||W||^2 / 2, 1 / C of scikit-learn; 0.1 in the paper's code.
        dims: Number of principal components that credibility is judged by, 5 in the paper.
        per_round: Number of queries that a class gains in a round, 5 in the paper: the larger, the faster.
        normalise: Scale every vector to unit length first.

    >>> support, query = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([[6.0, 8.5], [3.0, 4.1], [3.0, 2.0]])
    >>> lr_ici(support, torch.tensor([0, 1]), query, n_ways=2).argmax(-1)
    tensor([0, 0, 1])
    """
    check_positive("penalty", penalty, "the paper's code uses 0.1 (C = 10)")
    check_count("dims", dims, "the paper uses 5", least=1)
    check_count("per_round", per_round, "the paper uses 5", least=1)
    support, query = prepare(support, labels, query, n_ways, normalise)
    n_support, n_query = support.shape[-2], query.shape[-2]
    known = one_hot(labels, n_ways, torch.float64)  # (..., s, k)
    leading = (support[..., :1, :1] + query[..., :1, :1] + known[..., :1, :1]).shape[:-2]
    known, support, query = (
        x.expand(*leading, *x.shape[-2:]).reshape(leading.numel(), *x.shape[-2:]) for x in (known, support, query)
    )
    x, principal = _principal_components(torch.cat([support, query], dim=-2), dims)
    targets = torch.cat([known, known.new_zeros(len(x), n_query, n_ways)], dim=-2)
    logits = logistic_logits(x, targets, penalty)[:, n_support:]
    selected = torch.zeros_like(logits[..., 0], dtype=torch.bool)  # (t, q)
    tasks = torch.arange(len(x), device=x.device)  # those with a query left
    for _ in range(n_query):
        pseudo = one_hot(logits[tasks].argmax(-1), n_ways, x.dtype)  # (t, q, k)
        credibility = lasso_leaving_times(principal[tasks], torch.cat([known[tasks], pseudo], dim=-2))[:, n_support:]
        selected[tasks] |= _most_credible(credibility, pseudo * ~selected[tasks].unsqueeze(-1), per_round)
        targets = torch.cat([known[tasks], pseudo * selected[tasks].unsqueeze(-1)], dim=-2)
        logits[tasks] = logistic_logits(x[tasks], targets, penalty)[:, n_support:]
        tasks = tasks[~selected[tasks].all(-1)]
        if not len(tasks):
            break
    return logits.view(*leading, n_query, n_ways).to(query.dtype)


def _most_credible(credibility: Tensor, candidates: Tensor, count: int) -> Tensor:
    """Mark the `count` most credible candidates of every class: (t, q) and one-hot or zero (t, q, k) -> (t, q)."""
    order = credibility.argsort(dim=-1, descending=True, stable=True)
    sorted_candidates = candidates.take_along_dim(order.unsqueeze(-1), -2)
    ranked = sorted_candidates * (sorted_candidates.cumsum(-2) <= count)
    return torch.zeros_like(ranked[..., 0]).scatter_(-1, order, ranked.sum(-1)) > 0


def _principal_components(features: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    """Rotate centred features to their principal axes, and give an orthonormal basis of the first `dims` components.

    Neither the rotation nor the centring changes a logistic regression with a free intercept, and there are no more
    axes than samples. Components without variance are zero. (t, n, d) -> (t, n, min(n, d)), (t, n, min(n, d, dims)).
    """
    features = features.double()
    total = features.square().sum((-2, -1)).view(-1, 1, 1)
    if not total.isfinite().all():
        raise InputError(
            "expected features whose squares are finite in double precision, got infinite, missing or too large ones: "
            "repair them, and use normalise=True or smaller units"
        )
    features = features - features.mean(-2, keepdim=True)
    variances, basis = torch.linalg.eigh(features @ features.transpose(-1, -2))
    axes = min(features.shape[-2:])
    variances, basis = variances[:, None, -axes:].flip(-1), basis[..., -axes:].flip(-1)
    real = variances > 1e-12 * variances[..., :1].clamp_min(1e-16 * total)  # rounding gives equal samples some
    return basis * (real * variances).sqrt(), (basis * real)[..., :dims].contiguous()

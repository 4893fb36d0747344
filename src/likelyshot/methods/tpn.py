"""TPN: labels that spread over a graph whose length scale is learned."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from likelyshot.functional.checks import Weights, check_count, check_positive, head_weights, prepare
from likelyshot.functional.gram import join, nearest_neighbours

#: Added to what reaches a query, and least sum of its ties: so that gradients stay finite.
FLOOR = 1e-8


def tpn(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    alpha: float = 0.9,
    neighbours: int = 20,
    normalise: bool = True,
) -> Tensor:
    """Score by the log of the labels that reach a query over a graph of support and queries.

    Paper: Liu et al. 2019, Learning to propagate labels: transductive propagation network for few-shot learning.
    W_ij = exp(-||x_i / s_i - x_j / s_j||^2 / 2), s_i > 0 predicted for every sample by a network with one hidden layer;
    W_ij is kept where j is among the nearest of i, or i among those of j; S = D^-1/2 W D^-1/2 and F = (I - alpha S)^-1
    [Y; 0]. The score is log(F + 1e-8), with the same winner as F. Samples equally near share the places left for them.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        alpha: How far labels spread, from 0 to below 1. With the paper's 0.99, the number of ties of a labelled example
            decides more than their strength, at one shot.
        neighbours: Number of nearest samples that a sample is tied to.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.1]])
    >>> tpn(support, torch.tensor([0, 1]), query, n_ways=2, head=build("tpn", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_positive("alpha", alpha, "the paper uses 0.99, we 0.9", most=0.999)
    check_count("neighbours", neighbours, "the paper uses 20", least=1)
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("tpn", head, support)
    x, known = join(support, labels, query, n_ways)  # (..., n, d), (..., k, n)
    hidden = relu(x @ w["into"].mT * x.shape[-1] ** 0.5 + w["into_bias"])
    scale = softplus(hidden @ w["out"].mT + w["out_bias"]).clamp_min(1e-3)  # (..., n, 1)
    scaled = x / scale
    gram = scaled @ scaled.mT
    squares = gram.diagonal(dim1=-2, dim2=-1)
    distances = (squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * gram).clamp_min(0)
    near = nearest_neighbours(
        gram.detach() / squares.detach().amax((-1,)).clamp_min(1e-12)[..., None, None], neighbours
    )
    ties = torch.exp(-distances / 2) * torch.maximum(near, near.mT)
    degree = ties.sum(-1).clamp_min(FLOOR)
    root = degree.rsqrt()
    spread = root.unsqueeze(-1) * ties * root.unsqueeze(-2)
    unit = torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)
    reached: Tensor = torch.linalg.solve_ex(unit - alpha * spread, known.mT).result[..., support.shape[-2] :, :]
    return (reached.clamp_min(0) + FLOOR).log()

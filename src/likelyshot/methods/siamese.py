"""Siamese networks: how probable it is that two examples are alike."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import Weights, head_weights, prepare
from likelyshot.functional.scores import one_hot, squared_distances


def siamese(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, head: Weights, normalise: bool = True
) -> Tensor:
    """Score by the mean log-odds that the query and a support example are alike, b - sum_j w_j abs(f_qj - f_ij).

    Paper: Koch et al. 2015, Siamese neural networks for one-shot image recognition.
    The weights w_j >= 0 are the softplus of what is learned; a `squared` head weighs (f_qj - f_ij)^2, as Hess
    & Ditzler describe the method. The original picks the most similar example; with several shots we average over those
    of a class. Training is by the cross entropy of episodes, not of single pairs, so the bias b, the same for all
    classes, is left out. A class without support is compared with the vector of zeros.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> siamese(support, torch.tensor([0, 1]), query, n_ways=2, head=build("siamese", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    weights = head_weights("siamese", head, support)
    if "square_scale" in weights:
        scale = torch.nn.functional.softplus(weights["square_scale"]).sqrt()
        pairs, origin = (
            squared_distances(query * scale, support * scale),
            (query * scale).square().sum(-1, keepdim=True),
        )
    else:
        scale = torch.nn.functional.softplus(weights["scale"])
        pairs, origin = _city_block(query * scale, support * scale), (query * scale).abs().sum(-1, keepdim=True)
    member = one_hot(labels, n_ways, pairs.dtype)  # (..., s, k)
    count = member.sum(-2, keepdim=True)
    return -torch.where(count > 0, pairs @ (member / count.clamp_min(1)), origin)


def _city_block(x: Tensor, y: Tensor) -> Tensor:
    """Sum |x_j - y_j| of every pair, without a tensor of (q, s, d): (..., q, d), (..., s, d) -> (..., q, s)."""
    if torch.is_grad_enabled() and (x.requires_grad or y.requires_grad):  # the gradient of cdist at 0 is 0 too
        return torch.stack([(x - row).abs().sum(-1) for row in y.unsqueeze(-2).unbind(-3)], -1)
    return torch.cdist(x, y, p=1.0)

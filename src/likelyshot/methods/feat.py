"""FEAT: prototypes that see each other through one attention layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from likelyshot.functional.checks import Weights, head_weights, prepare
from likelyshot.functional.scores import class_means, squared_distances


def feat(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, head: Weights, normalise: bool = True
) -> Tensor:
    """Score by the negative squared distance to prototypes that one self-attention layer has adapted to the task.

    Paper: Ye et al. 2020, Few-shot learning via embedding adaptation with set-to-set functions.
    With p_k = sqrt(d) m_k: a = softmax_j((W_Q p_k) . (W_K p_j) / sqrt(r)), p'_k = LayerNorm(p_k + W_O sum_j a_kj W_V
    p_j + b), score = -||f_q - p'_k / sqrt(d)||^2. Queries are not adapted. The scores are the paper's divided by d: its
    temperature of 64 for 640 features is 0.1 here. A head without LayerNorm whose W_O and b are zero, which is how
    training begins, is `euclidean`. Training has no dropout.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> head = build("feat", {"layer_norm": False}, dim=2)
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> feat(support, torch.tensor([0, 1]), query, n_ways=2, head=head).argmax(-1)
    tensor([0])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    weights, scale = head_weights("feat", head, support), math.sqrt(support.shape[-1])
    prototypes = adapt(weights, class_means(support, labels, n_ways) * scale)
    return -squared_distances(query, prototypes / scale)


def adapt(weights: Mapping[str, Tensor], x: Tensor, among: Tensor | None = None) -> Tensor:
    """Let vectors attend to each other, or only to those that `among` marks: x (..., n, d), among (..., n, n)."""
    attention = (x @ weights["asks"].mT) @ (x @ weights["offers"].mT).mT / math.sqrt(weights["asks"].shape[0])
    if among is not None:
        attention = attention.masked_fill(~among, -torch.inf)
    attended = attention.softmax(-1) @ (x @ weights["gives"].mT)
    adapted = x + attended @ weights["out"].mT + weights["out_bias"]
    if "norm" in weights:
        adapted = functional.layer_norm(adapted, adapted.shape[-1:], weights["norm"], weights["norm_bias"])
    return adapted


def contrast(head: Weights, features: Tensor, labels: Tensor, n_ways: int) -> Tensor:
    """Score all examples of an episode by centres of their classes: the regulariser of training (eq. 8 of the paper).

    The examples of each class attend to each other, and their mean is the centre.
    Shapes: features (..., n, d) of unit length, labels (..., n) -> (..., n, k).
    """
    scale = math.sqrt(features.shape[-1])
    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    adapted = adapt(head_weights("feat", head, features), features * scale, same) / scale
    return -squared_distances(features, class_means(adapted, labels, n_ways))

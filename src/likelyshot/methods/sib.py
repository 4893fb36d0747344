"""SIB: prototypes take steps along gradients that a small network predicts from the queries."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from likelyshot.errors import InputError
from likelyshot.functional.checks import Weights, check_count, check_not_negative, head_weights, prepare
from likelyshot.functional.scores import class_means, l2_normalise

#: Queries of the episodes that the paper trains on: the step is measured per so many queries.
QUERIES = 75


def sib(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    steps: int = 3,
    eta: float = 0.01,
    normalise: bool = True,
) -> Tensor:
    """Score by scaled cosines to prototypes that took a few steps along a predicted gradient of the queries.

    Paper: Hu et al. 2020, Empirical Bayes transductive meta-learning with synthetic gradients.
    t_k = w * m_k, then three times S = a cos(f_q, t_k), G = phi(S), t <- t - eta 75/q d<S, G>/dt with G held constant;
    phi is a network with two hidden layers that is given a query's logits in falling order, and whose answers are put
    back in their places, so that classes may come in any order. It has LayerNorm where the released code has BatchNorm,
    and its last layer starts at zero: training starts at `cosine`. A head is for one number of classes.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        steps: Number of steps.
        eta: Size of a step, for 75 queries.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> sib(support, torch.tensor([0, 1]), query, n_ways=2, head=build("sib", {"ways": 2}, dim=2)).detach()
    tensor([[10.,  0.]])
    """
    check_count("steps", steps, "the paper uses 3")
    check_not_negative("eta", eta, "0.01 suits unit vectors")
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("sib", head, support)
    ways = w["out"].shape[0]
    if n_ways != ways:
        raise InputError(f"expected {ways} classes, as the head of sib was trained on, got {n_ways}: train another")
    queries, factor = l2_normalise(query), w["factor"]
    theta = w["scale"] * class_means(support, labels, n_ways)
    size = eta * QUERIES / max(query.shape[-2], 1)
    for _ in range(steps):
        unit, length = _unit(theta)
        logits = factor * queries @ unit.mT
        gradient = slopes(w, logits).mT @ queries  # (..., k, d)
        along = (gradient * unit).sum(-1, keepdim=True)
        theta = theta - size * factor / length * (gradient - along * unit)
    return factor * queries @ _unit(theta)[0].mT


def slopes(w: Mapping[str, Tensor], logits: Tensor) -> Tensor:
    """Predict the gradient of the logits, whatever the order of the classes: (..., k) -> (..., k)."""
    ranked, order = logits.sort(-1, descending=True)
    for layer in ("into", "middle"):
        ranked = ranked @ w[layer].mT + w[f"{layer}_bias"]
        ranked = relu(layer_norm(ranked, ranked.shape[-1:], w[f"{layer}_norm"], w[f"{layer}_norm_bias"]))
    return (ranked @ w["out"].mT + w["out_bias"]).gather(-1, order.argsort(-1))


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give direction and length; a class without support has length 1 and no direction."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    length = torch.where(length > 1e-12, length, 1.0)
    return x / length, length

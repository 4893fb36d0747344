"""Versa: a network writes the classifier, with its uncertainty."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import elu

from likelyshot.functional.checks import Weights, head_weights, prepare
from likelyshot.functional.scores import class_means

#: Points of the quadrature over the uncertainty of the weights, and as many mirrored ones.
POINTS = 128


def versa(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, head: Weights, normalise: bool = True
) -> Tensor:
    """Score by the log-probability under a linear classifier whose weights are Gaussian, written by a network.

    Paper: Gordon et al. 2019, Meta-learning probabilistic inference for prediction.
    h = ELU(A sqrt(d) f + a). Of the class mean of h, networks with two hidden layers give mean and variance of the
    class's weights and bias, so a query's logits are Gaussian: their mean is mu = h . mu_w + mu_b, their variance v =
    h^2 . v_w + v_b. The score is log E softmax(mu + sqrt(v) e). The expectation is over 256 fixed normals (scrambled
    Sobol points and their negatives) in training and in tests alike: no chance, and since a query's classes are sorted
    by mu, they may come in any order. The paper draws 10 in training. mu_w starts at the class mean of h itself.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> versa(support, torch.tensor([0, 1]), query, n_ways=2, head=build("versa", {}, dim=2)).exp().sum(-1).detach()
    tensor([1.0000])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    w, scale = head_weights("versa", head, support), support.shape[-1] ** 0.5
    hidden, queries = (elu(x * scale @ w["into"].mT + w["into_bias"]) for x in (support, query))
    means = class_means(hidden, labels, n_ways)  # (..., k, h)
    width = means.shape[-1]
    out = {part: _network(w, part, means) for part in ("mean", "spread")}  # (..., k, h + 1)
    weights, bias = out["mean"][..., :width] + means / width**0.5, out["mean"][..., width]
    spread = (out["spread"] - 6).clamp_max(10).exp()
    mean = queries @ weights.mT + bias.unsqueeze(-2)
    deviation = (queries.square() @ spread[..., :width].mT + spread[..., width].unsqueeze(-2)).sqrt()
    mean, order = mean.sort(-1, descending=True)
    noise = normals(n_ways).to(mean)  # (n, k)
    sampled = mean.unsqueeze(-2) + deviation.gather(-1, order).unsqueeze(-2) * noise
    scores: Tensor = sampled.log_softmax(-1).logsumexp(-2) - math.log(len(noise))
    return scores.gather(-1, order.argsort(-1))


def _network(w: Mapping[str, Tensor], part: str, x: Tensor) -> Tensor:
    for layer in ("1", "2"):
        x = elu(x @ w[f"{part}{layer}"].mT + w[f"{part}{layer}_bias"])
    return x @ w[f"{part}3"].mT + w[f"{part}3_bias"]


@functools.cache
def normals(count: int) -> Tensor:
    """Give points like independent normals, (2 * POINTS, count) float64: scrambled Sobol points and their negatives."""
    points = torch.quasirandom.SobolEngine(count, scramble=True, seed=0).draw(  # type: ignore[no-untyped-call]
        POINTS, dtype=torch.float64
    )
    half = torch.special.ndtri(points.clamp(1e-9, 1 - 1e-9))
    return torch.cat([half, -half])

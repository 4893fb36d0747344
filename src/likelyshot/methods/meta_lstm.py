"""Meta-LSTM: an optimiser that is learned, on a linear classifier."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from likelyshot.functional.checks import Weights, check_count, head_weights, prepare
from likelyshot.functional.scores import one_hot


def meta_lstm(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    steps: int = 8,
    normalise: bool = True,
) -> Tensor:
    """Score by a linear classifier that a learned optimiser, an LSTM for all its weights, has trained on the support.

    Paper: Ravi & Larochelle 2017, Optimization as a model for few-shot learning.
    For every weight t of the classifier, with g its gradient of the support's cross entropy L: an LSTM of the sizes and
    signs of g and L gives h; f = sigmoid(F [h, t, f] + b), i = sigmoid(I [h, t, i] + b), t <- f t - i g. Training takes
    g as a constant. All classes share one learned start, a vector and a bias, as in `anil`. The learner is
    the classifier only, where the paper's is a whole network. Unit vectors are scaled by a learned factor first.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        steps: Number of updates; the paper uses 12 at 1 shot and 8 at 5 shots in training.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> meta_lstm(support, torch.tensor([0, 1]), query, n_ways=2, head=build("meta_lstm", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_count("steps", steps, "the paper uses 8 to 12")
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("meta_lstm", head, support)
    factor = w["log_factor"].exp()
    x, queries = (torch.cat([factor * z, torch.ones_like(z[..., :1])], -1) for z in (support, query))
    targets = one_hot(labels, n_ways, x.dtype)
    theta = w["start"].expand(*(x @ x.new_zeros(x.shape[-1], 1) + targets[..., :1]).shape[:-2], n_ways, -1)
    width = w["state"].shape[1]
    h = c = theta.new_zeros(*theta.shape, width)
    forget, admit = torch.ones_like(theta), torch.zeros_like(theta)
    for _ in range(steps):
        constant, data = theta.detach(), x.detach()
        log_p = (data @ constant.mT).log_softmax(-1)
        gradient = (log_p.exp() - targets).mT @ data / max(x.shape[-2], 1)  # (..., k, d + 1)
        loss = -(targets * log_p).sum((-2, -1)) / max(x.shape[-2], 1)
        inputs = torch.cat([_sized(gradient), _sized(loss[..., None, None].expand_as(gradient))], -1)
        h, c = _cell(w, inputs, h, c)
        forget, admit = (
            (torch.cat([h, theta.unsqueeze(-1), gate.unsqueeze(-1)], -1) @ w[name] + w[f"{name}_bias"]).sigmoid()
            for name, gate in (("forget", forget), ("admit", admit))
        )
        theta = forget * theta - admit * gradient
    return queries @ theta.mT


def _sized(x: Tensor) -> Tensor:
    """Split numbers into size and sign (Andrychowicz et al. 2016): (...) -> (..., 2)."""
    large = x.abs() >= 4.5399929762484854e-05  # e^-10
    size = torch.where(large, x.abs().clamp_min(1e-30).log() / 10, -1.0)
    return torch.stack([size, torch.where(large, x.sign(), 22026.465794806718 * x)], -1)


def _cell(w: Mapping[str, Tensor], x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (x @ w["input"].mT + h @ w["state"].mT + w["bias"]).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c

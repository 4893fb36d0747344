"""Matching networks with full context embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.checks import Weights, check_count, head_weights, prepare
from likelyshot.functional.scores import cosines, one_hot


def matching_fce(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    reads: int = 5,
    normalise: bool = True,
) -> Tensor:
    """Score by the log of the attention of `matching`, after LSTMs let examples and queries see the support.

    Paper: Vinyals et al. 2016, Matching networks for one shot learning, section 2.1.2.
    A learned linear map makes short vectors. The support becomes g_i = x_i + forward_i + backward_i by a bidirectional
    LSTM, which reads it in the order of the cosine to the mean of the support (exact ties as they come); a query reads
    it a few times by another LSTM: (c, h) = LSTM([f, r], h), h = h + f, r = sum_i softmax_i(h . g_i) g_i. The score is
    log sum_{y_i = k} softmax_i(cos(h, g_i) / temperature). A class without support gets the log of the smallest number.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        reads: How often a query reads the support.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> matching_fce(support, torch.tensor([0, 1]), query, n_ways=2, head=build("matching_fce", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_count("reads", reads, "the paper reads 5 times")
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("matching_fce", head, support)
    leading = np.broadcast_shapes(support.shape[:-2], query.shape[:-2])
    support, query = (z.expand(*leading, *z.shape[-2:]) for z in (support, query))
    nearness = cosines(support.mean(-2, keepdim=True), support).squeeze(-2).detach()  # (..., s)
    order = nearness.argsort(dim=-1, stable=True)
    x, queries = (z * z.shape[-1] ** 0.5 @ w["into"].mT for z in (support, query))
    sequence = x.gather(-2, order.unsqueeze(-1).expand_as(x))
    context = _pass(w, "forth", sequence) + _pass(w, "back", sequence.flip(-2)).flip(-2)
    g = x + context.gather(-2, order.argsort(-1).unsqueeze(-1).expand_as(context))
    h, c, r = queries, torch.zeros_like(queries), g.mean(-2, keepdim=True).expand_as(queries)
    for _ in range(reads):
        out, c = _cell(w, "query", torch.cat([queries, r], -1), h, c)
        h = out + queries
        r = (h @ g.mT).softmax(-1) @ g
    attention = (cosines(h, g) * w["log_factor"].exp().clamp(1e-3, 1e3)).softmax(-1)
    received = attention @ one_hot(labels, n_ways, attention.dtype)
    return received.clamp_min(torch.finfo(received.dtype).tiny).log()


def _pass(w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Read a sequence by an LSTM that starts from zeros: (..., s, h) -> (..., s, h)."""
    out = c = torch.zeros_like(x[..., 0, :])
    outs = []
    for step in range(x.shape[-2]):
        out, c = _cell(w, name, x[..., step, :], out, c)
        outs.append(out)
    return torch.stack(outs, -2)


def _cell(w: Mapping[str, Tensor], name: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, gates in torch's order: input, forget, cell, output."""
    gates = x @ w[f"{name}_in"].mT + h @ w[f"{name}_state"].mT + w[f"{name}_bias"]
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c

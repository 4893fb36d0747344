"""Matching networks: attention over the support samples."""

from __future__ import annotations

import torch
from torch import Tensor

from likelyshot.functional.checks import prepare
from likelyshot.functional.scores import cosines, one_hot


def matching(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int) -> Tensor:
    """Score by the log of the attention that a class receives, a softmax of the cosines to the support samples.

    Paper: Vinyals et al. 2016, Matching networks for one shot learning.
    a_qi = softmax_i cos(f_q, f_i), score_k = log sum_{y_i = k} a_qi (section 2.1.1, without the full-context LSTMs
    of section 2.1.2, which need training). The softmax of the scores is the attention itself; a class with more
    support receives more of it. A class without support gets the log of the smallest normal number.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    >>> support, query = torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.5, 0.0]])
    >>> matching(support, torch.tensor([0, 1]), query, n_ways=2).softmax(-1)
    tensor([[0.7311, 0.2689]])
    """
    support, query = prepare(support, labels, query, n_ways, normalise=False)
    attention = cosines(query, support).softmax(-1)  # (..., q, s), nothing below exp(-2) / s
    received = attention @ one_hot(labels, n_ways, attention.dtype)
    return received.clamp_min(torch.finfo(received.dtype).tiny).log()

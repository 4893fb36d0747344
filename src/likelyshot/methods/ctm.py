"""CTM: a mask over features that says what is relevant to the task."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import relu

from likelyshot.functional.checks import Weights, head_weights, prepare
from likelyshot.functional.scores import one_hot, squared_distances


def ctm(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, head: Weights, normalise: bool = True
) -> Tensor:
    """Score by distances of features under a mask that is computed from all classes of the task together.

    Paper: Li et al. 2019, Finding task-relevant features for few-shot learning by category traversal.
    A vector is a map of cells (the head's `grid`; 1 for pooled vectors), and every layer reads one cell at a time. The
    concentrator sums up every class, the projector reads mean and maximum over the classes and gives the mask p, a
    softmax over the m channels of a cell; with the reshaper r, score_k = -mean over the support of k of ||m p * (r(f_q)
    - r(f_i))||^2 / (number of features). The original reads the classes in sequence, which ties it to their order and
    number, and compares by a relation network; its released code multiplies maps as matrices. A class without support
    is compared with the vector of zeros.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        normalise: Scale every vector to unit length first.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> ctm(support, torch.tensor([0, 1]), query, n_ways=2, head=build("ctm", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    support, query = prepare(support, labels, query, n_ways, normalise)
    w, dim = head_weights("ctm", head, support), support.shape[-1]
    channels = w["reshape"].shape[1]
    shape = channels, dim // channels
    cells, cells_of_query = (
        (dim**0.5 * x).reshape(*x.shape[:-1], *shape).mT for x in (support, query)
    )  # (..., s, n, c)
    member = one_hot(labels, n_ways, support.dtype)
    count = member.sum(-2).unsqueeze(-1)  # (..., k, 1)
    share = (member / member.sum(-2, keepdim=True).clamp_min(1)).mT  # (..., k, s)
    concentrated = relu(cells @ w["concentrate"].mT + w["concentrate_bias"]).flatten(-2)  # (..., s, n m)
    class_cells = share @ concentrated
    classes = class_cells.reshape(*class_cells.shape[:-1], cells.shape[-2], -1)  # (..., k, n, m)
    both = torch.cat([classes.mean(-3), classes.amax(-3)], -1)  # (..., n, 2 m)
    mask = (both @ w["project"].mT + w["project_bias"]).softmax(-1) * w["project"].shape[0]
    reshaped, query_cells = (
        (mask.unsqueeze(-3) * (x @ w["reshape"].mT)).flatten(-2) / dim**0.5 for x in (cells, cells_of_query)
    )
    pairs = squared_distances(query_cells, reshaped) @ share.mT
    origin = query_cells.square().sum(-1, keepdim=True)
    return -torch.where(count.mT > 0, pairs, origin)

"""SimpleShot: centre on the base classes, normalise, nearest prototype."""

from __future__ import annotations

from torch import Tensor

from likelyshot.functional.checks import centre
from likelyshot.functional.scores import class_means, squared_distances


def simpleshot(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, base_mean: Tensor | None) -> Tensor:
    """Score by the negative squared distance to the prototype of CL2N features, (f - base_mean) / ||f - base_mean||.

    Paper: Wang et al. 2019, SimpleShot: revisiting nearest-neighbor classification for few-shot learning.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d), base_mean (d,) -> (..., q, k).

    Args:
        base_mean: Mean vector of the base classes (d,), `likelyshot.Base.of(features).mean`; None if the features are
            CL2N already.

    >>> import torch
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.9, 0.0]])
    >>> simpleshot(support, torch.tensor([0, 1]), query, n_ways=2, base_mean=torch.tensor([0.5, 0.5])).argmax(-1)
    tensor([0])
    """
    support, query = centre(support, labels, query, n_ways, base_mean)
    return -squared_distances(query, class_means(support, labels, n_ways))

"""Who is near whom."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_neighbours(gram: Tensor, k: int) -> Tensor:
    """Mark the k nearest others of every vector.

    Vectors equally near up to rounding share the places left for them equally: a row always sums to k (to n - 1 where
    there are fewer others), and the order of the vectors does not matter, not even among duplicates.
    Shapes: gram (..., n, n) -> (..., n, n): row i holds 1 where x_j is near x_i, 0 elsewhere and on the diagonal.

    Args:
        gram: Inner products of the vectors, which are of unit length or about as long.
        k: Number of neighbours, without the vector itself.

    >>> x = torch.tensor([[0.0], [0.1], [0.3], [0.5]])
    >>> nearest_neighbours(x @ x.T, 1)
    tensor([[0.0000, 1.0000, 0.0000, 0.0000],
            [1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.0000, 0.5000],
            [0.0000, 0.0000, 1.0000, 0.0000]])
    """
    far, rounding = 1e6, 64 * torch.finfo(gram.dtype).eps
    nearness = gram - gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) / 2  # (||x_i||^2 - ||x_i - x_j||^2) / 2
    nearness.diagonal(dim1=-2, dim2=-1).fill_(-far)
    near, nearest = torch.zeros_like(nearness), torch.empty_like(nearness)
    k = min(k, gram.shape[-1] - 1)
    places = torch.full_like(nearness[..., :1], k)
    for _ in range(k):
        torch.ge(nearness, nearness.amax(-1, keepdim=True) - rounding, out=nearest)
        count = nearest.sum(-1, keepdim=True)
        share = (places / count).clamp_max(1)
        near.addcmul_(nearest, share)
        places -= share * count
        nearness.sub_(nearest, alpha=far)  # they have their place
    return near

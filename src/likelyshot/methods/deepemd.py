"""DeepEMD: images as sets of cells, compared by optimal transport."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import relu

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_count, prepare
from likelyshot.functional.scores import class_means, l2_normalise
from likelyshot.functional.transport import transport_cost

TEMPERATURE = 12.5


def deepemd(
    support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int, grid: int = 1, normalise: bool = True
) -> Tensor:
    """Score by how alike the cells of a query's map and of the mean map of a class are under the best transport.

    Paper: Zhang et al. 2020, DeepEMD: few-shot image classification with differentiable earth mover's distance.
    A vector is a map of grid x grid cells, channel by channel (encoders have the parameter `grid`). A cell u_i weighs
    max(u_i . mean_j v_j, 0) + 0.001, all weights of an image sum to 1; the cost of moving u_i to v_j is 1 - cos of the
    two after the mean over channels is subtracted; score = 12.5 (1 - least cost). With more shots the class is the mean
    of its maps; the original can tune them further by gradient steps. Transport is exact (`pip install
    'likelyshot[emd]'`), and gradients come from its duals. With one cell nothing is transported.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        grid: Number of cells along a side of the map.
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> support, query = torch.tensor([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> deepemd(support, torch.tensor([0, 1]), query, n_ways=2)
    tensor([[12.5000, -6.2500]])
    """
    check_count("grid", grid, "encoders end in 1 to 11 cells along a side", least=1)
    support, query = prepare(support, labels, query, n_ways, normalise)
    cells, dim = grid * grid, support.shape[-1]
    if dim % cells:
        raise InputError(f"expected vectors of grid x grid = {cells} cells, got {dim} numbers: change grid")
    scale = dim**0.5 if normalise else 1.0
    query_cells, means = (
        (scale * x).unflatten(-1, (dim // cells, cells)).mT for x in (query, class_means(support, labels, n_ways))
    )  # (..., q, n, c), (..., k, n, c)
    u, v = query_cells.unsqueeze(-3), means.unsqueeze(-4)  # (..., q, 1, n, c), (..., 1, k, n, c)
    first = relu((u * v.mean(-2, keepdim=True)).sum(-1)) + 1e-3  # (..., q, k, n)
    second = relu((v * u.mean(-2, keepdim=True)).sum(-1)) + 1e-3
    u, v = (l2_normalise(x - x.mean(-1, keepdim=True)) for x in (u, v))
    costs = 1 - u @ v.mT  # (..., q, k, n, n)
    first, second = (x / x.sum(-1, keepdim=True) for x in (first, second))
    return TEMPERATURE * (1 - transport_cost(first, second, costs))

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from likelyshot import InputError
from likelyshot.functional.scores import cosines, l2_normalise
from likelyshot.methods.deepemd import deepemd
from made_tasks import ragged


def by_linear_programming(u, v):
    """The score of two images, cells x channels, written from the paper."""
    r = np.maximum(u @ v.mean(0), 0) + 1e-3
    c = np.maximum(v @ u.mean(0), 0) + 1e-3
    r, c = r / r.sum(), c / c.sum()
    centred = [x - x.mean(1, keepdims=True) for x in (u, v)]
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in centred)
    cost, n = 1 - a @ b.T, len(u)
    rows = [np.kron(np.eye(n)[i], np.ones(n)) for i in range(n)] + [np.kron(np.ones(n), np.eye(n)[j]) for j in range(n)]
    found = linprog(cost.ravel(), A_eq=np.array(rows)[:-1], b_eq=np.concatenate([r, c])[:-1], method="highs")
    return 12.5 * (1 - found.fun)


@pytest.mark.parametrize("grid", [2, 3])
def test_linear_programming_agrees(grid):
    dim = 5 * grid * grid
    support, labels, query = ragged(0, (2, 1, 3), (2, 1, 1), dim=dim)
    scores = deepemd(support, labels, query, n_ways=3, grid=grid)
    maps = [l2_normalise(x) * dim**0.5 for x in (support, query)]
    for way in range(3):
        v = maps[0][labels == way].mean(0).view(5, -1).T.numpy()
        for q in range(4):
            u = maps[1][q].view(5, -1).T.numpy()
            assert scores[q, way].item() == pytest.approx(by_linear_programming(u, v), abs=1e-8)


def test_one_cell_is_the_cosine_of_centred_vectors():
    support, labels, query = ragged(1, (1, 1, 1), (2, 2, 2))
    x, f = (l2_normalise(z) - l2_normalise(z).mean(-1, keepdim=True) for z in (support, query))
    torch.testing.assert_close(deepemd(support, labels, query, n_ways=3), 12.5 * cosines(f, x))


def test_the_places_of_cells_do_not_matter():
    support, labels, query = ragged(2, (1, 1, 1), (1, 1, 1), dim=20)
    order = torch.tensor([2, 0, 3, 1])
    moved = query.view(-1, 5, 4)[..., order].flatten(1)
    one, other = (deepemd(support, labels, f, n_ways=3, grid=2) for f in (query, moved))
    torch.testing.assert_close(one, other)


def test_gradients_come_from_the_duals():
    support, labels, query = ragged(3, (1, 2), (1, 1), dim=12)
    assert torch.autograd.gradcheck(
        lambda s, q: deepemd(s, labels, q, n_ways=2, grid=2), (support.requires_grad_(), query.requires_grad_())
    )


def test_what_cannot_be_is_told(monkeypatch):
    with pytest.raises(InputError, match="expected vectors of grid x grid = 25 cells, got 12 numbers"):
        deepemd(*ragged(0), n_ways=4, grid=5)
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(InputError, match=r"needs POT, which is not installed: pip install 'likelyshot\[emd\]'"):
        deepemd(*ragged(0), n_ways=4, grid=2)

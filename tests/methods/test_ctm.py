from __future__ import annotations

import pytest
import torch

from likelyshot import InputError
from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.ctm import ctm
from likelyshot.methods.protonet import protonet
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


@pytest.mark.parametrize("grid", [1, 2])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_a_loop_over_classes_and_cells(shots, queries, grid):
    support, labels, query = ragged(0, shots, queries)
    head = random_head("ctm", width=3, grid=grid)
    w, n = head(support), grid * grid
    x, f = ((l2_normalise(z) * 12**0.5).view(-1, 12 // n, n) for z in (support, query))
    scores = ctm(support, labels, query, n_ways=len(shots), head=head)
    apart = torch.zeros(len(f), len(shots), dtype=torch.float64)
    for cell in range(n):
        said = (x[..., cell] @ w["concentrate"].T + w["concentrate_bias"]).relu()
        classes = torch.stack(
            [said[labels == way].mean(0) if shots[way] else torch.zeros(3).double() for way in range(len(shots))]
        )
        both = torch.cat([classes.mean(0), classes.amax(0)])
        mask = 3 * (w["project"] @ both + w["project_bias"]).softmax(0)
        own, asked = (mask * (z[..., cell] @ w["reshape"].T) for z in (x, f))
        for way in range(len(shots)):
            others = own[labels == way] if shots[way] else torch.zeros(1, 3, dtype=torch.float64)
            apart[:, way] += (asked[:, None] - others).square().sum(-1).mean(1) / 12
    torch.testing.assert_close(scores, -apart, rtol=1e-8, atol=1e-8)


def test_with_an_even_mask_it_is_the_nearest_prototype_of_reshaped_features():
    support, labels, query = ragged(1, (1, 1, 1), (2, 2, 2))
    head = build("ctm", {"width": 6}, dim=12).double()
    x, f = (l2_normalise(z) @ head(support)["reshape"].T for z in (support, query))
    scores = ctm(support, labels, query, n_ways=3, head=head)
    torch.testing.assert_close(scores, protonet(x, labels, f, n_ways=3))


def test_features_that_are_no_map_are_refused():
    with pytest.raises(InputError, match="expected features of grid x grid = 9 cells, got 12 numbers"):
        build("ctm", {"grid": 3}, dim=12)


def test_gradients():
    check_gradients(ctm, ragged(2, (1, 2), (1, 1), dim=4), random_head("ctm", dim=4, width=2, grid=2), 2)

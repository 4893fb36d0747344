from __future__ import annotations

import pytest
import torch
from torch.nn.functional import softplus

from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.siamese import siamese
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_a_loop_over_pairs(shots, queries, squared):
    support, labels, query = ragged(0, shots, queries)
    head = random_head("siamese", squared=squared)
    scores = siamese(support, labels, query, n_ways=len(shots), head=head)
    scale = softplus(next(head.parameters()))
    x, f = l2_normalise(support), l2_normalise(query)
    for way in range(len(shots)):
        own = x[labels == way] if shots[way] else torch.zeros(1, 12, dtype=torch.float64)
        apart = (f[:, None] - own).abs()
        expected = -((apart.square() if squared else apart) * scale).sum(-1).mean(1)
        torch.testing.assert_close(scores[:, way], expected, rtol=1e-9, atol=1e-9)


def test_equal_weights_of_squares_at_one_shot_are_euclidean():
    support, labels, query = ragged(1, (1, 1, 1), (3, 2, 4))
    scores = siamese(support, labels, query, n_ways=3, head=build("siamese", {"squared": True}, dim=12))
    torch.testing.assert_close(scores, euclidean(support, labels, query, n_ways=3), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("squared", [False, True])
def test_gradients(squared):
    check_gradients(siamese, ragged(2, (1, 2), (1, 1), dim=4), random_head("siamese", dim=4, squared=squared), 2)

"""What PT-MAP and protoLP share: class shares that are uniform, estimated or given."""

from __future__ import annotations

import pytest
import torch

from likelyshot.methods.protolp import protolp
from likelyshot.methods.pt_map import pt_map
from made_tasks import skewed

BOTH = pytest.mark.parametrize("method", [pt_map, protolp])


@BOTH
@pytest.mark.parametrize("marginals", ["uniform", "estimated"])
def test_extremes_stay_finite(method, marginals):
    support, labels, query = skewed(3, ways=20, shots=50, queries=21, dim=8)
    assert method(support, labels, query, n_ways=20, marginals=marginals).isfinite().all()
    support, labels, query = skewed(4)
    same = query[:1].expand(24, -1)
    for dtype in (torch.float32, torch.float64):
        scores = method(support.to(dtype), labels, same.to(dtype), n_ways=4, marginals=marginals)
        torch.testing.assert_close(scores, scores[:1].expand_as(scores))
        assert scores.isfinite().all()
    assert method(support, labels, query[:1], n_ways=4, marginals=marginals).isfinite().all()
    assert method(support, labels, support, n_ways=4, marginals=marginals).isfinite().all()
    assert method(support * 1e200, labels, query * 1e-300, n_ways=4, marginals=marginals).isfinite().all()
    scores = method(torch.zeros_like(support), labels, torch.zeros_like(query), n_ways=4, marginals=marginals)
    torch.testing.assert_close(scores, torch.full_like(scores, 0.25).log())


@BOTH
def test_a_class_without_support_or_share_stays_finite(method):
    task = skewed(2, shots=[2, 0, 2, 2])
    for marginals in ("uniform", "estimated"):
        assert method(*task, n_ways=4, marginals=marginals).isfinite().all()
    scores = method(*task, n_ways=4, marginals=[1.0, 0.0, 1.0, 1.0])
    assert scores.isfinite().all()
    assert (scores.argmax(-1) != 1).all()

from __future__ import annotations

import math

import torch

from likelyshot.functional.entropies import entropy_slope
from likelyshot.functional.prototype_descent import descend_prototypes
from likelyshot.functional.scores import class_means, squared_distances


def sample(seed, *batch, ways=3, shots=2, queries=7, dim=6):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(ways).repeat_interleave(shots)
    support = torch.randn(*batch, ways * shots, dim, generator=generator, dtype=torch.float64)
    return support, labels, torch.randn(*batch, queries, dim, generator=generator, dtype=torch.float64)


def test_a_loss_of_no_query_is_the_cross_entropy_of_the_support():
    support, labels, query = sample(0)
    w = class_means(support, labels, 3).requires_grad_()
    optimiser = torch.optim.Adam([w], lr=0.01)
    for _ in range(40):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(-1.5 * torch.cdist(support, w) ** 2, labels).backward()
        optimiser.step()
    found = descend_prototypes(support, labels, query, 3, torch.zeros_like, 3.0, 40, 0.01)
    torch.testing.assert_close(found, -1.5 * torch.cdist(query, w.detach()) ** 2, rtol=1e-9, atol=1e-9)


def test_no_step_is_the_nearest_prototype_exactly():
    support, labels, query = sample(1, 2)
    nearest = -2.5 * squared_distances(query, class_means(support, labels, 3))
    assert torch.equal(descend_prototypes(support, labels, query, 3, entropy_slope, 5.0, 0, 0.01), nearest)


def test_leading_dimensions_of_support_labels_and_query_broadcast():
    support, labels, query = sample(2, 2, 1)[0], torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2]]), sample(3, 2)[2]
    together = descend_prototypes(support, labels, query, 3, entropy_slope, 5.0, 10, 0.01)
    assert together.shape == (2, 2, 7, 3)
    for i in range(2):
        for j in range(2):
            alone = descend_prototypes(support[i, 0], labels[j], query[j], 3, entropy_slope, 5.0, 10, 0.01)
            torch.testing.assert_close(together[i, j], alone, rtol=1e-11, atol=1e-11)


def test_the_query_slope_gets_log_probabilities_of_the_queries_above_the_floor():
    support, labels, query = sample(4)
    seen = []

    def spy(log_p):
        seen.append(log_p.clone())
        return torch.zeros_like(log_p)

    descend_prototypes(support, labels, query, 3, spy, 1e6, 1, 0.01)
    floor = math.log(torch.finfo(torch.float64).tiny)
    expected = (-5e5 * torch.cdist(query, class_means(support, labels, 3)) ** 2).log_softmax(-1).mT
    assert len(seen) == 1
    assert (expected < floor).any()
    torch.testing.assert_close(seen[0], expected.clamp_min(floor).unsqueeze(0))

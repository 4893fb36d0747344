from __future__ import annotations

import torch

from likelyshot.methods.entropy_min import entropy_min
from made_tasks import RAGGED, descended, ragged


def oracle(*task, **options):
    return descended(*task, query_loss=lambda p: -(p * p.log()).sum(1).mean(), **options)


def test_equals_the_loss_by_autograd():
    for seed, (shots, queries) in enumerate(RAGGED):
        support, labels, query = ragged(seed, shots, queries)
        scores = entropy_min(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
        torch.testing.assert_close(scores, oracle(support, labels, query, len(shots)), rtol=1e-9, atol=1e-9)


def test_queries_become_more_certain():
    inputs = ragged(2)
    entropies = []
    for steps in (0, 25, 200):
        p = entropy_min(*inputs, n_ways=4, steps=steps).softmax(-1)
        entropies.append(-(p * p.log()).sum(-1).mean())
    assert entropies[0] > entropies[1] > entropies[2]


def test_defaults_are_25_steps_of_5e_5():
    inputs = ragged(3)
    expected = oracle(*inputs, 4, steps=25, learning_rate=5e-5)
    torch.testing.assert_close(entropy_min(*inputs, n_ways=4), expected, rtol=1e-9, atol=1e-9)

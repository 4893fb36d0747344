from __future__ import annotations

import torch

from likelyshot.methods.tim import tim
from made_tasks import RAGGED, descended, ragged


def negative_information(p):
    mean = p.mean(0)
    return (mean * mean.log()).sum() - (p * p.log()).sum(1).mean()


def oracle(*task, **options):
    return descended(*task, query_loss=negative_information, **options)


def test_equals_the_loss_by_autograd():
    for seed, (shots, queries) in enumerate(RAGGED):
        support, labels, query = ragged(seed, shots, queries)
        scores = tim(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
        torch.testing.assert_close(scores, oracle(support, labels, query, len(shots)), rtol=1e-9, atol=1e-9)


def test_equals_the_loss_by_autograd_with_the_paper_parameters():
    support, labels, query = ragged(2)
    expected = oracle(support, labels, query, 4, steps=1000, learning_rate=1e-4)
    torch.testing.assert_close(tim(support, labels, query, n_ways=4), expected, rtol=1e-8, atol=1e-8)


def test_single_precision_is_near_double():
    support, labels, query = ragged(2)
    single = tim(support.float(), labels, query.float(), n_ways=4, steps=100)
    double = tim(support, labels, query, n_ways=4, steps=100)
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


def test_the_information_of_the_queries_grows():
    inputs = ragged(2)
    found = []
    for steps in (0, 30, 200):
        p = tim(*inputs, n_ways=4, steps=steps).softmax(-1)
        mean = p.mean(0)
        found.append(((p * p.log()).sum(-1).mean() - (mean * mean.log()).sum()).item())
    assert found[0] < found[1] < found[2]

from __future__ import annotations

import pytest
import torch

from likelyshot.methods.alpha_tim import alpha_tim
from likelyshot.methods.binding import parameters_of
from likelyshot.methods.tim import tim
from made_tasks import RAGGED, descended, ragged


def oracle(*task, alpha, **options):
    def entropy(p):
        return (1 - (p**alpha).sum(-1)) / (alpha - 1)

    return descended(*task, query_loss=lambda p: entropy(p).mean() - entropy(p.mean(0)), **options)


@pytest.mark.parametrize(("seed", "alpha"), [(0, 2.0), (1, 7.0), (2, 0.5), (3, 1.3)])
def test_equals_the_loss_by_autograd(seed, alpha):
    for shots, queries in RAGGED:
        support, labels, query = ragged(seed, shots, queries)
        scores = alpha_tim(support, labels, query, n_ways=len(shots), alpha=alpha, steps=25, learning_rate=1e-3)
        expected = oracle(support, labels, query, len(shots), alpha=alpha)
        torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_parameters_are_those_of_the_paper():
    expected = {"alpha": None, "tau": 15.0, "steps": 1000, "learning_rate": 1e-4, "normalise": True}
    assert parameters_of(alpha_tim) == expected


def test_alpha_of_one_is_tim_exactly_and_its_limit():
    inputs = ragged(3)
    few = {"n_ways": 4, "steps": 100}
    plain = tim(*inputs, **few)
    assert torch.equal(alpha_tim(*inputs, **few, alpha=1.0), plain)
    assert not torch.allclose(alpha_tim(*inputs, **few, alpha=1.1), plain, atol=1e-4)
    torch.testing.assert_close(alpha_tim(*inputs, **few, alpha=1 + 1e-9), plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shots", "alpha"), [((1,) * 4, 2.0), ((4,) * 4, 2.0), ((5,) * 4, 7.0), ((9, 1, 5, 5), 7.0)])
def test_alpha_follows_the_shots(shots, alpha):
    inputs = ragged(4, shots)
    chosen = alpha_tim(*inputs, n_ways=4, steps=50)
    assert torch.equal(chosen, alpha_tim(*inputs, n_ways=4, alpha=alpha, steps=50))
    assert not torch.equal(chosen, alpha_tim(*inputs, n_ways=4, alpha=9 - alpha, steps=50))


@pytest.mark.parametrize("alpha", [2.0, 7.0])
def test_the_information_of_the_queries_grows(alpha):
    inputs = ragged(2)
    found = []
    for steps in (0, 30, 200):
        p = alpha_tim(*inputs, n_ways=4, alpha=alpha, steps=steps).softmax(-1)
        found.append((((p**alpha).sum(-1).mean() - (p.mean(0) ** alpha).sum()) / (alpha - 1)).item())
    assert found[0] < found[1] < found[2]

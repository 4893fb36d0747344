from __future__ import annotations

import pytest
import torch

from likelyshot.methods.baseline_pp import baseline_pp
from likelyshot.methods.cosine import cosine
from made_tasks import RAGGED, ragged


def oracle(support, labels, query, ways, tau=15.0, steps=25, learning_rate=1e-3):
    """One task, the cosine of torch, autograd, and Adam of torch; a class without support keeps the score 0."""
    support = support / support.norm(dim=1, keepdim=True)
    present = [k for k in range(ways) if (labels == k).any()]
    w = torch.stack([support[labels == k].mean(0) for k in present]).requires_grad_()

    def logits(z):
        scores = torch.zeros(len(z), ways, dtype=torch.float64)
        cosine = torch.nn.functional.cosine_similarity(z[:, None], w[None], dim=-1)
        return scores.index_copy(1, torch.tensor(present), tau * cosine)

    optimiser = torch.optim.Adam([w], lr=learning_rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits(support), labels).backward()
        optimiser.step()
    return logits(query).detach()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_equals_the_loss_by_autograd(seed, shots, queries):
    support, labels, query = ragged(seed, shots, queries)
    scores = baseline_pp(support, labels, query, n_ways=len(shots), steps=25, learning_rate=1e-3)
    expected = oracle(support, labels, query, len(shots))
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_defaults_are_100_steps_of_1e_3():
    inputs = ragged(3)
    expected = oracle(*inputs, 4, steps=100, learning_rate=1e-3)
    torch.testing.assert_close(baseline_pp(*inputs, n_ways=4), expected, rtol=1e-9, atol=1e-9)


def test_scores_are_bounded_by_tau_and_do_not_depend_on_the_other_queries():
    support, labels, query = ragged(4)
    scores = baseline_pp(support, labels, query, n_ways=4, tau=3.0)
    assert scores.abs().max() <= 3
    torch.testing.assert_close(scores[:2], baseline_pp(support, labels, query[:2], n_ways=4, tau=3.0))


def test_a_class_without_direction_keeps_the_score_zero():
    support = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    scores = baseline_pp(support, torch.tensor([0, 0, 1]), support, n_ways=3)
    assert scores[:, [0, 2]].tolist() == [[0, 0]] * 3
    assert scores[2, 1] > 14


def test_no_step_is_the_cosine_to_the_prototype():
    support, labels, query = ragged(4)
    scores = baseline_pp(support, labels, query, n_ways=4, steps=0, tau=1.0)
    torch.testing.assert_close(scores, cosine(support, labels, query, n_ways=4))

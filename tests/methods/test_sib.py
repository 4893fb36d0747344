from __future__ import annotations

import sys

import pytest
import torch

from likelyshot import InputError
from likelyshot.functional.scores import class_means, cosines, l2_normalise
from likelyshot.heads import build
from likelyshot.methods.sib import sib, slopes
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head


@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_without_predicted_gradients_it_is_cosine(shots, queries):
    support, labels, query = ragged(0, shots, queries)
    head = build("sib", {"ways": len(shots)}, dim=12)
    expected = 10 * cosines(query, class_means(l2_normalise(support), labels, len(shots)))
    torch.testing.assert_close(sib(support, labels, query, n_ways=len(shots), head=head), expected)


def test_steps_by_autograd():
    support, labels, query = ragged(1, (2, 1, 3), (3, 2, 4))
    head = random_head("sib", ways=3)
    w, f = head(support), l2_normalise(query)
    theta = w["scale"] * class_means(l2_normalise(support), labels, 3)
    for _ in range(3):
        theta = theta.detach().requires_grad_()
        logits = w["factor"] * f @ (theta / theta.norm(dim=1, keepdim=True)).T
        (logits * slopes(w, logits).detach()).sum().backward()
        theta = theta - 0.05 * 75 / len(f) * theta.grad
    expected = w["factor"] * f @ (theta / theta.norm(dim=1, keepdim=True)).T
    scores = sib(support, labels, query, n_ways=3, head=head, eta=0.05)
    torch.testing.assert_close(scores, expected.detach(), rtol=1e-8, atol=1e-8)


def test_the_gradient_of_the_true_cross_entropy_makes_a_true_step(monkeypatch):
    support, labels, query = ragged(2, (1, 1, 1), (4, 4, 4))
    truth = torch.eye(3, dtype=torch.float64).repeat_interleave(4, 0)
    monkeypatch.setattr(sys.modules["likelyshot.methods.sib"], "slopes", lambda w, logits: logits.softmax(-1) - truth)
    head = build("sib", {"ways": 3}, dim=12)

    def loss(scores):
        return -(truth * scores.log_softmax(-1)).sum()

    before, after = (loss(sib(support, labels, query, n_ways=3, head=head, steps=steps, eta=1e-4)) for steps in (0, 1))
    theta = class_means(l2_normalise(support), labels, 3).requires_grad_()
    start = loss(10 * l2_normalise(query) @ (theta / theta.norm(dim=1, keepdim=True)).T)
    start.backward()
    assert start.item() == pytest.approx(before.item(), rel=1e-6)
    slope = -1e-4 * 75 / 12 * theta.grad.square().sum().item()
    assert (after - before).item() == pytest.approx(slope, rel=2e-2)


def test_other_numbers_of_classes_are_refused():
    with pytest.raises(InputError, match="expected 5 classes, as the head of sib was trained on, got 4"):
        sib(*ragged(0), n_ways=4, head=build("sib", {}, dim=12))


def test_gradients():
    check_gradients(sib, ragged(3, (1, 2), (2, 1), dim=3), random_head("sib", dim=3, ways=2, width=2), 2, eta=0.05)

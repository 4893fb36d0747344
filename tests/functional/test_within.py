from __future__ import annotations

import pytest
import torch

from likelyshot.functional.scores import one_hot
from likelyshot.functional.within import discounted_directions, discounted_products


def random(rows, dim, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("rows", "dim"), [(9, 5), (6, 20)])
def test_equals_the_inverse_of_the_scatter(rows, dim):
    y, labels, prior = random(rows, dim), torch.arange(rows) % 3, 0.7
    scatter = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(rows):
        deviation = y[i] - y[labels == labels[i]].mean(0)
        scatter += torch.outer(deviation, deviation)
    w = discounted_directions(y, one_hot(labels, 3, y.dtype).mT, prior)
    expected = torch.linalg.inv(scatter / prior + torch.eye(dim, dtype=torch.float64))
    assert len(w) == min(rows, dim)
    torch.testing.assert_close(torch.eye(dim, dtype=torch.float64) - w.T @ w, expected)


def test_single_examples_have_no_scatter():
    y = random(3, 4)
    assert not discounted_directions(y, torch.eye(3, dtype=torch.float64), 0.5).any()


def test_tasks_do_not_mix():
    y, known = random(8, 5).view(2, 4, 5), one_hot(torch.tensor([0, 0, 1, 1]), 2, torch.float64).mT
    both = discounted_directions(y, known, 0.5)
    torch.testing.assert_close(both[1], discounted_directions(y[1], known, 0.5))


def test_inner_products_in_the_metric_are_those_of_the_coordinates():
    y, known = random(24, 9).view(2, 12, 9), one_hot(torch.tensor([0, 0, 1, 1, 1, 3]), 4, torch.float64).mT
    w = discounted_directions(y[:, :6], known, 0.25)
    metric = torch.eye(9, dtype=torch.float64) - w.mT @ w
    torch.testing.assert_close(discounted_products(y @ y.mT, known, 0.25), y @ metric @ y.mT)

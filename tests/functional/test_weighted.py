from __future__ import annotations

import torch

from likelyshot.functional.weighted import closeness, move_to_means


def test_closeness_orders_as_distances_do():
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(2, 9, 4, generator=generator, dtype=torch.float64)
    weights = torch.randn(2, 3, 9, generator=generator, dtype=torch.float64)
    distance = torch.cdist(weights @ samples, samples) ** 2
    expected = samples.square().sum(-1).unsqueeze(-2) - distance
    torch.testing.assert_close(closeness(samples @ samples.mT, weights), expected)


def test_an_empty_class_stays():
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 2.0]])
    known, p = torch.tensor([[1.0], [0.0]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    moved = move_to_means(weights, known, p, 0.2)
    torch.testing.assert_close(moved, torch.tensor([[0.45, 0.45, 0.1], [0.0, 0.0, 2.0]]))

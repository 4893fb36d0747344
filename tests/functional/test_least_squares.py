from __future__ import annotations

import torch

from likelyshot.functional.least_squares import ridge_weights


def test_both_sides_of_the_normal_equations_agree_and_the_gradient_vanishes():
    generator = torch.Generator().manual_seed(0)
    for rows, dim in ((3, 8), (8, 3), (5, 5)):
        x = torch.randn(2, rows, dim, generator=generator, dtype=torch.float64)
        y = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
        weights = ridge_weights(x, y, 0.7)
        assert weights.shape == (2, dim, 4)
        residual = x.mT @ (x @ weights - y) + 0.7 * weights
        torch.testing.assert_close(residual, torch.zeros_like(residual), rtol=0, atol=1e-10)

from __future__ import annotations

import torch
from scipy.optimize import minimize

from likelyshot.functional.support_vectors import crammer_singer, project_rows


def test_the_projection_is_the_nearest_point_of_the_simplex():
    generator = torch.Generator().manual_seed(0)
    for row in torch.randn(20, 4, generator=generator, dtype=torch.float64) * 2:
        found = project_rows(row, 1.5)
        assert (found >= 0).all()
        torch.testing.assert_close(found.sum(), torch.tensor(1.5, dtype=torch.float64))
        best = minimize(
            lambda b, row=row: ((b - row.numpy()) ** 2).sum(),
            [0.375] * 4,
            bounds=[(0, None)] * 4,
            constraints={"type": "eq", "fun": lambda b: b.sum() - 1.5},
            options={"ftol": 1e-14},
        )
        torch.testing.assert_close(found, torch.from_numpy(best.x), rtol=1e-5, atol=1e-5)


def test_the_dual_meets_the_conditions_of_optimality():
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(3, 10, 30, generator=generator, dtype=torch.float64)
    gram = x @ x.mT
    targets = torch.eye(4, dtype=torch.float64)[torch.arange(10) % 4].expand(3, 10, 4)
    dual = crammer_singer(gram, targets, 2.0)
    b = 2.0 * targets - dual
    torch.testing.assert_close(dual.sum(-1), torch.zeros(3, 10, dtype=torch.float64), rtol=0, atol=1e-9)
    assert (b >= 0).all()
    slope = targets - gram @ dual  # of b: lowest, and equal, where b is positive
    lowest = slope.amin(-1, keepdim=True)
    assert (((slope - lowest) * b).abs() < 1e-8).all()

from __future__ import annotations

import torch

from likelyshot.functional.span import support_coordinates


def test_inner_products_with_the_support_are_kept():
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(3, n, 20, generator=generator, dtype=torch.float64) for n in (6, 4))
    x = support_coordinates(support, query)
    centre = support.mean(-2, keepdim=True)
    samples = torch.cat([support, query], -2) - centre
    torch.testing.assert_close(x @ x[..., :6, :].mT, samples @ samples[..., :6, :].mT)


def test_equal_examples_span_nothing():
    support, query = torch.ones(3, 5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    assert torch.equal(support_coordinates(support, query), torch.zeros(8, 3, dtype=torch.float64))

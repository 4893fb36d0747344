from __future__ import annotations

import pytest
import torch

from likelyshot.functional.scores import one_hot
from likelyshot.functional.within import discount_within


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 1, 1, 2, 0], [1, 1, 1, 1]])
@pytest.mark.parametrize("prior", [0.1, 1.0])
def test_equals_the_inverse_in_feature_space(labels, prior):
    z = torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor(labels)
    scatter = torch.zeros(5, 5, dtype=torch.float64)
    for k in set(labels.tolist()):
        own = z[: len(labels)][labels == k]
        scatter += (own - own.mean(0)).T @ (own - own.mean(0))
    expected = z @ torch.linalg.inv(scatter / prior + torch.eye(5, dtype=torch.float64)) @ z.T
    found = discount_within(z @ z.T, one_hot(labels, 3, z.dtype).mT, prior)
    torch.testing.assert_close(found, expected)


def test_one_example_per_class_changes_nothing():
    z = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gram = z @ z.mT
    torch.testing.assert_close(discount_within(gram, torch.eye(3, dtype=torch.float64), 0.5), gram)

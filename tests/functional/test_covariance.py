"""The covariance within base classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from likelyshot.functional.covariance import within_class_covariance


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_it_is_the_mean_of_the_class_covariances_of_cl2n_features(dtype):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (60,), generator=generator)
    vectors = torch.rand(60, 6, generator=generator).to(dtype)
    x = vectors.double().numpy()
    x = x - x.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.mean([np.cov(x[labels.numpy() == k].T, bias=True) for k in range(4)], axis=0)
    np.testing.assert_allclose(within_class_covariance(vectors, labels), expected, atol=1e-12)


def test_a_class_of_one_is_left_out_and_nothing_but_such_gives_zeros():
    vectors = torch.tensor([[3.0, 0.0], [3.0, 1.0], [0.0, 4.0]])
    alone = within_class_covariance(vectors, torch.tensor([0, 0, 1]))
    x = torch.nn.functional.normalize(vectors.double() - vectors.double().mean(0), dim=-1)[:2]
    torch.testing.assert_close(alone, (x - x.mean(0)).T @ (x - x.mean(0)) / 2)
    assert within_class_covariance(vectors, torch.tensor([0, 1, 2])).tolist() == [[0, 0], [0, 0]]

from __future__ import annotations

import torch

from likelyshot.encoders.networks import build


def test_it_is_a_linear_map_of_unit_vectors_cut_at_zero():
    head, x = build("relu_head", {"in_dim": 6, "dim": 4}), torch.randn(5, 6)
    head.linear.bias.data = torch.tensor([0.1, -0.1, 0.2, 0.0])
    for row, out in zip(x, head(x), strict=True):
        unit = row / (row**2).sum().sqrt()
        products = [sum((weights * unit).tolist()) for weights in head.linear.weight]
        expected = [max(0.0, product + bias) for product, bias in zip(products, head.linear.bias.tolist(), strict=True)]
        torch.testing.assert_close(out, torch.tensor(expected))


def test_rectified_inputs_keep_what_is_negative():
    head, x = build("relu_head", {"in_dim": 3, "dim": 6, "rectify": True}), torch.randn(5, 3)
    head.linear.weight.data = torch.eye(6)
    unit = torch.nn.functional.normalize(x)
    torch.testing.assert_close(head(x)[:, :3] - head(x)[:, 3:], unit)
    assert (head(x) >= 0).all()


def test_the_length_of_a_vector_does_not_matter():
    head, x = build("relu_head", {"in_dim": 6}), torch.rand(5, 6)
    torch.testing.assert_close(head(1000 * x), head(x))


def test_a_zero_vector_has_finite_features_and_gradients():
    for rectify in (False, True):
        head, x = build("relu_head", {"in_dim": 6, "rectify": rectify}), torch.zeros(2, 6, requires_grad=True)
        head(x).sum().backward()
        assert x.grad.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in head.parameters())


def test_autocast_gives_single_precision():
    head = build("relu_head", {"in_dim": 6})
    with torch.autocast("cpu", torch.bfloat16):
        out = head(torch.rand(2, 6))
    assert out.dtype == torch.float32
    assert head.half()(torch.rand(2, 6).half()).dtype == torch.float32


def test_about_half_of_the_units_are_on_at_the_start():
    features = build("relu_head", {"in_dim": 100, "dim": 400})(torch.rand(50, 100))
    assert 0.4 < (features > 0).float().mean() < 0.6

from __future__ import annotations

import pytest
import torch

from likelyshot.encoders.networks import DropBlock, build

ONES = torch.ones(64, 8, 20, 20)


def dropped(layer, x=ONES, seed=0):
    torch.manual_seed(seed)
    return layer(x)


def test_zeros_are_whole_squares_inside_the_map():
    zero = dropped(DropBlock(0.1, 5)) == 0
    assert zero.any()
    covered = torch.zeros_like(zero)
    for top in range(16):
        for left in range(16):
            square = zero[:, :, top : top + 5, left : left + 5].all(-1).all(-1)
            covered[:, :, top : top + 5, left : left + 5] |= square[:, :, None, None]
    assert torch.equal(covered, zero)


@pytest.mark.parametrize("progress", [0.5, 1.0])
def test_the_share_that_is_dropped_grows_with_progress(progress):
    layer = DropBlock(0.1, 5)
    layer.progress = progress
    share = (dropped(layer, ONES.repeat(16, 1, 1, 1)) == 0).float().mean().item()
    gamma = 0.1 * progress / 25 * 400 / 256
    # a pixel in the middle stays if none of the 25 squares over it begins; those near the border have fewer
    starts = torch.tensor([min(i, 15) - max(i - 4, 0) + 1 for i in range(20)], dtype=torch.float64)
    expected = 1 - ((1 - gamma) ** torch.outer(starts, starts)).mean().item()
    assert share == pytest.approx(expected, rel=0.04)
    assert share < 0.1 * progress


def test_the_sum_is_kept():
    torch.testing.assert_close(dropped(DropBlock(0.3, 3)).sum(), ONES.sum(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("shape", [(4, 4), (2, 2), (1, 1), (3, 6)])
def test_on_a_small_map_squares_are_as_large_as_fits(shape):
    out = dropped(DropBlock(0.3, 5), torch.ones(200, 50, *shape))
    side = min(shape)
    assert (out == 0).any()
    assert (out != 0).any()
    if shape[0] == shape[1]:  # whole channels
        assert torch.equal((out == 0).flatten(2).any(-1), (out == 0).flatten(2).all(-1))
        assert (out[:, :, 0, 0] == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    else:
        assert ((out == 0).sum((2, 3)) % side == 0).all()


def test_nothing_is_dropped_in_evaluation_or_at_the_start():
    layer = DropBlock(0.5, 3)
    assert layer.eval()(ONES) is ONES
    layer.train().progress = 0.0
    assert layer(ONES) is ONES


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_counts_right(dtype):
    x = torch.ones(32, 64, 10, 10, dtype=dtype)  # more values than float16 can count to
    out = dropped(DropBlock(0.1, 5), x)
    assert out.dtype == dtype
    assert out.float().mean().item() == pytest.approx(1.0, rel=0.01)


def test_no_state_hides_in_an_encoder():
    one, resumed = (build("resnet12", {"widths": [4, 4, 8, 8], "drop": 0.5}) for _ in range(2))
    images = torch.randn(4, 3, 64, 64)
    for step in range(3):
        one.set_progress(step / 4)
        one(images)
    resumed.load_state_dict(one.state_dict())
    outputs = []
    for encoder in (one, resumed):
        encoder.set_progress(3 / 4)
        torch.manual_seed(7)
        outputs.append(encoder(images))
    assert torch.equal(*outputs)
    resumed.set_progress(7)
    assert {module.progress for module in resumed.modules() if isinstance(module, DropBlock)} == {1.0}

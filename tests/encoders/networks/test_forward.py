"""Each network against its definition, written with functions over its weights."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from likelyshot.encoders.networks import build


def with_statistics(encoder, seed=0):
    """Give BatchNorms something to do."""
    generator = torch.Generator().manual_seed(seed)
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor, low in ((module.weight, 0.5), (module.running_var, 0.5), (module.bias, -0.5)):
                tensor.data = low + torch.rand(tensor.shape, generator=generator)
            module.running_mean = torch.rand(module.running_mean.shape, generator=generator) - 0.5
    return encoder.eval().double()


def norm(x, s, key):
    scale = s[f"{key}.weight"] / (s[f"{key}.running_var"] + 1e-5).sqrt()
    shift = s[f"{key}.bias"] - s[f"{key}.running_mean"] * scale
    return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


def conv(x, s, key, stride=1):
    weight = s[f"{key}.weight"]
    return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)


def mean(x):
    return x.flatten(2).sum(2) / x[0, 0].numel()


def conv4(x, s):
    for place in (0, 4, 8, 12):
        x = F.max_pool2d(norm(conv(x, s, f"layers.{place}"), s, f"layers.{place + 1}").relu(), 2)
    return mean(x)


def resnet12(x, s):
    for block in range(4):
        out, at = x, f"blocks.{block}"
        for place in (0, 3, 6):
            out = norm(conv(out, s, f"{at}.branch.{place}"), s, f"{at}.branch.{place + 1}")
            out = F.leaky_relu(out, 0.1) if place < 6 else out
        out = out + norm(conv(x, s, f"{at}.shortcut.0"), s, f"{at}.shortcut.1")
        x = F.max_pool2d(F.leaky_relu(out, 0.1), 2) if block < 3 else F.max_pool2d(out, 2).relu()
    return mean(x)


def resnet18(x, s):
    x = norm(conv(x, s, "layers.0"), s, "layers.1").relu()
    for block in range(8):
        at, stride = f"layers.{block + 3}", 2 if block in (2, 4, 6) else 1
        out = norm(conv(x, s, f"{at}.branch.0", stride), s, f"{at}.branch.1").relu()
        out = norm(conv(out, s, f"{at}.branch.3"), s, f"{at}.branch.4")
        shortcut = f"{at}.shortcut.0.weight" in s
        assert shortcut == (block in (2, 4, 6))
        x = (out + (norm(conv(x, s, f"{at}.shortcut.0", stride), s, f"{at}.shortcut.1") if shortcut else x)).relu()
    return mean(x)


def wrn(x, s):
    x = conv(x, s, "layers.0")
    for block in range(6):
        at, stride = f"layers.{block + 1}", 2 if block in (2, 4) else 1
        out = conv(norm(x, s, f"{at}.branch.0").relu(), s, f"{at}.branch.2")
        out = conv(norm(out, s, f"{at}.branch.4").relu(), s, f"{at}.branch.6", stride)
        shortcut = f"{at}.shortcut.0.weight" in s
        assert shortcut == (block in (0, 2, 4))
        x = out + (conv(x, s, f"{at}.shortcut.0", stride) if shortcut else x)
    return mean(norm(x, s, "layers.7").relu())


def densenet121(x, s):
    x, place = conv(x, s, "layers.0"), 1
    for stage, count in enumerate((1, 2, 2, 1)):
        if stage:
            x = F.avg_pool2d(conv(norm(x, s, f"layers.{place}").relu(), s, f"layers.{place + 2}"), 2)
            place += 4
        for _ in range(count):
            at = f"layers.{place}.branch"
            out = conv(norm(x, s, f"{at}.0").relu(), s, f"{at}.2")
            x = torch.cat([x, conv(norm(out, s, f"{at}.3").relu(), s, f"{at}.5")], 1)
            place += 1
    return mean(norm(x, s, f"layers.{place}").relu())


@pytest.mark.parametrize(
    ("definition", "params"),
    [
        (conv4, {"widths": [4, 6, 8, 8]}),
        (resnet12, {"widths": [4, 6, 8, 10]}),
        (resnet18, {"widths": [4, 6, 8, 10]}),
        (wrn, {"depth": 16, "widen": 2, "drop": 0.3}),
        (densenet121, {"layers": [1, 2, 2, 1], "growth": 4, "stem": 8, "drop": 0.3}),
    ],
)
def test_a_network_is_its_definition(definition, params):
    encoder = with_statistics(build(definition.__name__, params))
    images = torch.randn(3, 3, 40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(encoder(images), definition(images, encoder.state_dict()))


def test_the_end_of_resnet12_cuts_what_leaky_relu_would_let_through():
    encoder = with_statistics(build("resnet12", {"widths": [4, 6, 8, 10]}))
    encoder.blocks[3].branch[7].bias.data.fill_(-100.0)
    assert torch.equal(encoder(torch.randn(2, 3, 32, 32).double()), torch.zeros(2, 10).double())

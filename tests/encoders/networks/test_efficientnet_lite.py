from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from likelyshot.encoders.networks.efficientnet_lite import EfficientNetLite0, fold, same_padding
from likelyshot.errors import InputError

# Tan and Le 2019, table 1, as the Lite variant has it: (kernel, stride, inputs, expanded, outputs) of all 16 blocks.
BLOCKS = [
    (3, 1, 32, 32, 16),
    (3, 2, 16, 96, 24),
    (3, 1, 24, 144, 24),
    (5, 2, 24, 144, 40),
    (5, 1, 40, 240, 40),
    (3, 2, 40, 240, 80),
    (3, 1, 80, 480, 80),
    (3, 1, 80, 480, 80),
    (5, 1, 80, 480, 112),
    (5, 1, 112, 672, 112),
    (5, 1, 112, 672, 112),
    (5, 2, 112, 672, 192),
    (5, 1, 192, 1152, 192),
    (5, 1, 192, 1152, 192),
    (5, 1, 192, 1152, 192),
    (3, 1, 192, 1152, 320),
]


def made_state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    state = {}

    def add(conv: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator)
        state[f"{conv}.weight"] = weight * math.sqrt(2 / (inputs * kernel * kernel))
        state[f"{norm}.weight"] = 0.5 + torch.rand(outputs, generator=generator)
        state[f"{norm}.bias"] = torch.randn(outputs, generator=generator) / 4
        state[f"{norm}.running_mean"] = torch.randn(outputs, generator=generator) / 4
        state[f"{norm}.running_var"] = 0.5 + torch.rand(outputs, generator=generator)

    add("_conv_stem", "_bn0", 32, 3, 3)
    for i, (kernel, _, inputs, wide, outputs) in enumerate(BLOCKS):
        if wide > inputs:
            add(f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0", wide, inputs, 1)
        add(f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", wide, 1, kernel)
        add(f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2", outputs, wide, 1)
    add("_conv_head", "_bn1", 1280, 320, 1)
    return state


def unfolded(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The network as it was trained: a convolution, its normalisation, ReLU6, one after the other, in float64."""

    def layer(x, conv, norm, stride=1, groups=1):
        weight = state[f"{conv}.weight"].double()
        kernel = weight.shape[-1]
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        x = functional.conv2d(functional.pad(x, pads), weight, None, stride, groups=groups)
        mean, var, gain, bias = (
            state[f"{norm}.{n}"].double() for n in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, var, gain, bias, eps=1e-3)

    x = layer(x.double(), "_conv_stem", "_bn0", 2).clamp(0, 6)
    for i, (_, stride, inputs, wide, outputs) in enumerate(BLOCKS):
        y = x
        if wide > inputs:
            y = layer(y, f"_blocks.{i}._expand_conv", f"_blocks.{i}._bn0").clamp(0, 6)
        y = layer(y, f"_blocks.{i}._depthwise_conv", f"_blocks.{i}._bn1", stride, wide).clamp(0, 6)
        y = layer(y, f"_blocks.{i}._project_conv", f"_blocks.{i}._bn2")
        x = x + y if stride == 1 and inputs == outputs else y
    return layer(x, "_conv_head", "_bn1").clamp(0, 6).flatten(2).mean(2)


@pytest.fixture(scope="module")
def state():
    return made_state()


@pytest.mark.parametrize("size", [(64, 64), (47, 70)])
def test_folding_changes_nothing(state, size):
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    expected = unfolded(state, images)
    features = fold(state)(images)
    assert features.shape == (2, 1280)
    assert features.min() >= 0
    assert expected.std() > 0.1  # the comparison says something
    torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-4)
    last = fold(state).to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last.double(), expected, rtol=1e-4, atol=1e-4)


def test_it_has_the_published_number_of_parameters():
    counts = [p.numel() for p in EfficientNetLite0().parameters()]
    norms = sum(len(p) for name, p in EfficientNetLite0().named_parameters() if name.endswith("bias"))
    assert sum(counts) + norms + 1280 * 1000 + 1000 == 4_652_008  # with normalisations and the classifier


def test_gradients_pass():
    network = EfficientNetLite0()
    network(torch.randn(1, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@given(st.integers(1, 300), st.sampled_from([1, 3, 5]), st.sampled_from([1, 2]))
def test_padding_is_the_least_that_gives_the_length(size, kernel, stride):
    before, after = same_padding(size, kernel, stride)
    wanted = math.ceil(size / stride)

    def length(padding):
        return (size + padding - kernel) // stride + 1

    assert 0 <= before <= after <= before + 1
    assert length(before + after) == wanted or ((before, after) == (0, 0) and length(0) >= wanted)
    assert before + after == 0 or length(before + after - 1) < wanted


def test_other_weights_are_refused(state):
    with pytest.raises(InputError, match=r"_blocks\.3\._bn1\.bias"):
        fold({key: value for key, value in state.items() if key != "_blocks.3._bn1.bias"})
    with pytest.raises(InputError, match="shape"):
        fold({**state, "_conv_head.weight": torch.zeros(2, 2, 1, 1)})

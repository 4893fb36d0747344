from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional

from likelyshot.encoders.networks import NAMES, build, builder_of, check_input, describe
from likelyshot.errors import InputError

SLIM = {
    "conv4": {"widths": [4, 4, 8, 8]},
    "resnet12": {"widths": [4, 8, 8, 16]},
    "resnet18": {"widths": [4, 4, 8, 8]},
    "wrn": {"depth": 10, "widen": 1},
    "densenet121": {"layers": [1, 2, 2, 1], "growth": 4, "stem": 8},
}


def slim(name, **more):
    return build(name, {**SLIM[name], **more})


@pytest.mark.parametrize(
    ("name", "parameters", "dim"),
    [
        ("conv4", sum(9 * before * 64 + 2 * 64 for before in (3, 64, 64, 64)), 64),
        ("resnet12", 12_424_320, 640),
        # torchvision's: 11,689,512; without its classifier, and with a stem of 3 x 3 for one of 7 x 7
        ("resnet18", 11_689_512 - 513_000 - 3 * 64 * (49 - 9), 512),
        ("wrn", 36_472_784, 640),
        # torchvision's: 7,978,856; likewise, and without the BatchNorm of its stem
        ("densenet121", 7_978_856 - 1_025_000 - 3 * 64 * (49 - 9) - 128, 1024),
    ],
)
def test_the_networks_of_the_papers_have_their_sizes(name, parameters, dim):
    with torch.device("meta"):
        encoder = builder_of(name)()
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters
    assert encoder.dim == dim


@pytest.mark.parametrize("name", SLIM)
def test_the_smallest_images_are_encoded_and_no_smaller_ones(name):
    encoder = slim(name)
    side = encoder.smallest
    assert encoder(torch.rand(2, 3, side, side)).shape == (2, encoder.dim)
    check_input(name, side)
    with pytest.raises(InputError, match=f"expected images of at least {side} pixels for {name}, got {side - 1}"):
        check_input(name, side - 1)
    with pytest.raises(RuntimeError):
        encoder(torch.rand(2, 3, side - 1, side - 1))


def test_images_are_not_for_heads_nor_features_for_the_others():
    check_input("relu_head", None)
    with pytest.raises(InputError, match="relu_head takes features, got images"):
        check_input("relu_head", 84)
    with pytest.raises(InputError, match="conv4 takes images, got features"):
        check_input("conv4", None)


def test_a_checkpoint_of_an_earlier_version_names_its_channels():
    assert describe(build("conv4", {**SLIM["conv4"], "in_channels": 3})) == describe(slim("conv4"))


def test_the_side_for_an_encoder_that_is_not_there():
    with pytest.raises(InputError, match="unknown encoder 'resnet': did you mean 'resnet1"):
        check_input("resnet", 84)


def test_wrn_has_the_parameters_that_its_definition_says():
    count, before = 3 * 16 * 9, 16
    for width in (160, 320, 640):
        count += before * width  # the shortcut where the width changes
        for _ in range(4):
            count += 2 * before + 9 * before * width + 2 * width + 9 * width * width
            before = width
    assert count + 2 * before == 36_472_784


@pytest.mark.parametrize(
    ("name", "side"), [("conv4", 5), ("resnet12", 5), ("resnet18", 11), ("wrn", 21), ("densenet121", 10)]
)
def test_the_last_map_of_84_pixels_is_that_of_the_recipes(name, side):
    encoder, seen = slim(name), []
    last = encoder.blocks if name == "resnet12" else encoder.layers
    last.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    features = encoder.eval()(torch.rand(2, 3, 84, 84))
    assert seen[0] == (2, encoder.dim, side, side)
    assert features.shape == (2, encoder.dim)


@pytest.mark.parametrize("name", SLIM)
@pytest.mark.parametrize("training", [True, False])
def test_features_are_non_negative_and_not_all_zero(name, training):
    encoder = slim(name).train(training)
    features = encoder(4 * torch.randn(8, 3, 32, 32))
    assert (features >= 0).all()
    assert (features > 0).any()
    assert features.dtype == torch.float32


@pytest.mark.parametrize("name", SLIM)
def test_every_parameter_has_a_gradient(name):
    encoder = slim(name)
    encoder(torch.randn(4, 3, 32, 32)).square().sum().backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", SLIM)
def test_channels_last_changes_nothing(name):
    encoder, images = slim(name).eval(), torch.randn(2, 3, 32, 32)
    expected = encoder(images)
    encoder = encoder.to(memory_format=torch.channels_last)
    torch.testing.assert_close(encoder(images.contiguous(memory_format=torch.channels_last)), expected)


@pytest.mark.parametrize("name", SLIM)
def test_autocast_gives_nearly_the_same_features_in_single_precision(name):
    encoder, images = slim(name).eval(), torch.randn(4, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        low = encoder(images)
    assert low.dtype == torch.float32
    assert functional.cosine_similarity(low, encoder(images)).min() > 0.99
    with torch.autocast("cpu", torch.bfloat16):
        encoder.train()(images).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("name", SLIM)
def test_slim_versions_learn(name):
    encoder = slim(name)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(16) % 2
    images = torch.randn(16, 3, 16, 16, generator=generator) + 2.0 * labels.view(-1, 1, 1, 1)
    classifier = torch.nn.Linear(encoder.dim, 2)
    optimiser = torch.optim.SGD([*encoder.parameters(), *classifier.parameters()], lr=0.1, momentum=0.9)
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        loss = functional.cross_entropy(classifier(encoder(images)), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", SLIM)
def test_the_start_is_he_s(name):
    wider = {"wrn": {"widen": 2}, "densenet121": {"growth": 16, "stem": 64}}.get(name, {"widths": [32, 32, 64, 64]})
    checked = 0
    for module in slim(name, **wider).modules():
        if isinstance(module, torch.nn.Conv2d) and module.weight.numel() > 1000:
            fan = module.weight[0].numel() if name == "densenet121" else module.weight[:, 0].numel()
            assert module.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.1)
            checked += 1
    assert checked >= 3


def test_build_depends_on_the_seed_only_and_leaves_torch_s_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (build("conv4", SLIM["conv4"], seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["layers.0.weight"], other["layers.0.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_what_describe_says_builds_the_same_again(name):
    encoder = build(name, {**SLIM, "flat": {}, "identity": {"in_dim": 6}}.get(name, {"in_dim": 6, "dim": 4}))
    facts = json.loads(json.dumps(describe(encoder)))
    again = build(**facts)
    assert describe(again) == facts
    assert all(torch.equal(again.state_dict()[key], value) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("resnet1", {}, "did you mean 'resnet1[28]'"),
        ("conv4", {"width": [8] * 4}, "did you mean 'widths'"),
        ("conv4", {"widths": 8}, "a list of whole numbers for widths"),
        ("conv4", {"widths": [8, 8, 8, 8.0]}, "a list of whole numbers"),
        ("conv4", {"widths": [8, 8, 8]}, "expected 4 widths, got 3"),
        ("conv4", {"widths": [8, 8, 8, 0]}, "widths from 1 to 16,384, got"),
        ("conv4", {"widths": [8, 8, 8, 2**70]}, "widths from 1 to 16,384"),
        ("conv4", {"widths": [16_384] * 4}, "conv4 with at most 1,000,000,000 parameters, got 7,"),
        ("conv4", {"in_channels": 1}, "conv4 has no parameter 'in_channels'"),
        ("resnet12", {"dropblock_size": 3.0}, "a whole number for dropblock_size"),
        ("resnet12", {"dropblock_size": True}, "a whole number for dropblock_size"),
        ("resnet12", {"drop": None}, "a number for drop of resnet12, got None"),
        ("resnet12", {"drop": "0.1"}, "a number for drop"),
        ("resnet12", {"drop": 1}, "drop from 0 to below 1"),
        ("resnet12", {"dropblock_size": 0}, "dropblock_size from 1"),
        ("wrn", {"depth": 27}, "a depth of 6n"),
        ("wrn", {"depth": 6 * 10**9 + 4}, "from 10 to 1,000, got 6000000004"),
        ("wrn", {"widen": 1_000}, "wrn with at most 1,000,000,000 parameters"),
        ("wrn", {"drop": float("nan")}, "drop from 0"),
        ("densenet121", {"layers": [1, 1, 1]}, "expected 4 layers"),
        ("densenet121", {"layers": [1, 1, 1, 10**9]}, "layers from 1 to 200"),
        ("relu_head", {}, "needs the parameter 'in_dim'"),
        ("relu_head", {"in_dim": 4, "rectify": 1}, "true or false for rectify"),
    ],
)
def test_bad_parameters_are_refused(name, params, message):
    with pytest.raises(InputError, match=message):
        build(name, params)


@pytest.mark.parametrize("name", ["conv4", "resnet12", "resnet18"])
def test_a_grid_keeps_cells_of_the_last_map_channel_by_channel(name):
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    one, two = (build(name, {"widths": [4, 4, 8, 8], "grid": grid}, seed=1).eval() for grid in (1, 2))
    with torch.no_grad():
        pooled, cells = one(images), two(images)
    assert (one.dim, two.dim, tuple(cells.shape)) == (8, 32, (2, 32))
    torch.testing.assert_close(cells.view(2, 8, 4).mean(-1), pooled)
    side = 4 if name == "resnet18" else 2
    with pytest.raises(InputError, match=f"a grid of at most {side} cells, the side of the last map, got {side + 1}"):
        build(name, {"widths": [4, 4, 8, 8], "grid": side + 1})(images)


def test_pixels_as_they_are():
    images = torch.rand(2, 3, 4, 4)
    encoder = build("flat", {"side": 4})
    assert torch.equal(encoder(images.contiguous(memory_format=torch.channels_last)), images.view(2, 48))
    with pytest.raises(InputError, match="expected images of 4 pixels, got 5 x 5"):
        encoder(torch.rand(1, 3, 5, 5))


def test_vectors_as_they_are():
    vectors = torch.rand(3, 5)
    assert build("identity", {"in_dim": 5})(vectors) is vectors

"""Checkpoints come back bit for bit, or not at all."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import nn

from hostile import variants
from likelyshot import InputError
from likelyshot.data.files import _digest
from likelyshot.encoders import networks as encoders
from likelyshot.encoders.checkpoints import (
    FORMAT,
    Checkpoint,
    encoder_checkpoint,
    load_checkpoint,
    load_encoder,
    optimiser_state,
    restore_module,
    restore_optimiser,
    save_checkpoint,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.safetensors"


def test_tensors_and_facts_come_back(path):
    tensors = {
        "a.weight": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "a.count": torch.tensor(7),
        "b": torch.tensor([float("nan"), 1e-45], dtype=torch.float32),
        "empty": torch.empty(0, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
    }
    save_checkpoint(path, Checkpoint(tensors, {"epoch": 3, "best": 0.1, "names": ["ü"]}))
    found = load_checkpoint(path)
    assert found.facts == {"epoch": 3, "best": 0.1, "names": ["ü"]}
    assert found.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        torch.testing.assert_close(found.tensors[name], value.contiguous(), rtol=0, atol=0, equal_nan=True)
    assert found.part("a").keys() == {"weight", "count"}


@settings(max_examples=25, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**53))
def test_numbers_in_facts_are_exact(tmp_path_factory, number, count):
    file = tmp_path_factory.mktemp("c") / "c.safetensors"
    save_checkpoint(file, Checkpoint({}, {"number": number, "count": count}))
    assert load_checkpoint(file).facts == {"number": number, "count": count}


def test_damaged_and_foreign_files_are_refused(path, tmp_path):
    save_checkpoint(path, Checkpoint({"w": torch.arange(100.0)}, {}))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for data in (whole[:-1], whole[:200], whole[:4], b"", bytes(flipped)):
        path.write_bytes(data)
        with pytest.raises(
            InputError,
            match=r"expected a checkpoint of likelyshot train, but .*c.safetensors is something else or damaged",
        ):
            load_checkpoint(path)
    save_file({"w": torch.ones(2)}, path)
    with pytest.raises(InputError, match="another kind of safetensors file"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="does not exist"):
        load_checkpoint(tmp_path / "missing")
    with pytest.raises(InputError, match="a folder"):
        load_checkpoint(tmp_path)


def test_a_failed_write_leaves_the_earlier_checkpoint(path, monkeypatch):
    save_checkpoint(path, Checkpoint({"w": torch.ones(2)}, {"epoch": 1}))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        save_checkpoint(path, Checkpoint({"w": torch.zeros(2)}, {"epoch": 2}))
    assert load_checkpoint(path).facts == {"epoch": 1}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_encoder_is_rebuilt_from_its_checkpoint(path):
    encoder = encoders.build("conv4", {"widths": [4, 4, 4, 8]}, seed=3)
    encoder(torch.rand(6, 3, 16, 16))  # moves the statistics of BatchNorm
    save_checkpoint(path, encoder_checkpoint(encoder, {"epoch": 2}))
    found, checkpoint = load_encoder(path)
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(found(images), encoder.eval()(images))
    assert not found.training
    assert checkpoint.facts["epoch"] == 2
    save_checkpoint(path, Checkpoint({}, {}))
    with pytest.raises(InputError, match="the key 'encoder' is missing"):
        load_encoder(path)


def test_an_encoder_of_other_facts_is_refused_or_can_be_used(path):
    encoder = encoders.build("conv4", {"widths": [4, 4, 4, 8]}, seed=3)
    tensors = {name: value.contiguous() for name, value in encoder_checkpoint(encoder, {}).tensors.items()}
    images, refused = torch.rand(2, 3, 16, 16), 0
    for place, content in variants({"encoder": encoders.describe(encoder)}):
        text = content.decode()
        path.write_bytes(save(tensors, {FORMAT: text, "digest": _digest(tensors, text)}))
        try:
            result = load_encoder(path)[0](images)  # a grid may be too fine for the images only
        except InputError:
            refused += 1
        else:
            assert torch.equal(result, encoder.eval()(images)), place
    assert refused > 50


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": torch.ones(2, 3)}, "bias is missing instead of"),
        ({"weight": torch.ones(2, 4), "bias": torch.ones(2)}, r"weight is \(2, 4\) instead of \(2, 3\)"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(2), "extra": torch.ones(1)}, r"extra is \(1,\) instead of"),
    ],
)
def test_another_architecture_is_refused(tensors, message):
    module = nn.Linear(3, 2)
    before = module.weight.clone()
    with pytest.raises(InputError, match=message):
        restore_module(module, tensors, "x")
    assert torch.equal(module.weight, before)


OPTIMISERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True),
    "plain": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.0),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1),
}


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_an_optimiser_goes_on_exactly(make, path):
    torch.manual_seed(0)
    images = torch.rand(4, 3, 8, 8).to(memory_format=torch.channels_last)

    def start():
        torch.manual_seed(1)
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
        module = module.to(memory_format=torch.channels_last)
        return module, make([{"params": module[0].parameters()}, {"params": module[2].parameters()}])

    def steps(module, optimiser, count):
        for _ in range(count):
            optimiser.zero_grad()
            module(images).square().sum().backward()
            optimiser.step()

    straight, optimiser = start()
    steps(straight, optimiser, 3)
    broken, optimiser = start()
    steps(broken, optimiser, 2)
    tensors = {f"o.{name}": value for name, value in optimiser_state(optimiser).items()}
    tensors |= {f"m.{name}": value for name, value in broken.state_dict().items()}
    save_checkpoint(path, Checkpoint(tensors, {}))
    again, optimiser = start()
    found = load_checkpoint(path)
    restore_module(again, found.part("m"), "x")
    restore_optimiser(optimiser, found.part("o"), "x")
    steps(again, optimiser, 1)
    for name, value in straight.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_the_state_of_another_optimiser_is_refused():
    optimiser = OPTIMISERS["sgd"]([nn.Parameter(torch.ones(2))])
    for tensors in (
        {"1.momentum_buffer": torch.ones(2)},
        {"0.momentum_buffer": torch.ones(3)},
        {"x.y": torch.ones(2)},
        {"0.momentum_buffer": torch.ones(2, dtype=torch.complex64)},
        {"\N{SUPERSCRIPT TWO}.y": torch.ones(2)},
        {f"{'9' * 5000}.y": torch.ones(2)},
    ):
        with pytest.raises(InputError, match="expected the state of this optimiser"):
            restore_optimiser(optimiser, tensors, "x")

"""Half precision and large batches, as on an accelerator, forced on a CPU: another encoder, nearly the same vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.syncs import HostSyncs
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from likelyshot import Features, InputError, machine
from likelyshot.data.packaged import CHECKPOINTS
from likelyshot.encoders import networks, pretrained
from likelyshot.encoders.embed import Cache
from likelyshot.encoders.extract import extract
from likelyshot.encoders.networks.efficientnet_lite import EfficientNetLite0
from likelyshot.encoders.pretrained import ACCELERATOR_BATCH, FunctionEmbedder, open_encoder, run_on
from likelyshot.own_data.model import Model
from likelyshot.own_data.pipeline import classify, fit, open_for

NAME = "conv4_cifar_fs"


@pytest.fixture
def images(tmp_path):
    for number in range(8):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
        noise[..., number % 2] //= 4
        Image.fromarray(noise).save(path)
    return tmp_path / "images"


class Convolutions(TorchDispatchMode):
    """See in which precision convolutions are computed."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("convolution", "conv2d"):
            self.seen |= {x.dtype for x in args[:2]}
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [NAME, "efficientnet_lite0"])
@pytest.mark.parametrize(
    ("precision", "dtype", "least"), [("bf16", torch.bfloat16, 0.99), ("fp16", torch.float16, 0.9999)]
)
def test_half_precision_is_another_encoder_with_nearly_the_same_vectors(name, precision, dtype, least, tmp_path):
    full, half = open_encoder(name), open_encoder(f"{name}@{precision}")
    assert (half.name, half.dim, half.signed) == (f"{name}@{precision}", full.dim, full.signed)
    assert half.digest != full.digest
    assert Cache(tmp_path, half.digest, 1).path != Cache(tmp_path, full.digest, 1).path
    batch = [full.prepare(image) for image in pretrained._made_images()]
    with Convolutions() as used:
        vectors = half.encode(batch)
    assert used.seen == {dtype}
    expected = full.encode(batch)
    assert vectors.dtype == np.float32
    assert not np.array_equal(vectors, expected)
    cosines = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > least


def test_on_a_cpu_nothing_changes():
    plain, full = open_encoder(NAME), open_encoder(f"{NAME}@32")
    assert (full.name, full.digest, full.batch_size) == (plain.name, plain.digest, plain.batch_size)
    batch = [plain.prepare(image) for image in pretrained._made_images()]
    with Convolutions() as used:
        np.testing.assert_array_equal(plain.encode(batch), full.encode(batch))
    assert used.seen == {torch.float32}
    assert machine.half_precision("cpu") == ""


def test_an_accelerator_gets_half_precision_unless_the_name_says_otherwise(monkeypatch):
    assert machine.half_precision("cuda") == "fp16"
    monkeypatch.setattr(pretrained, "half_precision", lambda device: "fp16")
    assert open_encoder(NAME).name == f"{NAME}@fp16"
    assert open_encoder(f"{NAME}@32").name == NAME
    assert open_encoder(f"{NAME}@bf16").name == f"{NAME}@bf16"
    with pytest.raises(InputError, match="unknown encoder 'conv4_cifar_fs@16'"):
        open_encoder(f"{NAME}@16")


def test_workers_of_a_cluster_have_no_accelerator(images):
    with machine.sent_to(object()):
        with pytest.raises(InputError, match="expected the device cpu on a Ray cluster, got cuda"):
            open_encoder(NAME, "cuda")
        with pytest.raises(InputError, match="expected the device cpu on a Ray cluster, got cuda:1"):
            classify(images, images, encoder=NAME, device="cuda:1")


def counting(most):
    """An encoder that has memory for `most` items, and the sizes of the batches that it was given."""
    sizes = []

    def function(batch):
        if len(batch) > most:
            raise torch.OutOfMemoryError
        sizes.append(len(batch))
        return [[item, -item] for item in batch]

    given = {"name": "n", "digest": "d", "kind": "text", "dim": 2, "transform": lambda item: item}
    return FunctionEmbedder(function=function, **given), sizes


def test_a_batch_that_does_not_fit_is_done_in_halves():
    encoder, sizes = counting(100)
    encoder = run_on("meta", encoder, "32")  # a device that is no CPU
    assert encoder.batch_size == ACCELERATOR_BATCH
    for _ in range(2):
        vectors = encoder.encode(list(range(ACCELERATOR_BATCH)))
        np.testing.assert_array_equal(vectors, np.arange(ACCELERATOR_BATCH)[:, None] * [1, -1])
    assert sizes == [64] * 8
    with pytest.raises(InputError, match="expected memory for one item on meta, but there was too little"):
        run_on("meta", counting(0)[0], "32").encode([1, 2])


def test_single_precision_on_cuda_is_not_tf32():
    encoder, _ = counting(9)
    seen = []

    def function(batch):
        seen.append(torch.backends.cudnn.allow_tf32)
        return [[1.0, 2.0]] * len(batch)

    before = torch.backends.cudnn.allow_tf32
    run_on("meta", replace(encoder, function=function), "32").encode([1])
    assert (seen, torch.backends.cudnn.allow_tf32) == ([False], before)


class Sent:
    """Records how a tensor is copied."""

    def __init__(self):
        self.calls = []

    def pin_memory(self):
        self.calls.append("pinned")
        return self

    def to(self, device, non_blocking=False):
        self.calls.append((device, non_blocking))
        return self


def test_images_go_to_cuda_from_pinned_memory():
    for device, calls in (("cuda:1", ["pinned", ("cuda:1", True)]), ("cpu", [("cpu", False)])):
        assert machine.copied_to(device, Sent()).calls == calls
    assert machine.copied_to("meta", torch.zeros(2)).device.type == "meta"


@pytest.mark.parametrize(("name", "side"), [("efficientnet_lite0", 224), ("conv4", 84), ("resnet12", 84)])
def test_a_large_batch_is_on_the_device_and_takes_less_than_3_gigabytes(name, side):
    network = EfficientNetLite0() if name == "efficientnet_lite0" else networks.build(name, {})
    network = network.eval().half().to("meta")
    with torch.inference_mode(), HostSyncs("meta") as seen:
        pixels = machine.copied_to("meta", torch.zeros(1, 3, side, side, dtype=torch.uint8))
        vectors = network(pixels.half().expand(ACCELERATOR_BATCH, -1, -1, -1))
    assert (vectors.device.type, vectors.dtype, len(vectors)) == ("meta", torch.float32, ACCELERATOR_BATCH)
    assert seen.peak < 3 * 2**30
    assert not seen.counts


def test_a_model_keeps_the_precision_of_its_examples(images, tmp_path, monkeypatch):
    settings = {"cache": None}
    half = fit(images, encoder=f"{NAME}@bf16", **settings).model
    full = fit(images, encoder=NAME, **settings).model
    half.save(tmp_path / "half.safetensors")
    half = Model.load(tmp_path / "half.safetensors")
    assert (half.encoder, full.encoder) == (f"{NAME}@bf16", NAME)
    for device in ("", "fp16"):  # what an encoder gets there by default
        monkeypatch.setattr(pretrained, "half_precision", lambda _, device=device: device)
        assert open_for(half).name == open_for(half, NAME).name == f"{NAME}@bf16"
        assert open_for(full).name == open_for(full, NAME).name == NAME
    with pytest.raises(InputError, match=rf"{NAME}@bf16 .* but got {NAME} "):
        open_for(half, f"{NAME}@32")
    answers = classify(images, images, encoder=f"{NAME}@bf16", **settings)
    assert f"embedded by {NAME}@bf16" in answers.words[0]


def test_features_name_the_precision_and_are_computed_anew(images, tmp_path):
    output = tmp_path / "f.safetensors"
    checkpoint = str(CHECKPOINTS[NAME])
    names = {}
    for encoder in (NAME, f"{NAME}@bf16", checkpoint, f"{checkpoint}@bf16"):
        result = extract(images, output, encoder=encoder, cache=tmp_path / "cache")
        assert result.computed
        names[encoder] = Features.load(output).source["encoder"]
    assert names[f"{NAME}@bf16"] == f"{NAME}@bf16"
    assert len(set(names.values())) == 4
    assert len(list((tmp_path / "cache").rglob("*.sqlite"))) == 2  # the checkpoint is the packaged network

"""Building heads, and reading them from checkpoints and features files."""

from __future__ import annotations

import json
import os

import pytest
import torch

from likelyshot import Balanced, FewShotClassifier, InputError, heads, load_head, sample_tasks
from likelyshot.data.features import Base, Features, FeaturesFile
from likelyshot.data.files import write_tensors
from likelyshot.encoders import networks
from likelyshot.encoders.checkpoints import Checkpoint, encoder_checkpoint, save_checkpoint
from likelyshot.encoders.extract import save_splits
from likelyshot.evaluation.evaluate import judge
from likelyshot.heads.starts import STARTS
from likelyshot.methods import METHODS
from likelyshot.methods.binding import bind, needs
from likelyshot.methods.maml import encode, logits


def test_every_method_that_needs_a_head_has_one():
    assert set(STARTS) == {name for name in METHODS if "head" in needs(name)}


@pytest.mark.parametrize("name", STARTS)
def test_a_head_follows_from_its_seed(name):
    state = torch.random.get_rng_state()
    one, same, other = (heads.build(name, {}, dim=12, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.digest == same.digest
    random = name != "siamese" and any(weight.std() > 0 for weight in one.parameters() if weight.numel() > 1)
    assert (one.digest != other.digest) == random
    assert {value.dtype for value in one(torch.zeros(1, dtype=torch.float64)).values()} == {torch.float64}


@pytest.mark.parametrize("name", STARTS)
def test_a_head_comes_back_from_a_checkpoint_and_from_a_features_file(name, tmp_path, features):
    head = heads.build(name, {}, dim=12, seed=3)
    head.trained = {"ways": 5, "shots": 1, "encoder": "net"}
    tensors, facts = heads.stored(head)
    save_checkpoint(tmp_path / "best.safetensors", Checkpoint(tensors, {"head": facts}))
    save_splits(tmp_path / "f.safetensors", {"test": features}, Base.of(features), {"encoder": "net"}, (tensors, facts))
    for file in ("best", "f"):
        back = load_head(tmp_path / f"{file}.safetensors")
        assert (back.digest, back.trained, back.params) == (head.digest, head.trained, head.params)
        assert not any(weight.requires_grad for weight in back.parameters())
    read = FeaturesFile(tmp_path / "f.safetensors")
    assert read.splits == ("test",)
    assert read.read().source["encoder"] == "net"
    assert "head" not in read.read().source
    assert read.read().digest == Features(features.vectors, features.labels, features.classes, {}).digest


def test_a_classifier_takes_a_head(features):
    head = heads.build("feat", {"layer_norm": False}, dim=12)
    X, y = features.vectors.numpy(), features.labels.numpy()
    plain = FewShotClassifier("euclidean").fit(X[::10], y[::10]).predict(X)
    assert (FewShotClassifier("feat", params={"head": head}).fit(X[::10], y[::10]).predict(X) == plain).all()
    with pytest.raises(InputError, match=r"feat needs head in params: likelyshot.load_head\(path\)"):
        FewShotClassifier("feat").fit(X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rnk": 3}, "the head of feat has no parameter 'rnk': did you mean 'rank'"),
        ({"rank": 0}, "expected a whole number from 1 to 100,000 for rank of the head of feat, got 0"),
        ({"rank": 2.0}, "expected a whole number"),
        ({"rank": True}, "expected a whole number"),
        ({"layer_norm": 1}, "expected true or false for layer_norm"),
        ({"rank": 100_000}, "expected a head with at most 100,000,000 weights"),
    ],
)
def test_parameters_without_meaning_are_refused(params, message):
    with pytest.raises(InputError, match=message):
        heads.build("feat", params, dim=1000)
    with pytest.raises(InputError, match="'mll' has no head"):
        heads.build("mll", {}, dim=3)


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "feat", "params": {}, "dim": 13},
        {"name": "feat", "params": {"rank": 99_999}, "dim": 1_000_000},
        {"name": "feat", "params": {"rank": "x"}, "dim": 12},
        {"name": "nothing", "params": {}, "dim": 12},
        {"name": "feat"},
        {"name": 3, "params": {}, "dim": 12},
    ],
)
def test_a_file_with_other_weights_than_it_says_is_refused(facts, tmp_path, features):
    tensors, _ = heads.stored(heads.build("feat", {}, dim=12))
    write_tensors(tmp_path / "f.safetensors", tensors, {"head": json.dumps(facts)})
    with pytest.raises(InputError, match=r"expected|missing|unknown"):
        load_head(tmp_path / "f.safetensors")
    save_checkpoint(tmp_path / "c.safetensors", Checkpoint(tensors, {"head": facts}))
    with pytest.raises(InputError, match=r"expected|missing|unknown"):
        load_head(tmp_path / "c.safetensors")


def test_weights_that_are_no_real_numbers_are_refused(tmp_path):
    tensors, facts = heads.stored(heads.build("feat", {}, dim=12))
    name = min(tensors)
    tensors[name] = tensors[name].to(torch.complex64)
    write_tensors(tmp_path / "f.safetensors", tensors, {"head": json.dumps(facts)})
    with pytest.raises(InputError, match=r"expected weights of this architecture, .* torch.complex64 instead of"):
        load_head(tmp_path / "f.safetensors")


def test_a_file_without_a_head_is_refused(tmp_path):
    save_checkpoint(tmp_path / "c.safetensors", Checkpoint({"encoder.x": torch.zeros(1)}, {}))
    with pytest.raises(InputError, match=r"expected a trained head in .*c.safetensors, but it has none"):
        load_head(tmp_path / "c.safetensors")
    with pytest.raises(InputError, match="does not exist"):
        load_head(tmp_path / "nowhere.safetensors")
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(InputError, match="is not a file"):  # without waiting for somebody to write
        load_head(tmp_path / "pipe.safetensors")


@pytest.mark.parametrize("facts", ["", "nonsense", "[" * 100_000, "[]", '{"name": NaN}'])
def test_damaged_facts_of_a_head_are_refused(facts, tmp_path):
    tensors, _ = heads.stored(heads.build("feat", {}, dim=12))
    write_tensors(tmp_path / "f.safetensors", tensors, {"head": facts})
    with pytest.raises(InputError, match=r"expected a file with a trained head, but .* damaged .*: train one with"):
        load_head(tmp_path / "f.safetensors")


@pytest.mark.parametrize("batch_norm", [False, True])
def test_maml_starts_from_a_conv4_and_is_that_network(batch_norm):
    encoder = networks.build("conv4", {"widths": [4, 4, 4, 4]}).double()
    images = torch.rand(6, 3, 16, 16, dtype=torch.float64)
    encoder(images)  # moves the statistics of BatchNorm
    head = heads.build("maml", {"side": 16, "layers": 4, "width": 4, "batch_norm": batch_norm}, dim=768).double()
    heads.start_from(head, encoder_checkpoint(encoder, {}))
    pixels = images.flatten(1)
    weights = head(pixels) | {"classifier": torch.eye(4).double(), "classifier_bias": torch.zeros(4).double()}
    expected = encoder.train(batch_norm)(images)  # in training mode, BatchNorm has the statistics of the images
    torch.testing.assert_close(logits(weights, pixels, len(pixels)), expected, rtol=1e-9, atol=1e-9)


def test_only_a_conv4_of_the_same_widths_starts_a_head_of_maml():
    conv4 = encoder_checkpoint(networks.build("conv4", {"widths": [4, 4, 4, 4]}), {})
    other = encoder_checkpoint(networks.build("identity", {"in_dim": 3}), {})
    head = heads.build("maml", {"side": 16, "layers": 4, "width": 8}, dim=768)
    with pytest.raises(InputError, match="expected weights of this architecture"):
        heads.start_from(head, conv4)
    for wrong in ((head, other), (heads.build("feat", {}, dim=12), conv4)):
        with pytest.raises(InputError, match="expected the Conv4 of this checkpoint for a head of maml"):
            heads.start_from(*wrong)


def conv4_file(tmp_path, **params):
    encoder = networks.build("conv4", {"widths": [4, 4, 4, 4], **params})
    images = torch.rand(6, 3, 16, 16)
    encoder(images)  # moves the statistics of BatchNorm
    facts = {"recipe": {"data": {"size": 16}}}
    return encoder.eval(), images, save_checkpoint(tmp_path / "conv4.safetensors", encoder_checkpoint(encoder, facts))


def test_a_conv4_is_the_head_of_entropy_min_network(tmp_path):
    encoder, images, file = conv4_file(tmp_path)
    head, pixels = load_head(file), images.flatten(1)
    assert (head.name, head.dim, head.trained["encoder"]) == ("entropy_min_network", 768, "pixels, 16 x 16")
    with torch.no_grad():
        vectors = encoder(images)
    torch.testing.assert_close(encode(head(pixels), pixels, len(pixels)), vectors, rtol=1e-5, atol=1e-6)
    labels, call = torch.arange(3), {"n_ways": 3, "steps": 0, "normalise": False}
    scores = METHODS["entropy_min_network"](pixels[:3], labels, pixels[3:], head=head, **call)
    nearest = METHODS["euclidean"](vectors[:3], labels, vectors[3:], n_ways=3)
    torch.testing.assert_close(scores, 7.5 * nearest, rtol=1e-4, atol=1e-4)
    assert not any(weight.requires_grad for weight in head.parameters())


@pytest.mark.parametrize("normalise", [True, False])
def test_evaluate_gives_a_network_the_images_that_the_method_gives_it(normalise, tmp_path):
    """It normalises once for all tasks where it may; unit vectors would be darker images."""
    _, _, file = conv4_file(tmp_path)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(36) % 3
    vectors = torch.rand(36, 768, generator=generator) + torch.rand(3, 768, generator=generator)[labels]
    tasks = sample_tasks(labels, n_tasks=4, ways=3, shots=2, query=Balanced(5), seed=0)
    method = bind("entropy_min_network", {"steps": 0, "normalise": normalise}, {"head": load_head(file)})
    sure = []
    for task in range(4):
        support, query = (vectors[getattr(tasks, part)[task].long()] for part in ("support", "query"))
        sure.append(method(support, tasks.support_labels.long(), query, n_ways=3).softmax(-1).amax(-1))
    found = judge(method, [Features.from_arrays(vectors, labels)], tasks, None)
    torch.testing.assert_close(found.top, torch.stack(sure), rtol=1e-4, atol=1e-5)


def test_a_conv4_with_several_widths_or_of_another_method_is_refused(tmp_path):
    _, images, file = conv4_file(tmp_path, widths=[4, 4, 4, 8])
    with pytest.raises(InputError, match=r"expected a Conv4 with one width in .*, got \[4, 4, 4, 8\]"):
        load_head(file)
    _, images, file = conv4_file(tmp_path)
    pixels = images.flatten(1)
    with pytest.raises(InputError, match="expected a head of feat, got one of entropy_min_network"):
        METHODS["feat"](pixels[:2], torch.arange(2), pixels[2:], n_ways=2, head=load_head(file))

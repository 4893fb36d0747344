from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from likelyshot import Balanced, Base, Features, InputError, calibrate, evaluate, sample_tasks
from likelyshot.data import features as module
from likelyshot.evaluation.run import Job, Network, Networks, read_base, read_networks, run, work
from likelyshot.methods import METHODS


def through(features: Features, seed: int, dim: int) -> Features:
    """The same images by another network."""
    weights = torch.rand(features.dim, dim, generator=torch.Generator().manual_seed(seed))
    return Features(features.vectors @ weights, features.labels, features.classes, {"encoder": f"net {seed}"})


@pytest.fixture
def networks(features, validation):
    members = [
        Network(through(features, seed, 6 + seed), through(validation, seed, 6 + seed), Base(torch.zeros(6 + seed)))
        for seed in range(3)
    ]
    return Networks(members, seed=5)


def test_each_metric_has_its_own_network_and_other_methods_the_last(networks):
    for number, metric in enumerate(("euclidean", "cosine", "mll")):
        assert networks.features(metric) is networks.members[number].features
        assert networks.validation(metric) is networks.members[number].validation
    for method in set(METHODS) - {"euclidean", "cosine", "mll", "combined", "combined_transductive"}:
        assert networks.features(method) is networks.members[2].features
    bound = networks.bind("simpleshot", {}, ways=4, shots=1)
    assert bound.keywords["base_mean"] is networks.members[2].base.mean


def test_combined_is_calibrated_and_scored_on_all(networks, features, validation):
    sets = networks.features("combined")
    assert [one.dim for one in sets] == [6, 7, 8]
    method = networks.bind("combined", {}, ways=4, shots=2)
    assert networks.bind("combined", {}, ways=4, shots=2).keywords["calibration"] is method.keywords["calibration"]
    drawn = sample_tasks(validation.labels, n_tasks=2_000, ways=4, shots=2, query=Balanced(15), seed=5)
    expected = calibrate([one.validation for one in networks.members], drawn)
    assert method.keywords["calibration"].intra == expected.intra
    tasks = sample_tasks(features.labels, n_tasks=20, ways=4, shots=2, query=Balanced(5), seed=0)
    assert 0 < networks.temperature("combined", method, tasks) < 10
    assert len(evaluate(method, sets, tasks).config["features"]) == 3


def test_parameters_of_combined_act_through_its_calibration(features, validation):
    networks = Networks([Network(features, validation)])
    made = networks.bind("combined", {"lambda_max": 80.0, "rule": "closest"}, ways=4, shots=1)
    calibration = made.keywords["calibration"]
    assert (calibration.ways, calibration.shots, calibration.lambda_max) == (4, 1, 80.0)
    assert made.keywords["rule"] == "closest"
    fixed = Networks([Network(features)], calibration=calibration)
    assert fixed.bind("combined", {}, ways=4, shots=1).keywords["calibration"] is calibration
    with pytest.raises(InputError, match="the given calibration fixes lambda_max"):
        fixed.bind("combined", {"lambda_max": 80.0}, ways=4, shots=1)


def test_base_statistics_come_from_the_base_classes(features, validation):
    whole = Networks([Network(features, base=Base.of(validation))])
    assert whole.bind("bavardage", {}, ways=4, shots=1).keywords["base_within"].shape == (12, 12)
    without = Networks([Network(features, base=Base(torch.ones(12)))])
    with pytest.raises(InputError, match="bavardage needs the covariance within classes of base features"):
        without.bind("bavardage", {}, ways=4, shots=1)


def test_the_loop_runs_skips_and_takes_what_is_finished(features, validation):
    networks = Networks([Network(features, validation)])
    [tasks] = networks.draw(10, 3, [2], Balanced(5))
    jobs = [Job(name, {}, tasks, name) for name in ("mll", "simpleshot", "cosine")]
    known = evaluate(METHODS["cosine"], features, tasks)
    done, labels, refused = [], [], []
    finished = run(
        jobs,
        networks,
        finished=lambda job: known if job.method == "cosine" else None,
        refused=lambda job, error: refused.append((job.method, str(error))),
        progress=done.append,
        say=labels.append,
    )
    results = {job.method: result for job, result in finished}
    assert results["cosine"] is known
    assert results["mll"].mean == evaluate(METHODS["mll"], features, tasks).mean
    assert results["mll"].reliability["fitted"]
    assert results["mll"].config["networks"] == [features.digest]
    assert labels == ["mll", "simpleshot", "cosine"]
    assert [name for name, _ in refused] == ["simpleshot"]
    assert sum(done) == work(jobs, networks) == 3 * (10 + 10)
    with pytest.raises(InputError, match="simpleshot needs"):
        list(run(jobs, networks))


def test_one_network_serves_all(features, validation):
    alone = Networks([Network(features, validation)])
    for method in METHODS:
        assert alone.features(method) is features
        assert alone.validation(method) is validation


def test_networks_that_do_not_fit_are_refused(features):
    member = Network(features)
    with pytest.raises(InputError, match="one for each of euclidean, cosine, mll, but got 2"):
        Networks([member, member])
    assert Networks([member, member], ("cosine", "mll")).features("cosine") is features
    shuffled = Features(features.vectors, features.labels.flip(0), features.classes, {})
    renamed = Features(features.vectors, features.labels, tuple("abcdefgh"), {})
    for other in (shuffled, renamed):
        with pytest.raises(InputError, match="same images in the same order"):
            Networks([member, member, Network(other)])
        with pytest.raises(InputError, match="same images in the same order"):
            Networks([Network(features, held) for held in (features, features, other)])


@pytest.fixture
def file(features, validation, tmp_path):
    """A features file with all three splits."""
    tensors = {}
    for split, part in (("train", validation), ("val", validation), ("test", features)):
        tensors |= {f"{split}.features": part.vectors.clone(), f"{split}.labels": part.labels.clone()}
    save_file(tensors, tmp_path / "f.safetensors")
    return tmp_path / "f.safetensors"


def test_a_features_file_is_opened_once(file, monkeypatch):
    opened = []
    real = module.open_features
    monkeypatch.setattr(module, "open_features", lambda path, **how: opened.append(path) or real(path, **how))
    networks = read_networks([file], methods=["mll", "simpleshot"])
    assert opened == [file]
    [member] = networks.members
    assert [member.features.source["split"], member.validation.source["split"]] == ["test", "val"]
    assert member.base.mean.shape == (12,)


def test_what_is_tested_serves_for_nothing_else(file):
    for split, validation, base in (("test", True, True), ("val", False, True), ("train", True, False)):
        [member] = read_networks([file], split=split, methods=["simpleshot"]).members
        assert (member.validation is not None, member.base is not None) == (validation, base)
        [member] = read_networks([file], split=split, methods=["simpleshot"], val=[file], base=file).members
        assert None not in (member.validation, member.base)  # asked for


def test_base_features_are_those_of_the_base_classes(features, validation, file, tmp_path):
    assert read_base(file).mean.allclose(validation.vectors.mean(0))
    assert read_base(features.save(tmp_path / "one.safetensors")).mean.allclose(features.vectors.mean(0))
    assert read_base(file, rectify=True).mean.shape == (24,)
    tensors = {f"{split}.features": features.vectors.clone() for split in ("val", "test")}
    tensors |= {f"{split}.labels": features.labels.clone() for split in ("val", "test")}
    save_file(tensors, tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="it has the splits test, val: call the split of the base classes train"):
        read_base(tmp_path / "none.safetensors")


def test_names_that_were_given_are_checked_even_if_they_are_not_needed(file, tmp_path):
    with pytest.raises(InputError, match=r"none\.npz: expected a features file"):
        read_networks([file], methods=["mll"], base=tmp_path / "none.npz")
    with pytest.raises(InputError, match="expected the name of a split, but got ''"):
        read_networks([file], split="")

from __future__ import annotations

import pytest
import torch

from likelyshot import Balanced, Features, InputError, calibrate, evaluate, sample_tasks
from likelyshot.data.features import Base
from likelyshot.evaluation.networks import Network, Networks
from likelyshot.methods import METHODS
from likelyshot.methods.binding import Statistics, bind


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
    return Networks(members, shared=Statistics(seed=5))


def test_each_metric_has_its_own_network_and_other_methods_the_last(networks):
    for number, metric in enumerate(("euclidean", "cosine", "mll")):
        features, statistics = networks.of(metric)
        assert features is networks.members[number].features
        assert statistics.validation is networks.members[number].validation
        assert statistics.seed == 5
    for method in set(METHODS) - {"euclidean", "cosine", "mll", "combined"}:
        features, statistics = networks.of(method)
        assert features is networks.members[2].features
        assert statistics.base is networks.members[2].base


def test_combined_is_calibrated_and_scored_on_all(networks, features, validation):
    sets, statistics = networks.of("combined")
    assert [one.dim for one in sets] == [6, 7, 8]
    method = bind("combined", {}, statistics, ways=4, shots=2)
    drawn = sample_tasks(validation.labels, n_tasks=2_000, ways=4, shots=2, query=Balanced(15), seed=5)
    expected = calibrate([one.validation for one in networks.members], drawn)
    assert method.keywords["calibration"].intra == expected.intra
    tasks = sample_tasks(features.labels, n_tasks=20, ways=4, shots=2, query=Balanced(5), seed=0)
    assert 0 < statistics.temperature(method, tasks) < 10
    assert len(evaluate(method, sets, tasks).config["features"]) == 3
    assert networks.calibrations() == [(2, method.keywords["calibration"])]


def test_one_network_serves_all(features, validation):
    alone = Networks([Network(features, validation)])
    for method in METHODS:
        assert alone.of(method)[0] is features
        assert alone.of(method)[1].validation is validation


def test_networks_that_do_not_fit_are_refused(features):
    member = Network(features)
    with pytest.raises(InputError, match="one for each of euclidean, cosine, mll, but got 2"):
        Networks([member, member])
    assert Networks([member, member], ("cosine", "mll")).of("cosine")[0] is features
    shuffled = Features(features.vectors, features.labels.flip(0), features.classes, {})
    renamed = Features(features.vectors, features.labels, tuple("abcdefgh"), {})
    for other in (shuffled, renamed):
        with pytest.raises(InputError, match="same images in the same order"):
            Networks([member, member, Network(other)])
        with pytest.raises(InputError, match="same images in the same order"):
            Networks([Network(features, held) for held in (features, features, other)])

from __future__ import annotations

import pytest
import torch

from likelyshot import Features
from likelyshot.errors import InputError
from likelyshot.evaluation.run import Network, Networks
from likelyshot.methods.combined_transductive import combined_transductive
from likelyshot.methods.likelihood_mixture import likelihood_mixture


def network(seed, dim, noise):
    """Vectors of 3 classes in turn, 4 labelled and 30 others."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(34) % 3
    centres = torch.rand(3, dim, generator=generator, dtype=torch.float64) ** 3
    vectors = centres[rows] + noise * torch.rand(34, dim, generator=generator, dtype=torch.float64)
    return vectors[:4], rows[:4], vectors[4:], rows[4:]


def test_one_network_is_the_mixture():
    support, labels, query, _ = network(0, 8, 0.3)
    expected = likelihood_mixture(support, labels, query, n_ways=3)
    torch.testing.assert_close(combined_transductive(support, labels, query, n_ways=3), expected)
    torch.testing.assert_close(combined_transductive([support] * 2, labels, [query] * 2, n_ways=3), expected)


def test_networks_of_other_lengths_and_scales_count_the_same():
    one, two = network(1, 8, 0.8), network(2, 20, 0.8)
    scores = combined_transductive([one[0], two[0]], one[1], [one[2], two[2]], n_ways=3)
    longer = combined_transductive([9 * one[0], two[0]], one[1], [9 * one[2], two[2]], n_ways=3)
    torch.testing.assert_close(scores, longer)
    swapped = combined_transductive([two[0], one[0]], one[1], [two[2], one[2]], n_ways=3)
    torch.testing.assert_close(scores, swapped)


def test_a_network_that_knows_helps_one_that_does_not():
    weak, strong = network(3, 8, 3.0), network(4, 20, 0.2)
    right = (combined_transductive([weak[0], strong[0]], weak[1], [weak[2], strong[2]], n_ways=3).argmax(-1)) == weak[3]
    alone = likelihood_mixture(weak[0], weak[1], weak[2], n_ways=3).argmax(-1) == weak[3]
    assert right.double().mean() > alone.double().mean()


def test_other_networks_for_the_query_are_refused():
    one, two = network(1, 8, 0.8), network(2, 20, 0.8)
    for queries, words in (([two[2], one[2]], "dimension"), ([one[2]], "the same networks, got 2 and 1")):
        with pytest.raises(InputError, match=words):
            combined_transductive([one[0], two[0]], one[1], queries, n_ways=3)


def test_evaluate_gives_it_all_networks():
    sets = [Features.from_arrays(torch.rand(4, dim), [0, 0, 1, 1]) for dim in (2, 3, 4)]
    networks = Networks([Network(features) for features in sets])
    assert [features.dim for features in networks.features("combined_transductive")] == [2, 3, 4]


def test_covariances_of_base_classes_are_blocks_that_count_alike():
    one, two = network(1, 8, 0.8), network(2, 20, 0.8)
    noise = [torch.rand(dim, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(dim)) for dim in (8, 20)]
    within = [x @ x.T for x in noise]
    pair = ([one[0], two[0]], one[1], [one[2], two[2]])
    scores = combined_transductive(*pair, n_ways=3, base_within=torch.block_diag(*within))
    scaled = combined_transductive(*pair, n_ways=3, base_within=torch.block_diag(7 * within[0], within[1]))
    torch.testing.assert_close(scores, scaled)
    assert not scores.allclose(combined_transductive(*pair, n_ways=3))
    alone = combined_transductive(one[0], one[1], one[2], n_ways=3, base_within=within[0])
    torch.testing.assert_close(alone, likelihood_mixture(*one[:3], n_ways=3, base_within=within[0]))
    with pytest.raises(InputError, match="base_within"):
        combined_transductive(*pair, n_ways=3, base_within=within[0])


def test_a_network_without_weight_is_left_out():
    one, two = network(1, 8, 0.8), network(2, 20, 0.8)
    pair = ([one[0], two[0]], one[1], [one[2], two[2]])
    within = torch.block_diag(torch.eye(8), 2 * torch.eye(20))
    scores = combined_transductive(*pair, n_ways=3, base_within=within, network_weights=torch.tensor([0.0, 3.0]))
    torch.testing.assert_close(scores, likelihood_mixture(*two[:3], n_ways=3, base_within=torch.eye(20)))
    equal = combined_transductive(*pair, n_ways=3, network_weights=torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(equal, combined_transductive(*pair, n_ways=3))
    for weights in ([1.0], [0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0]):
        with pytest.raises(InputError, match="network_weights"):
            combined_transductive(*pair, n_ways=3, network_weights=torch.tensor(weights))


def test_validation_classes_choose_among_networks():
    """Two networks that know the classes, and one that knows nothing."""
    rows, generator = torch.arange(6).repeat_interleave(12), torch.Generator().manual_seed(0)

    def features(strength):
        centres = strength * torch.rand(6, 16, generator=generator) ** 3
        return Features.from_arrays(centres[rows] + torch.rand(72, 16, generator=generator), rows.tolist())

    sets = [(features(strength), features(strength)) for strength in (1.0, 0.0, 0.9)]
    networks = Networks([Network(tested, validation) for tested, validation in sets])
    method = networks.bind("combined_transductive", {}, ways=3, shots=1)
    assert method.keywords["network_weights"][1] == 0
    assert method.keywords["network_weights"].sum() >= 1
    again = networks.bind("combined_transductive", {}, ways=3, shots=1)
    assert again.keywords["network_weights"] is method.keywords["network_weights"]
    unknown = Networks([Network(tested) for tested, _ in sets]).bind("combined_transductive", {}, ways=3, shots=1)
    assert "network_weights" not in getattr(unknown, "keywords", {}) or unknown.keywords["network_weights"] is None

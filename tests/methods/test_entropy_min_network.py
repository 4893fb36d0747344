from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from likelyshot.errors import InputError
from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods.entropy_min_network import entropy_min_network
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.maml import encode
from made_tasks import RAGGED, ragged
from trained_heads import random_head

IMAGE = {"side": 4, "layers": 2, "width": 3}  # two channels of 4 x 4 pixels


class Layer(nn.Module):
    """A convolution or a linear layer by torch's functions, with a scale and a shift."""

    def __init__(self, w, number):
        super().__init__()
        self.weight, self.scale, self.shift = (
            nn.Parameter(w[f"{part}{number}"].clone()) for part in ("layer", "scale", "shift")
        )

    def forward(self, x):
        if self.weight.ndim == 4:
            x = functional.conv2d(x, self.weight, padding=1)
            return functional.max_pool2d(functional.relu(x * self.scale[:, None, None] + self.shift[:, None, None]), 2)
        return functional.relu(functional.linear(x, self.weight) * self.scale + self.shift)


def oracle(support, labels, query, ways, head, *, steps, learning_rate, network_rate, tau=15.0):
    """The two losses as they are written, by torch's Adam, one task."""
    w, image = head(support), "side" in head.params and head.params["side"] > 1
    shape = (-1, 2, 4, 4) if image else (-1, support.shape[1])
    x, f = (l2_normalise(z).mul(support.shape[1] ** 0.5).view(shape) for z in (support, query))
    layers = [Layer(w, number) for number in range(1, head.params["layers"] + 1)]
    network = nn.Sequential(*layers, *([nn.AdaptiveAvgPool2d(1), nn.Flatten()] if image else []))

    def unit(z):
        return functional.normalize(network(z), dim=1, eps=1e-12)

    with torch.no_grad():
        z = unit(x)
        means = [z[labels == k].mean(0) if (labels == k).any() else torch.zeros(z.shape[1]) for k in range(ways)]
    prototypes = nn.Parameter(torch.stack([mean.double() for mean in means]))
    groups = [{"params": network.parameters(), "lr": network_rate}, {"params": [prototypes], "lr": learning_rate}]
    optimiser = torch.optim.Adam(groups)

    def logits(z):
        return -tau / 2 * ((unit(z)[:, None] - prototypes[None]) ** 2).sum(-1)

    for _ in range(steps):
        for loss in (
            lambda: functional.cross_entropy(logits(x), labels),
            lambda: -(logits(f).softmax(1) * logits(f).log_softmax(1)).sum(1).mean(),
        ):
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
    return logits(f).detach()


@pytest.mark.parametrize("network_rate", [2e-3, 1e-3, 0.0])
@pytest.mark.parametrize("params", [{"width": 7, "layers": 2}, IMAGE])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_steps_by_torch_modules_and_torchs_adam(shots, queries, params, network_rate):
    support, labels, query = ragged(0, shots, queries, dim=32)
    head = random_head("entropy_min_network", dim=32, **params)
    rates = {"steps": 5, "learning_rate": 1e-3, "network_rate": network_rate}
    scores = entropy_min_network(support, labels, query, n_ways=len(shots), head=head, **rates)
    expected = oracle(support, labels, query, len(shots), head, **rates)
    # 1e-8 beside the root of Adam's mean square is in other units where the rates differ
    close = 1e-9 if network_rate in (0.0, 1e-3) else 1e-5
    torch.testing.assert_close(scores, expected, rtol=close, atol=close)


def test_defaults_are_25_rounds_of_5e_5():
    inputs = ragged(3)
    head = random_head("entropy_min_network", width=7)
    expected = oracle(*inputs, 4, head, steps=25, learning_rate=5e-5, network_rate=5e-5)
    torch.testing.assert_close(entropy_min_network(*inputs, n_ways=4, head=head), expected, rtol=1e-9, atol=1e-9)


def test_without_rounds_it_is_the_nearest_prototype_of_the_network():
    support, labels, query = ragged(1, (2, 1, 3), (3, 2, 4))
    head = random_head("entropy_min_network", width=5)
    hidden = [encode(head(z), l2_normalise(z) * 12**0.5, len(z)) for z in (support, query)]
    nearest = 7.5 * euclidean(hidden[0], labels, hidden[1], n_ways=3)
    torch.testing.assert_close(entropy_min_network(support, labels, query, n_ways=3, head=head, steps=0), nearest)


def test_queries_become_more_certain_by_more_if_the_network_moves():
    inputs, head = ragged(2), random_head("entropy_min_network", width=9)
    entropies = []
    for params in ({"steps": 0}, {"network_rate": 0.0}, {}, {"steps": 200}):
        log_p = entropy_min_network(*inputs, n_ways=4, head=head, **params).log_softmax(-1)
        entropies.append(-(log_p.exp() * log_p).sum(-1).mean())
    assert entropies[0] > entropies[1] > entropies[2] > entropies[3]


def test_a_head_of_another_method_is_refused():
    with pytest.raises(InputError, match="expected a head of entropy_min_network, got one of maml"):
        entropy_min_network(*ragged(0, (1, 1), (1, 1)), n_ways=2, head=build("maml", {}, dim=12))

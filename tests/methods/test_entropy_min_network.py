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
    """A convolution or a linear layer of torch, with torch's BatchNorm or with a scale and a shift."""

    def __init__(self, w, number):
        super().__init__()
        weight = w[f"layer{number}"]
        self.weight, self.image, self.normed = nn.Parameter(weight.clone()), weight.ndim == 4, "norm1" in w
        if self.normed:
            self.norm = (nn.BatchNorm2d if self.image else nn.BatchNorm1d)(len(weight)).double()
            names = {"weight": "norm", "bias": "norm_bias", "running_mean": "mean", "running_var": "variance"}
            self.norm.load_state_dict({key: w[f"{name}{number}"] for key, name in names.items()}, strict=False)
        else:
            self.scale, self.shift = (nn.Parameter(w[f"{part}{number}"].clone()) for part in ("scale", "shift"))

    def forward(self, x):
        x = functional.conv2d(x, self.weight, padding=1) if self.image else functional.linear(x, self.weight)
        if self.normed:
            x = self.norm(x)
        else:
            scale, shift = (z[:, None, None] if self.image else z for z in (self.scale, self.shift))
            x = x * scale + shift
        return functional.max_pool2d(functional.relu(x), 2) if self.image else functional.relu(x)


def oracle(support, labels, query, ways, head, *, steps, learning_rate, network_rate, training=True, tau=15.0):
    """The two losses as they are written, by torch's Adam, one task; the steps in torch's training mode, or not."""
    w, image = head(support), "side" in head.params and head.params["side"] > 1
    shape = (-1, 2, 4, 4) if image else (-1, support.shape[1])
    x, f = (l2_normalise(z).mul(support.shape[1] ** 0.5).view(shape) for z in (support, query))
    layers = [Layer(w, number) for number in range(1, head.params["layers"] + 1)]
    network = nn.Sequential(*layers, *([nn.AdaptiveAvgPool2d(1), nn.Flatten()] if image else [])).eval()

    def unit(z):
        return functional.normalize(network(z), dim=1, eps=1e-12)

    with torch.no_grad():
        z = unit(x)
        means = [z[labels == k].mean(0) if (labels == k).any() else torch.zeros(z.shape[1]) for k in range(ways)]
    prototypes = nn.Parameter(torch.stack([mean.double() for mean in means]))
    groups = [{"params": [prototypes], "lr": learning_rate}]
    if network_rate:  # ours counts what is added beside the root of Adam's mean square in the prototypes' unit
        eps = 1e-8 * learning_rate / network_rate
        groups.append({"params": network.parameters(), "lr": network_rate, "eps": eps})
    optimiser = torch.optim.Adam(groups)

    def cross_entropy():
        return functional.cross_entropy(logits(x), labels)

    def entropy():
        fit = logits(f)
        return -(fit.softmax(1) * fit.log_softmax(1)).sum(1).mean()

    def logits(z):
        return -tau / 2 * ((unit(z)[:, None] - prototypes[None]) ** 2).sum(-1)

    network.train(training)
    for _ in range(steps):
        for loss in (cross_entropy, entropy):
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
    network.eval()
    return logits(f).detach()


def random_network(**params):
    """A head with random weights, whose variances are positive."""
    head = random_head("entropy_min_network", **params)
    for key, weight in head.named_parameters():
        if key.startswith("variance"):
            weight.abs_()
    return head


@pytest.mark.parametrize("network_rate", [2e-3, 1e-3, 0.0])
@pytest.mark.parametrize("training", [True, False, None])
@pytest.mark.parametrize("params", [{"width": 7, "layers": 2}, IMAGE])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_steps_by_torch_modules_and_torchs_adam(shots, queries, params, training, network_rate):
    """In training mode, in evaluation mode, and without BatchNorm."""
    if training and "side" not in params and sum(queries) == 1:
        queries = (1, 1)  # torch refuses to normalise a batch of one vector
    support, labels, query = ragged(0, shots, queries, dim=32)
    head = random_network(dim=32, batch_norm=training is not None, **params)
    rates = {"steps": 5, "learning_rate": 1e-3, "network_rate": network_rate}
    mode = {} if training is None else {"batch_statistics": training}
    scores = entropy_min_network(support, labels, query, n_ways=len(shots), head=head, **rates, **mode)
    expected = oracle(support, labels, query, len(shots), head, training=training is not False, **rates)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_the_start_sees_no_query_and_the_steps_do():
    """Without steps, a query is scored on its own; afterwards the others have moved means and variances."""
    support, labels, query = ragged(4, (2, 2), (3, 3), dim=32)
    head = random_network(dim=32, **IMAGE)
    for params, alike in (({"steps": 0}, True), ({"network_rate": 0.0, "learning_rate": 1e-12}, False)):
        one, every = (
            entropy_min_network(support, labels, z, n_ways=2, head=head, **params) for z in (query[:3], query)
        )
        assert torch.allclose(one, every[:3], rtol=1e-9, atol=1e-9) == alike
    kept = {"network_rate": 0.0, "learning_rate": 1e-12, "batch_statistics": False}
    start = entropy_min_network(support, labels, query, n_ways=2, head=head, steps=0)
    same = entropy_min_network(support, labels, query, n_ways=2, head=head, **kept)
    torch.testing.assert_close(same, start)


def test_running_means_and_variances_go_a_tenth_of_the_way_to_each_batch():
    """Weights that do not move: one round is the support's tenth, and then that of the queries."""
    support, labels, query = ragged(5, (2, 1, 3), (3, 2, 4), dim=12)
    head = random_network(width=5)
    w = head(support)
    still = {"steps": 1, "network_rate": 0.0, "learning_rate": 1e-12}
    scores = entropy_min_network(support, labels, query, n_ways=3, head=head, **still)
    x, f = (l2_normalise(z) * 12**0.5 for z in (support, query))
    start = functional.normalize(encode(w, x, len(x)))
    means = torch.stack([start[labels == k].mean(0) for k in range(3)])
    for part, of in (("mean", lambda z: z.mean(0)), ("variance", lambda z: z.var(0))):
        for z in (x, f):
            w = {**w, f"{part}1": 0.9 * w[f"{part}1"] + 0.1 * of(z @ w["layer1"].T)}
    expected = -7.5 * torch.cdist(functional.normalize(encode(w, f, len(f))), means) ** 2
    torch.testing.assert_close(scores, expected, rtol=1e-8, atol=1e-8)


def test_defaults_are_25_rounds_of_5e_5():
    inputs = ragged(3)
    head = random_network(width=7)
    expected = oracle(*inputs, 4, head, steps=25, learning_rate=5e-5, network_rate=5e-5)
    torch.testing.assert_close(entropy_min_network(*inputs, n_ways=4, head=head), expected, rtol=1e-9, atol=1e-9)


def test_without_rounds_it_is_the_nearest_prototype_of_the_network():
    support, labels, query = ragged(1, (2, 1, 3), (3, 2, 4))
    head = random_network(width=5)
    hidden = [encode(head(z), l2_normalise(z) * 12**0.5, len(z)) for z in (support, query)]
    nearest = 7.5 * euclidean(hidden[0], labels, hidden[1], n_ways=3)
    torch.testing.assert_close(entropy_min_network(support, labels, query, n_ways=3, head=head, steps=0), nearest)


def test_queries_become_more_certain_by_more_if_the_network_moves():
    inputs, head = ragged(2), random_network(width=9, batch_norm=False)
    entropies = []
    for params in ({"steps": 0}, {"network_rate": 0.0}, {}, {"steps": 200}):
        log_p = entropy_min_network(*inputs, n_ways=4, head=head, **params).log_softmax(-1)
        entropies.append(-(log_p.exp() * log_p).sum(-1).mean())
    assert entropies[0] > entropies[1] > entropies[2] > entropies[3]


def test_a_head_of_another_method_is_refused():
    with pytest.raises(InputError, match="expected a head of entropy_min_network, got one of maml"):
        entropy_min_network(*ragged(0, (1, 1), (1, 1)), n_ways=2, head=build("maml", {}, dim=12))

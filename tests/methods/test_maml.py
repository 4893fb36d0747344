from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from likelyshot.errors import InputError
from likelyshot.functional.scores import l2_normalise
from likelyshot.heads import build
from likelyshot.methods import METHODS
from likelyshot.methods.anil import anil
from likelyshot.methods.maml import descend, logits, maml
from made_tasks import RAGGED, ragged
from trained_heads import check_gradients, random_head

IMAGE = {"side": 4, "layers": 2, "width": 3}  # two channels of 4 x 4 pixels


def network(w, image):
    """Torch's own modules, in training mode: BatchNorm takes the statistics of what it is given."""
    layers = []
    for number in (1, 2):
        if f"layer{number}" not in w:
            continue
        weight = w[f"layer{number}"]
        if image:
            layer = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1, bias=False)
            norm = nn.BatchNorm2d(weight.shape[0])
        else:
            layer, norm = nn.Linear(weight.shape[1], weight.shape[0], bias=False), nn.BatchNorm1d(weight.shape[0])
        layer.weight, norm.weight, norm.bias = (
            nn.Parameter(w[key].clone()) for key in (f"layer{number}", f"norm{number}", f"norm_bias{number}")
        )
        layers += [layer, norm, nn.ReLU()] + [nn.MaxPool2d(2)] * image
    if image:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize(("shots", "queries"), RAGGED)
def test_steps_by_torch_modules_and_autograd(shots, queries, image):
    support, labels, query = ragged(0, shots, queries, dim=32)
    head = random_head("maml", dim=32, rate=0.3, classifier_rate=0.3, **(IMAGE if image else {"width": 7, "layers": 2}))
    w, k = head(support), len(shots)
    shape = (-1, 2, 4, 4) if image else (-1, 32)
    x, f = (l2_normalise(z).mul(32**0.5).view(shape) for z in (support, query))
    encoder, classifier = network(w, image), nn.Linear(w["layer1"].shape[0], k).double()
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    rates = w["log_rate"].exp().tolist()
    for _ in range(3):
        encoder.zero_grad()
        classifier.zero_grad()
        functional.cross_entropy(classifier(encoder(x)), labels).backward()
        for module, rate in ((encoder, rates[0]), (classifier, rates[1])):
            for weight in module.parameters():
                weight.data -= rate * weight.grad
    # twice the same have the same mean and variance; torch refuses those of a single vector
    transductive, own = (classifier(encoder(torch.cat([z, z]))[: len(z)]).detach() for z in (f, x))
    scores = maml(support, labels, query, n_ways=k, head=head, steps=3, transductive=True)
    torch.testing.assert_close(scores, transductive, rtol=1e-9, atol=1e-9)
    scores = maml(support, labels, support, n_ways=k, head=head, steps=3)
    torch.testing.assert_close(scores, own, rtol=1e-9, atol=1e-9)


def test_without_steps_all_classes_are_alike_and_one_step_moves_the_classifier_only():
    support, labels, query = ragged(1, (2, 2, 2), (3, 2, 4))
    head = random_head("maml", width=5, batch_norm=False)
    assert not maml(support, labels, query, n_ways=3, head=head, steps=0).any()
    w = head(support)

    def hidden(z):
        return functional.relu(l2_normalise(z) * 12**0.5 @ w["layer1"].T * w["scale1"] + w["shift1"])

    rate = build("anil", {}, dim=5).double()
    rate.log_rate.data[:] = w["log_rate"][1]
    linear = anil(hidden(support), labels, hidden(query), n_ways=3, head=rate, steps=1, normalise=False)
    torch.testing.assert_close(maml(support, labels, query, n_ways=3, head=head, steps=1), linear)


def test_a_network_that_does_not_move_is_anil():
    support, labels, query = ragged(2, (2, 3), (3, 2))
    head = random_head("maml", width=5, batch_norm=False)
    head.log_rate[0] = -20  # e^-20
    w = head(support)

    def hidden(z):
        return functional.relu(l2_normalise(z) * 12**0.5 @ w["layer1"].T * w["scale1"] + w["shift1"])

    rate = build("anil", {}, dim=5).double()
    rate.log_rate.data[:] = w["log_rate"][1]
    linear = anil(hidden(support), labels, hidden(query), n_ways=2, head=rate, steps=4, normalise=False)
    torch.testing.assert_close(maml(support, labels, query, n_ways=2, head=head, steps=4), linear, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("params", [{"width": 3}, {"width": 6, "batch_norm": False}, {"side": 2, "width": 2}])
def test_gradients_of_second_order_are_those_of_central_differences_and_first_order_differs(params):
    inputs = ragged(3, (1, 2), (1, 1), dim=4)
    head = random_head("maml", dim=4, rate=0.5, classifier_rate=0.5, **params)
    check_gradients(maml, inputs, head, 2, steps=2, order=2)
    slopes = []
    for order in (2, 1):
        head = random_head("maml", dim=4, rate=0.5, classifier_rate=0.5, **params).requires_grad_()
        scores = maml(*inputs, n_ways=2, head=head, steps=2, order=order)
        slopes.append(torch.autograd.grad(scores[0, 0], head.layer1)[0])
    assert slopes[1].any()
    assert not torch.allclose(*slopes)


def test_first_order_is_the_gradient_at_the_end_of_the_steps():
    """With the steps as constants, the derivative by the start is the derivative by the adapted weights."""
    support, labels, query = ragged(4, (2, 2), (2, 1))
    head = random_head("maml", width=3).requires_grad_()
    scores = maml(support, labels, query, n_ways=2, head=head, steps=3, order=1)
    slope = torch.autograd.grad(scores[0, 0], head.layer1, retain_graph=True)[0]
    delta = 1e-6 * torch.randn(head.layer1.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = {key: value.detach() for key, value in head(support).items() if key != "log_rate"}
    weights |= {"classifier": torch.zeros(2, 3).double(), "classifier_bias": torch.zeros(2).double()}
    x, f = (l2_normalise(z) * 12**0.5 for z in (support, query))
    targets = functional.one_hot(labels, 2).double()
    end = descend(weights, x, targets, head.log_rate.detach().exp(), 3, 1)
    moved = [
        logits({**end, "layer1": end["layer1"] + sign * delta}, torch.cat([x, f]), len(x))[len(x), 0]
        for sign in (1, -1)
    ]
    assert torch.isclose((moved[0] - moved[1]) / 2, (slope * delta).sum(), rtol=1e-5)


def test_batch_statistics_leak_queries_only_where_asked():
    support, labels, query = ragged(5, (1, 1), (3, 3), dim=32)
    head = random_head("maml", dim=32, **IMAGE)
    for transductive in (False, True):
        one, all_ = (
            maml(support, labels, z, n_ways=2, head=head, transductive=transductive) for z in (query[:2], query)
        )
        assert torch.allclose(one, all_[:2], rtol=1e-9, atol=1e-9) == (not transductive)


@pytest.mark.parametrize("name", ["maml", "entropy_min_network"])
def test_without_normalising_vectors_stay_as_they_are_and_with_it_their_numbers_are_of_order_one(name):
    support, labels, query = ragged(6, (2, 3), (3, 2), dim=32)
    head = build(name, IMAGE, dim=32).double().requires_grad_(False)
    scaled = [l2_normalise(z) * 32**0.5 for z in (support, query)]
    scores = METHODS[name](support, labels, query, n_ways=2, head=head)
    as_they_are = METHODS[name](scaled[0], labels, scaled[1], n_ways=2, head=head, normalise=False)
    torch.testing.assert_close(as_they_are, scores, rtol=1e-9, atol=1e-9)


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="expected images of side x side = 9 pixels, got 32 numbers"):
        build("maml", {"side": 3}, dim=32)
    with pytest.raises(InputError, match="expected images of at least 16 pixels for 4 layers, got 8"):
        build("maml", {"side": 8, "layers": 4}, dim=192)
    with pytest.raises(InputError, match="expected rate above 0"):
        build("maml", {"rate": 0.0}, dim=32)
    with pytest.raises(InputError, match="order must be 1 or 2, got 3"):
        maml(*ragged(0, (1, 1), (1, 1)), n_ways=2, head=build("maml", {}, dim=12), order=3)

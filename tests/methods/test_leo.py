from __future__ import annotations

import torch
from torch.func import grad
from torch.nn.functional import cross_entropy

from likelyshot.functional.scores import class_means, l2_normalise
from likelyshot.methods.leo import leo
from made_tasks import ragged
from trained_heads import check_gradients, random_head


def codes(w, x, labels, ways):
    """The relation network, pair by pair."""
    e = x * 12**0.5 @ w["encoder"].T
    rows = []
    for way in range(ways):
        pairs = [
            w["relation3"] @ (w["relation2"] @ (w["relation1"] @ torch.cat([e[i], e[j]])).relu()).relu()
            for i in range(len(x))
            if labels[i] == way
            for j in range(len(x))
        ]
        rows.append(torch.stack(pairs).mean(0))
    return torch.stack(rows)


def test_without_steps_the_decoder_gives_the_classifier():
    support, labels, query = ragged(0, (2, 1, 3), (3, 2, 4))
    head = random_head("leo", codes=4)
    w, x = head(support), l2_normalise(support)
    weights = class_means(x, labels, 3) + codes(w, x, labels, 3) @ w["decoder"].T
    scores = leo(support, labels, query, n_ways=3, head=head, latent_steps=0, steps=0)
    torch.testing.assert_close(scores, w["log_factor"].exp() * l2_normalise(query) @ weights.T)


def test_steps_by_torch_func():
    support, labels, query = ragged(1, (2, 1, 3), (3, 2, 4))
    head = random_head("leo", codes=4, size=0.1)
    w, x = head(support), l2_normalise(support)
    factor, start = w["log_factor"].exp(), class_means(x, labels, 3)

    def loss(weights):
        return cross_entropy(factor * x @ weights.T, labels)

    z = codes(w, x, labels, 3)
    for _ in range(3):
        z = z - w["log_latent_rate"].exp() * grad(lambda z: loss(start + z @ w["decoder"].T))(z)
    weights = start + z @ w["decoder"].T
    for _ in range(2):
        weights = weights - w["log_rate"].exp() * grad(loss)(weights)
    scores = leo(support, labels, query, n_ways=3, head=head, latent_steps=3, steps=2)
    torch.testing.assert_close(scores, factor * l2_normalise(query) @ weights.T, rtol=1e-8, atol=1e-8)


def test_gradients():
    head = random_head("leo", dim=3, codes=2, size=0.2)
    check_gradients(leo, ragged(2, (1, 2), (1, 1), dim=3), head, 2, latent_steps=2, steps=1)

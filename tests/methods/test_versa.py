from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import quad
from torch.nn.functional import elu

from likelyshot.functional.scores import class_means, l2_normalise
from likelyshot.heads import build
from likelyshot.methods.versa import normals, versa
from made_tasks import ragged
from trained_heads import check_gradients, random_head


def moments(head, support, labels, query, ways):
    """Mean and deviation of the logits, written from the definition."""
    w = head(support)
    hidden, asked = (elu(l2_normalise(x) * 12**0.5 @ w["into"].T + w["into_bias"]) for x in (support, query))
    means = class_means(hidden, labels, ways)

    def network(part):
        x = elu(means @ w[f"{part}1"].T + w[f"{part}1_bias"])
        x = elu(x @ w[f"{part}2"].T + w[f"{part}2_bias"])
        return x @ w[f"{part}3"].T + w[f"{part}3_bias"]

    width = means.shape[1]
    mean, spread = network("mean"), (network("spread") - 6).exp()
    mu = asked @ (mean[:, :width] + means / width**0.5).T + mean[:, width]
    return mu, (asked.square() @ spread[:, :width].T + spread[:, width]).sqrt()


def uncertain():
    head = random_head("versa", width=5, size=0.2)
    head.spread3_bias += 4.0
    return head


def test_many_plain_samples_agree():
    support, labels, query = ragged(0, (2, 1, 3), (3, 2, 4))
    mu, deviation = moments(uncertain(), support, labels, query, 3)
    noise = torch.randn(60_000, 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (mu + deviation * noise).softmax(-1).mean(0)
    scores = versa(support, labels, query, n_ways=3, head=uncertain())
    assert deviation.mean() > 0.3
    torch.testing.assert_close(scores.exp(), expected, rtol=0, atol=0.02)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(len(query), dtype=torch.float64))


def test_quadrature_of_two_classes_agrees():
    support, labels, query = ragged(1, (2, 2), (2, 1))
    mu, deviation = moments(uncertain(), support, labels, query, 2)
    scores = versa(support, labels, query, n_ways=2, head=uncertain())
    for q in range(3):
        mean, spread = float(mu[q, 0] - mu[q, 1]), float(deviation[q].square().sum().sqrt())
        p, _ = quad(
            lambda e, mean=mean, spread=spread: (
                np.exp(-e * e / 2) / np.sqrt(2 * np.pi) / (1 + np.exp(-mean - spread * e))
            ),
            -9,
            9,
        )
        assert abs(float(scores[q, 0].exp()) - p) < 0.01


def test_without_uncertainty_it_is_a_linear_classifier_of_the_class_means():
    support, labels, query = ragged(2, (2, 1, 3), (3, 2, 4))
    head = build("versa", {"width": 6}, dim=12).double().requires_grad_(False)
    head.spread3_bias -= 60.0
    w = head(support)
    hidden, asked = (elu(l2_normalise(x) * 12**0.5 @ w["into"].T) for x in (support, query))
    expected = (asked @ class_means(hidden, labels, 3).T / 6**0.5).log_softmax(-1)
    torch.testing.assert_close(versa(support, labels, query, n_ways=3, head=head), expected, rtol=1e-6, atol=1e-6)


def test_the_points_are_like_normals():
    points = normals(5)
    assert points.mean(0).abs().max() < 1e-12
    assert (points.square().mean(0) - 1).abs().max() < 0.1


def test_gradients():
    check_gradients(versa, ragged(3, (1, 2), (1, 1), dim=3), random_head("versa", dim=3, width=2), 2)

"""Transductive fine-tuning: entropy minimisation that moves the whole network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from likelyshot.functional.adam import adam
from likelyshot.functional.checks import (
    Weights,
    check_count,
    check_fraction,
    check_positive,
    check_switch,
    head_weights,
    prepare,
)
from likelyshot.functional.scores import class_means, one_hot, squared_distances
from likelyshot.methods.maml import encode

#: What BatchNorm remembers of its batches, a tenth of each.
STATISTICS, MOMENTUM = ("mean", "variance"), 0.1

Seen = list[tuple[Tensor, Tensor]]


@torch.no_grad()
def entropy_min_network(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    tau: float = 15.0,
    steps: int = 25,
    learning_rate: float = 5e-5,
    network_rate: float = 5e-5,
    batch_statistics: bool = True,
    normalise: bool = True,
) -> Tensor:
    """Score by a network and prototypes that fit the support and make the queries' labels certain.

    Paper: Dhillon et al. 2020, A baseline for few-shot image classification.
    With z the output of the network, scaled to unit length, logits are l_k = -(tau/2) ||z - w_k||^2, p = softmax(l).
    From class means w, every round takes two steps of Adam on w and on all weights of the network: one down the cross
    entropy of the support, one down mean_q H(p_q), H the Shannon entropy. The scores are the logits after the last
    round. `entropy_min` moves w only, down the sum of the two. The head is the network, as in `maml`: the Conv4 of a
    checkpoint for features that are pixels.
    As in the released code, the class means and the scores are those of a network in evaluation mode, the steps those
    of one in training mode: BatchNorm takes the mean and variance of the support in the first step of a round, and
    those of the queries in the second, and moves its running ones, which the scores use, a tenth of the way there.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The network, `likelyshot.load_head(path)` of a checkpoint with a Conv4.
        tau: Factor of the squared distances in the softmax, as in `entropy_min`.
        steps: Number of rounds; 0 is the nearest prototype.
        learning_rate: Step size of Adam for the prototypes.
        network_rate: Step size of Adam for the network; 0 leaves it as it is.
        batch_statistics: Training mode for BatchNorm; False keeps its means and variances in the steps, too.
        normalise: Scale every vector to the length sqrt(d) first. A network that was trained on images as they are
            needs False.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> network = build("entropy_min_network", {}, dim=2)
    >>> entropy_min_network(support, torch.tensor([0, 1]), query, n_ways=2, head=network).argmax(-1)
    tensor([0])
    """
    check_positive("tau", tau, "entropy_min uses 15")
    check_count("steps", steps, "the paper uses 25")
    check_positive("learning_rate", learning_rate, "the paper uses 5e-5")
    check_fraction("network_rate", network_rate, "the paper uses 5e-5")
    check_switch("batch_statistics", batch_statistics)
    support, query = prepare(support, labels, query, n_ways, normalise)
    network = head_weights("entropy_min_network", head, support)
    scale = support.shape[-1] ** 0.5 if normalise else 1.0
    x, asked, targets = support * scale, query * scale, one_hot(labels, n_ways, support.dtype)
    leading = np.broadcast_shapes(x.shape[:-2], asked.shape[:-2], targets.shape[:-2])
    x, targets, asked = (
        z.expand(*(leading or (1,)), *z.shape[-2:]).flatten(0, -3) for z in (x, targets, asked)
    )  # (t, ., .)
    if not query.shape[-2]:
        return query.new_zeros(*leading, 0, n_ways)
    settings = (tau, steps, learning_rate, network_rate, batch_statistics)
    if network["layer1"].ndim == 4:  # one by one, as in `maml`
        tasks = zip(x, targets, asked, strict=True)
        scores = torch.stack([_solve(network, one, truth, queries, *settings) for one, truth, queries in tasks])
    else:
        scores = _solve(network, x, targets, asked, *settings)
    return scores.view(*leading, query.shape[-2], n_ways)


def _solve(
    network: Mapping[str, Tensor],
    x: Tensor,
    targets: Tensor,
    asked: Tensor,
    tau: float,
    steps: int,
    learning_rate: float,
    network_rate: float,
    batch_statistics: bool,
) -> Tensor:
    """Adapt network and prototypes to a task, or to each of several, and score the queries: x (..., s, d)."""
    start = class_means(_unit(network, x), targets.argmax(-1), targets.shape[-1])
    leading = x.shape[:-2]
    running = {key: value for key, value in network.items() if key.startswith(STATISTICS)}
    network = {key: value for key, value in network.items() if key not in running}
    # One vector a task for Adam. Of the network, it has what the weights moved by, in units that make both rates one.
    unit, sizes = network_rate / learning_rate, [value.numel() for value in network.values()]

    def unpacked(place: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        *moves, last = torch.split(place, [*sizes, start.shape[-2] * start.shape[-1]], -1)
        pairs = zip(network.items(), moves, strict=True)
        weights = {key: value + unit * by.view(*leading, *value.shape) for (key, value), by in pairs}
        return weights, last.view(start.shape)

    def log_p(place: Tensor, inputs: Tensor) -> tuple[Tensor, Seen]:
        weights, w = unpacked(place)
        seen: Seen = []
        z = _unit(weights if batch_statistics else weights | running, inputs, seen)
        return (tau * (z @ w.mT - w.square().sum(-1).unsqueeze(-2) / 2)).log_softmax(-1), seen

    def cross_entropy(place: Tensor) -> tuple[Tensor, Seen]:
        log, seen = log_p(place, x)
        return -(log * targets).sum() / max(x.shape[-2], 1), seen

    def entropy(place: Tensor) -> tuple[Tensor, Seen]:
        log, seen = log_p(place, asked)
        return -(log.exp() * log).sum() / asked.shape[-2], seen

    count = 0

    def slope(place: Tensor) -> Tensor:
        nonlocal count
        count += 1
        gradient, seen = torch.func.grad(cross_entropy if count % 2 else entropy, has_aux=True)(place)
        for number, pair in enumerate(seen, 1):
            for part, value in zip(STATISTICS, pair, strict=True):
                running[f"{part}{number}"] = running[f"{part}{number}"].lerp(value, MOMENTUM)
        return gradient  # type: ignore[no-any-return]

    place = torch.cat([start.new_zeros(*leading, sum(sizes)), start.flatten(-2)], -1)
    weights, w = unpacked(adam(place, slope, 2 * steps, learning_rate))
    return squared_distances(_unit(weights | running, asked), w).mul_(-tau / 2)


def _unit(weights: Mapping[str, Tensor], x: Tensor, seen: Seen | None = None) -> Tensor:
    """Give the network's outputs at unit length, (..., n, d) -> (..., n, width); the slopes at zero are finite."""
    z = encode(weights, x, x.shape[-2], seen)
    return z / z.square().sum(-1, keepdim=True).clamp_min(1e-24).sqrt()

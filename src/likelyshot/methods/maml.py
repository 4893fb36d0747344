"""MAML: a few gradient steps on a whole network from a learned start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d, relu

from likelyshot.errors import InputError
from likelyshot.functional.checks import Weights, check_count, check_switch, head_weights, prepare
from likelyshot.functional.scores import one_hot

#: Added to a variance before its root, as torch's BatchNorm does.
EPSILON = 1e-5


def maml(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    steps: int = 5,
    order: int = 1,
    transductive: bool = False,
    normalise: bool = True,
) -> Tensor:
    """Score by a network after a few gradient steps on the support, from weights that are trained for such steps.

    Paper: Finn et al. 2017, Model-agnostic meta-learning for fast adaptation of deep networks.
    theta <- theta - rate * d CE(network(X), y) / d theta, `steps` times; the score is the network's logit of f_q.
    The head is the network. With a `side`, a vector is an image, and layers are convolutions 3 x 3, each followed by
    BatchNorm, ReLU and the maximum over 2 x 2; then come the mean over the map and a linear classifier. Without one,
    layers are linear. BatchNorm uses the mean and variance of the support for queries too, so every query is scored on
    its own; a head without `batch_norm` has scales and shifts only. Classes may come in any order: the classifier
    starts at zero, as in `anil`. The rates of network and classifier are learned.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        steps: Number of gradient steps.
        order: Of the gradients of training; 1 takes those of the steps as constants.
        transductive: BatchNorm of queries by their own mean and variance, as in the original: scores then depend on
            the other queries.
        normalise: Scale every vector to the length sqrt(d) first, so that its numbers are of order 1. A network that
            was trained on images as they are needs False.

    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> maml(support, torch.tensor([0, 1]), query, n_ways=2, head=build("maml", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_count("steps", steps, "the paper uses 5 in training and 10 in tests")
    check_count("order", order, "it is 1 or 2", least=1)
    check_switch("transductive", transductive)
    if order > 2:
        raise InputError(f"order must be 1 or 2, got {order}: the original has 2")
    support, query = prepare(support, labels, query, n_ways, normalise)
    weights = dict(head_weights("maml", head, support))
    rates = weights.pop("log_rate").clamp(-20, 5).exp()  # of the network, of the classifier
    width = weights["layer1"].shape[0]
    weights |= {"classifier": support.new_zeros(n_ways, width), "classifier_bias": support.new_zeros(n_ways)}
    x, query_rows = (z * (z.shape[-1] ** 0.5 if normalise else 1.0) for z in (support, query))
    targets = one_hot(labels, n_ways, x.dtype)
    leading = np.broadcast_shapes(x.shape[:-2], query_rows.shape[:-2], targets.shape[:-2])
    x, targets, query_rows = (
        z.expand(*(leading or (1,)), *z.shape[-2:]).flatten(0, -3) for z in (x, targets, query_rows)
    )  # (t, ., .)
    settings = (rates, steps, order, transductive)
    if weights["layer1"].ndim == 4:  # one by one: torch.vmap would make grouped convolutions, which are slow
        tasks = zip(x, targets, query_rows, strict=True)
        scores = torch.stack([_solve(weights, one, truth, queries, *settings) for one, truth, queries in tasks])
    else:
        each = {key: value.expand(len(x), *value.shape) for key, value in weights.items()}
        scores = _solve(each, x, targets, query_rows, *settings)
    return scores.view(*leading, query.shape[-2], n_ways)


def _solve(
    weights: Mapping[str, Tensor],
    x: Tensor,
    targets: Tensor,
    query_rows: Tensor,
    rates: Tensor,
    steps: int,
    order: int,
    transductive: bool,
) -> Tensor:
    """Adapt the network to a task, or to several, each with weights of its own, and score the queries."""
    adapted, known = descend(weights, x, targets, rates, steps, order), x.shape[-2]
    if transductive and query_rows.shape[-2]:
        return logits(adapted, query_rows, query_rows.shape[-2])
    return logits(adapted, torch.cat([x, query_rows], -2), known)[..., known:, :]


def descend(
    weights: Mapping[str, Tensor], x: Tensor, targets: Tensor, rates: Tensor, steps: int, order: int
) -> dict[str, Tensor]:
    """Take gradient steps down the mean cross entropy of the support: x (..., s, d), targets (..., s, k)."""

    def loss(weights: dict[str, Tensor]) -> Tensor:
        log_p = logits(weights, x, x.shape[-2]).log_softmax(-1)
        return -(log_p * targets).sum() / max(x.shape[-2], 1)

    weights = dict(weights)
    for _ in range(steps):
        # torch.func.grad differentiates inside no_grad too, and its result is then a constant
        with torch.set_grad_enabled(order == 2 and torch.is_grad_enabled()):
            slopes = torch.func.grad(loss)(weights)
        weights = {
            key: value - rates[int(key.startswith("classifier"))] * slopes[key] for key, value in weights.items()
        }
    return weights


def logits(w: Mapping[str, Tensor], x: Tensor, known: int) -> Tensor:
    """Classify by the network; the first `known` rows decide the mean and variance of BatchNorm.

    Shapes: x (n, d), or for linear layers (..., n, d) with weights of each task -> (..., n, k).
    """
    return encode(w, x, known) @ w["classifier"].mT + w["classifier_bias"].unsqueeze(-2)


def encode(w: Mapping[str, Tensor], x: Tensor, known: int, seen: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
    """Give what the network hands to its classifier; `known` as in `logits`.

    Where there is a "mean1" and so on among the weights, BatchNorm takes these means and variances instead. To `seen`
    it adds the mean and the unbiased variance of every layer.
    Shapes: x (n, d), or for linear layers (..., n, d) with weights of each task -> (..., n, width).
    """
    image, normed, number = w["layer1"].ndim == 4, "norm1" in w, 1
    names = ("norm", "norm_bias") if normed else ("scale", "shift")
    if image:
        channels = w["layer1"].shape[1]
        side = round((x.shape[-1] / channels) ** 0.5)
        x = x.view(-1, channels, side, side).contiguous(memory_format=torch.channels_last)

    def placed(z: Tensor) -> Tensor:
        return z.view(-1, 1, 1) if image else z.unsqueeze(-2)

    while (layer := w.get(f"layer{number}")) is not None:
        x = conv2d(x, layer, padding=1) if image else x @ layer.mT
        scale, shift = (w[f"{part}{number}"] for part in names)
        scaled = False
        if f"mean{number}" in w:
            scale, shift = _folded(scale, shift, w[f"mean{number}"], w[f"variance{number}"])
        elif normed:
            some, over = (x[:known], (0, 2, 3)) if image else (x[..., :known, :], (-2,))
            if image and known == len(x) > 0:  # in one piece, several times as fast
                x, mean, root = torch.native_batch_norm(x, scale, shift, None, None, True, 0.0, EPSILON)
                variance, scaled = root.square().reciprocal() - EPSILON, True
            else:
                variance, mean = torch.var_mean(some, over, correction=0)
                scale, shift = _folded(scale, shift, mean, variance)
            if seen is not None:
                count = some.numel() // max(mean.numel(), 1)
                seen.append((mean, variance * (count / max(count - 1, 1))))
        x = relu(x if scaled else x * placed(scale) + placed(shift))
        x = max_pool2d(x, 2) if image else x
        number += 1
    return x.mean((2, 3)) if image else x


def _folded(scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Put the mean and the variance of BatchNorm into its scale and shift."""
    scale = scale * (variance + EPSILON).rsqrt()
    return scale, shift - mean * scale

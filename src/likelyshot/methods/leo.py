"""LEO: gradient steps in a space of latent codes that a decoder turns into a classifier."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import relu

from likelyshot.functional.checks import Weights, check_count, head_weights, prepare
from likelyshot.functional.scores import class_means, one_hot


def leo(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    head: Weights,
    latent_steps: int = 5,
    steps: int = 5,
    normalise: bool = True,
) -> Tensor:
    """Score by a linear classifier that is decoded from latent codes, which gradient steps on the support have moved.

    Paper: Rusu et al. 2019, Meta-learning with latent embedding optimization.
    An encoder and a relation network of all ordered pairs of examples give a code z_k for every class, a linear decoder
    its weights w_k. z goes down the cross entropy of the support a few times, then w does, each with learned rates; the
    score is f_q . w_k. Codes and weights are means: the paper samples both in training, with a penalty on their spread,
    which we leave out. The decoder adds the class mean to w_k, so that training starts near the nearest prototype.
    Shapes: support (..., s, d), labels (..., s), query (..., q, d) -> (..., q, k).

    Args:
        head: The trained weights, `likelyshot.load_head(path)`.
        latent_steps: Number of steps of the codes.
        steps: Number of steps of the weights after them.
        normalise: Scale every vector to unit length first.

    >>> import torch
    >>> from likelyshot.heads import build
    >>> support, query = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    >>> leo(support, torch.tensor([0, 1]), query, n_ways=2, head=build("leo", {}, dim=2)).argmax(-1)
    tensor([0])
    """
    check_count("latent_steps", latent_steps, "the paper uses 5")
    check_count("steps", steps, "the paper uses 5")
    support, query = prepare(support, labels, query, n_ways, normalise)
    w = head_weights("leo", head, support)
    targets = one_hot(labels, n_ways, support.dtype)
    factor = w["log_factor"].exp()
    start = class_means(support, labels, n_ways)
    codes = _codes(w, support, targets)  # (..., k, z)

    def slope(weights: Tensor) -> Tensor:
        """Give the gradient of the mean cross entropy of the support by the weights: (..., k, d)."""
        p = (factor * support @ weights.mT).softmax(-1)
        gradient: Tensor = factor * (p - targets).mT @ support / max(support.shape[-2], 1)
        return gradient

    for _ in range(latent_steps):
        codes = codes - w["log_latent_rate"].exp() * (slope(start + codes @ w["decoder"].mT) @ w["decoder"])
    weights = start + codes @ w["decoder"].mT
    for _ in range(steps):
        weights = weights - w["log_rate"].exp() * slope(weights)
    return factor * query @ weights.mT


def _codes(w: Mapping[str, Tensor], support: Tensor, targets: Tensor) -> Tensor:
    """Code the classes: the mean over all pairs of an example of the class with any example."""
    x = support * support.shape[-1] ** 0.5 @ w["encoder"].mT  # (..., s, z)
    half = x.shape[-1]
    # the first layer of the network on [x_i, x_j], of all pairs
    pairs = (x @ w["relation1"][:, :half].mT).unsqueeze(-2) + (x @ w["relation1"][:, half:].mT).unsqueeze(-3)
    hidden = relu(relu(pairs) @ w["relation2"].mT)
    out = (hidden @ w["relation3"].mT).mean(-2)  # (..., s, z)
    return (targets / targets.sum(-2, keepdim=True).clamp_min(1)).mT @ out

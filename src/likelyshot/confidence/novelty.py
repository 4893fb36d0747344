"""Items of no known class: a score of how unlike every class an item is, and the threshold for a rejection rate.

The score is a log-likelihood ratio of the best class and a background: a Gaussian around the class mean against one of
the same spread around the mean of the pile. Without a pile there is no background, and the likelihood stands alone.
The score needs no validation data and takes signed features. docs/results/confidence.md compares it with others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_examples
from likelyshot.functional.scores import class_means, l2_normalise, squared_distances

#: In the background a class counts for at most this many times the mean of the others, and one item. Otherwise the most
#: frequent class of a pile would itself look like background.
SHARE = 1.5


@dataclass(frozen=True, eq=False)
class Novelty:
    """The means of the classes, and what they are compared with; made by `learn_novelty`."""

    prototypes: Tensor  # (k, d)
    shots: Tensor  # (k,)
    variance: float  # within classes, summed over the features: a class mean of n shots is off by variance / n
    background: Tensor | None  # (d,); None without a pile
    held_out: Tensor  # (m,) scores of labelled examples, each left out of its class
    normalise: bool

    def score(self, query: Tensor) -> Tensor:
        """Score items, higher is less like any class: min_k (|f - m_k|^2 - variance / n_k) - |f - background|^2.

        The last term is left out where there is no background. Shapes: (q, d) -> (q,).
        """
        query = query.to(self.prototypes)
        query = l2_normalise(query) if self.normalise else query
        return _score(_distances(query, self.prototypes, self.shots, self.variance), query, self.background)

    def threshold(self, rate: float, pile: Tensor | None = None) -> float:
        """Compute the score above which an item is rejected, so that about a share `rate` of *known* items is.

        This is the conformal quantile of the held-out scores: of m examples the ceil((m + 1)(1 - rate))-th smallest.
        Where these are too few (rate < 1 / (m + 1)), it is the quantile of the pile's own scores: the floor(rate q)
        least typical items are rejected, and so at most that share of the known items among them as long as unknown
        ones score higher. Without a pile, it is infinity and nothing is rejected.

        Args:
            rate: Share of items of known classes that may be rejected.
            pile: Scores of the pile (q,), used where the held-out examples are too few.
        """
        if not 0 <= rate < 1:
            raise InputError(f"the rejection rate must be at least 0 and below 1, got {rate}: try 0.05")
        if self.guaranteed(rate):
            return conformal_quantile(self.held_out, rate)
        if pile is None or not len(pile):
            return math.inf
        return float(pile.sort(descending=True).values[math.floor(rate * len(pile) + 1e-9)])

    def guaranteed(self, rate: float) -> bool:
        """Return whether there are enough held-out examples for the threshold to come from them."""
        return rate * (len(self.held_out) + 1) >= 1


def learn_novelty(
    support: Tensor, labels: Tensor, n_ways: int, *, pile: Tensor | None = None, normalise: bool = True
) -> Novelty:
    """Learn what the classes are like from labelled examples, and what items in general are like from a pile.

    The background is the mean of the class means and of the pile, in which no class counts more than about 1.5 times
    as much as the others do.

    Args:
        support: Labelled vectors (n, d).
        labels: Their classes (n,), from 0, with an example of each.
        n_ways: Number of classes.
        pile: Vectors (q, d) of any class, known or not.
        normalise: Whether to scale all vectors to length one.

    >>> support, labels = torch.tensor([[9.0, 1, 0], [9, 2, 0], [1, 9, 0], [2, 9, 0]]), torch.tensor([0, 0, 1, 1])
    >>> novelty = learn_novelty(support, labels, 2)
    >>> (novelty.score(torch.tensor([[8.0, 1, 0], [0, 1, 9]])) > novelty.threshold(0.2)).tolist()
    [False, True]
    """
    check_examples(support, labels)
    shots = labels.bincount(minlength=n_ways)
    if len(shots) != n_ways or int(shots.min()) < 1:
        raise InputError(
            f"expected labels from 0 to {n_ways - 1} and an example of each, got {shots.tolist()} examples: add some"
        )
    support = support.to(torch.promote_types(support.dtype, torch.float32))
    support = l2_normalise(support) if normalise else support
    prototypes = class_means(support, labels, n_ways)
    squares = (support - prototypes[labels]).square().sum(-1)  # (n,)
    variance = float(squares.sum()) / max(len(labels) - n_ways, 1)
    background = None if pile is None or not len(pile) else _background(prototypes, pile.to(support), normalise)
    n = shots[labels].to(support.dtype)
    several = n > 1
    left = (n - 1).clamp_min(1)
    distances = _distances(support, prototypes, shots, variance)
    without = squares * (n / left).square() - variance / left  # distance to its class without itself
    distances[torch.arange(len(labels), device=labels.device), labels] = without
    held_out = _score(distances, support, background)[several]
    return Novelty(prototypes, shots, variance, background, held_out, normalise)


def _background(prototypes: Tensor, pile: Tensor, normalise: bool) -> Tensor:
    """Average class means and pile, in which the items nearest to one class count at most as `SHARE` says.

    Shapes: prototypes (k, d), pile (q, d) -> (d,).
    """
    pile = l2_normalise(pile) if normalise else pile
    nearest = squared_distances(pile, prototypes).argmin(-1)
    sums = torch.zeros_like(prototypes).index_add_(0, nearest, pile)
    counts = nearest.bincount(minlength=len(prototypes)).to(prototypes.dtype)
    others = (counts.sum() - counts) / max(len(counts) - 1, 1)  # (k,), their mean
    weight = ((SHARE * others + 1) / counts.clamp_min(1)).clamp_max(1)  # (k,)
    return (prototypes.sum(0) + weight @ sums) / (len(prototypes) + weight @ counts)


def conformal_quantile(scores: Tensor, rate: float) -> float:
    """Compute the value that a new exchangeable score exceeds with probability at most `rate`; infinity if too few.

    Shapes: (m,). Vovk et al. 2005: the ceil((m + 1)(1 - rate))-th smallest.

    >>> conformal_quantile(torch.arange(1.0, 20.0), 0.1), conformal_quantile(torch.arange(1.0, 4.0), 0.1)
    (18.0, inf)
    """
    place = math.ceil((len(scores) + 1) * (1 - rate) - 1e-9)
    return math.inf if place > len(scores) else float(scores.sort().values[max(place, 1) - 1])


def _distances(query: Tensor, prototypes: Tensor, shots: Tensor, variance: float) -> Tensor:
    """Estimate |f - true class mean|^2 without bias: the mean of n shots is itself off by variance / n."""
    return squared_distances(query, prototypes) - variance / shots.to(query.dtype)


def _score(distances: Tensor, query: Tensor, background: Tensor | None) -> Tensor:
    if background is None:
        return distances.amin(-1)
    return distances.amin(-1) - squared_distances(query, background.unsqueeze(0)).squeeze(-1)

"""What held-out labelled examples say of a mixture: its metric, and how much each likelihood counts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from likelyshot.functional.gram import discounted_directions, discounted_products, held_out_distances
from likelyshot.functional.logistic_regression import held_out_logits, kernel_logistic

#: Weights of a likelihood, prior scatters of the metric, and factors of all likelihoods, among which examples tell.
WEIGHTS, SCATTERS, FACTORS = (
    tuple(i / 8 for i in range(9)),
    (1 / 16, 1 / 4, 1.0, 4.0),
    (0.125, 0.25, 0.5, 1.0, 2.0, 4.0),
)
#: Of the regression: C = 10 suits unit vectors.
PENALTY = 0.1
#: Work of holding examples out of the regression, classes x samples^3, above which there is none: about ten seconds.
LARGEST_REGRESSION = 1e11
#: Guards, of unit vectors: the least mean feature, the least mean squared distance, the least spread; the least skill.
LEAST_MEAN, LEAST_DISTANCE, LEAST_SPREAD, LEAST_SKILL = 1e-6, 1e-3, 1e-30, 0.05


class Labelled(NamedTuple):
    """The labelled examples, as the exponential likelihood sees them.

    Args:
        x: Unit vectors (..., s, d).
        known: Their classes, 1[y = k] (..., k, s).
        sums: Of the vectors of every class (..., k, d), with those of prior examples.
        counts: Of the examples in these sums (..., k, 1).
        floor: The least mean of a feature (..., 1, 1).
        directions: In how many directions the Gaussian says that samples of a class differ (..., 1, 1).
    """

    x: Tensor
    known: Tensor
    sums: Tensor
    counts: Tensor
    floor: Tensor
    directions: Tensor

    def counted(self) -> Tensor:
        """Mark the examples that can be held out, since their class has others: (..., 1, s)."""
        return ((self.known.mT @ self.known.sum(-1, keepdim=True)).mT > 1).to(self.x.dtype)


class Weights(NamedTuple):
    """What the held-out examples say.

    Args:
        scatter: The prior scatter of the metric (..., 1, 1).
        exponential: How much the exponential likelihood counts beside the Gaussian, a (..., 1, 1).
        regression: How much the logistic regression counts beside both, b (..., 1, 1).
        coefficients: Of the labelled samples in the regression (..., k, s).
        held_out: Logits of the labelled samples, each by the regression without it (..., k, s).
        skill: How much better than chance the others name an example, at most 1 (..., 1, 1).
    """

    scatter: Tensor
    exponential: Tensor
    regression: Tensor
    coefficients: Tensor
    held_out: Tensor
    skill: Tensor


def weigh(
    labelled: Labelled,
    inner: Tensor,
    scatter: float | None,
    exponential: float | None,
    regression: float | None,
    *,
    vectors: bool = False,
) -> Weights:
    """Let every labelled example be scored by what the others know, and choose what scores it best.

    Every choice is its posterior mean under a uniform prior on a grid, with log-likelihood sum_i log softmax_k(c l_i)
    at the class of example i. The examples know nothing of the queries, so c, one of `FACTORS`, is averaged over.
    First the prior scatter (its logarithm) and the weight a of the exponential, l = (1 - a) g + a e; then the weight b
    of a logistic regression, whose logits come next to that l. All have closed forms: see `held_out_distances` and
    `held_out_logits`. The only example of a class cannot be held out: with one shot a is 1/2 and b is 0.
    Above `LARGEST_REGRESSION` b is 0 as well.
    The skill is (A - 1/K) / (1 - 1/K), with A the share of examples that what was chosen names rightly, of K classes
    that have examples. One more right example counts in A, so without any the skill is 1.
    Shapes: inner (..., s, s) or, with vectors, (..., s, d).

    Args:
        labelled: The examples.
        inner: Their inner products, as the Gaussian sees them: of vectors y.
        scatter: Prior scatter instead of a choice.
        exponential: Weight a instead of a choice.
        regression: Weight b instead of a choice.
        vectors: `inner` has the vectors y themselves: less work where examples are more than features.

    >>> known, one = torch.eye(2).repeat(1, 2), torch.ones(1, 1)  # two classes of two examples
    >>> x = torch.tensor([[0.8, 0.6], [0.6, 0.8], [0.96, 0.28], [0.28, 0.96]])
    >>> examples = Labelled(x, known, known @ x + 0.7, torch.full((2, 1), 3.0), 0.1 * one, 20 * one)
    >>> y = x - x.mean(0)
    >>> weights = weigh(examples, y @ y.T, scatter=None, exponential=None, regression=None)
    >>> weights.exponential.round(decimals=1), weights.regression.round(decimals=1)
    (tensor([[0.5000]]), tensor([[0.5000]]))
    """
    known, counted = labelled.known, labelled.counted()
    e = _exponential(labelled) * counted
    scatters = SCATTERS if scatter is None else (scatter,)
    grids = [_evidence(_gaussian(labelled, inner, vectors, counted, prior), e, known, counted) for prior in scatters]
    evidence = torch.stack(grids, -2)  # (..., scatters, weights)
    posterior = evidence.flatten(-2).softmax(-1).view_as(evidence)
    chosen = (posterior.sum(-1) * _like(e, scatters).log()).sum(-1).exp()[..., None, None]
    a = (posterior.sum(-2) * _like(e, WEIGHTS)).sum(-1)[..., None, None]
    a = a if exponential is None else torch.full_like(a, exponential)
    g = _gaussian(labelled, inner, vectors, counted, chosen)
    both = torch.lerp(g, e * ratio(spread(g), spread(e)), a)
    ways, s = known.shape[-2:]
    if regression == 0 or s <= ways or ways * s**3 > LARGEST_REGRESSION:
        nothing = torch.zeros_like(known)
        return Weights(chosen, a, torch.zeros_like(a), nothing, nothing, _skill(both, known, counted))
    counts = known.sum(-1, keepdim=True)
    present = (counts > 0).sum(-2, keepdim=True).clamp_min(1)
    balance = s / (present * (known.mT @ counts).mT)  # (..., 1, s): every class counts the same
    gram = inner @ inner.mT if vectors else inner
    coefficients = kernel_logistic(gram, known, balance, PENALTY)
    logits = centre(held_out_logits(gram, coefficients @ gram, known, balance, PENALTY))
    other = logits * counted
    posterior = _evidence(both, other, known, counted).softmax(-1)
    b = (posterior * _like(e, WEIGHTS)).sum(-1)[..., None, None]
    b = (b if regression is None else torch.full_like(b, regression)) * (counted.sum(-1, keepdim=True) > 0)
    joint = torch.lerp(both, other * ratio(spread(both), spread(other)), b)
    return Weights(chosen, a, b, coefficients, logits, _skill(joint, known, counted))


def _skill(scores: Tensor, known: Tensor, counted: Tensor) -> Tensor:
    """Compare how often the scores of examples (..., k, s) name their class with chance: (..., 1, 1)."""
    best = (scores >= scores.amax(-2, keepdim=True)).to(scores.dtype)
    right = (best * known).sum(-2, keepdim=True) / best.sum(-2, keepdim=True)  # a tie is right in part
    accuracy = (1 + (right * counted).sum(-1, keepdim=True)) / (1 + counted.sum(-1, keepdim=True))
    chance = 1 / (known.sum(-1, keepdim=True) > 0).sum(-2, keepdim=True).clamp_min(2)
    return ((accuracy - chance) / (1 - chance)).clamp_min(LEAST_SKILL)


def _exponential(labelled: Labelled) -> Tensor:
    """Compute e of labelled examples, each left out of its own class: (..., k, s), centred.

    The mean of the others takes its place, so that prior examples weigh the same in all classes. If they weighed more
    in its own, that class would be the likeliest wherever features are sparse.
    """
    x, known, sums, counts, floor, _ = labelled
    rates = torch.maximum(sums / counts, floor).reciprocal()
    seen = known @ x
    n = known.mT @ known.sum(-1, keepdim=True)  # (..., s, 1) of its class
    others = (known.mT @ seen - x) * (n / (n - 1).clamp_min(1))
    own_rates = torch.maximum((others + known.mT @ (sums - seen)) / (known.mT @ counts), floor).reciprocal()
    own_density = (own_rates.log() - own_rates * x).sum(-1).unsqueeze(-2)
    return centre(torch.where(known > 0, own_density, rates.log().sum(-1, keepdim=True) - rates @ x.mT))


def _gaussian(labelled: Labelled, inner: Tensor, vectors: bool, counted: Tensor, scatter: float | Tensor) -> Tensor:
    """Compute g of labelled examples, each left out of its own class and of the metric: (..., k, s), centred."""
    known, counts = labelled.known, labelled.counts
    members = known / counts
    if vectors:
        shadow = inner @ discounted_directions(inner, known, scatter).mT
        of_centres = (members @ inner) @ inner.mT - (members @ shadow) @ shadow.mT
        squares = (inner.square().sum(-1) - shadow.square().sum(-1)).unsqueeze(-2)
    else:
        products = discounted_products(inner, known, scatter)
        of_centres, squares = members @ products, products.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    d = held_out_distances(of_centres, squares, known, counts, scatter)
    of_own = ((d * known).sum(-2, keepdim=True) * counted).sum(-1, keepdim=True)
    width = of_own / counted.sum(-1, keepdim=True).clamp_min(1)
    return centre(d * (-labelled.directions / 2 / width.clamp_min(LEAST_DISTANCE))) * counted


def _evidence(one: Tensor, other: Tensor, known: Tensor, counted: Tensor) -> Tensor:
    """Give the log-evidence of every weight of the other, scaled to the spread of the one: (..., weights)."""
    other = other * ratio(spread(one), spread(other))
    joint = torch.lerp(
        one.unsqueeze(-3), other.unsqueeze(-3), _like(one, WEIGHTS).view(-1, 1, 1)
    )  # (..., weights, k, s)
    right = (joint * known.unsqueeze(-3)).sum(-2)
    each = [((c * right - (c * joint).logsumexp(-2)) * counted).sum(-1) for c in FACTORS]
    return torch.stack(each, -1).logsumexp(-1)


def centre(x: Tensor) -> Tensor:
    """Have the scores of every sample sum to zero over the classes.

    Shapes: x (..., k, n) -> (..., k, n).

    >>> centre(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    return x - x.sum(-2, keepdim=True) / x.shape[-2]


def spread(x: Tensor) -> Tensor:
    """Give the length over classes and samples of scores that are centred.

    Shapes: x (..., k, n) -> (..., 1, 1).

    >>> spread(torch.tensor([[-3.0, 0.0], [3.0, 0.0]]))
    tensor([[4.2426]])
    """
    length: Tensor = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    return length


def ratio(x: Tensor, y: Tensor) -> Tensor:
    """Divide one spread by another. Where the other is zero, the scores that it is the spread of are zero too.

    Args:
        x: The spread that scores are to have.
        y: The spread that they have.

    >>> ratio(torch.tensor(3.0), torch.tensor(2.0))
    tensor(1.5000)
    """
    return x / y.clamp_min(LEAST_SPREAD)


def _like(x: Tensor, values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=x.dtype, device=x.device)

"""From vectors to scores and from scores to answers.

Unit vectors, class means (prototypes) and how well each query fits each class; then the best class, its probability
under a temperature, and how well both hold.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from likelyshot.errors import InputError, shown
from likelyshot.machine import inputs_are_checked

NOT_FINITE = (
    "expected finite features, but got NaN or infinity: check the encoder or the file that they come from "
    "(while training, a lower learning rate helps)"
)


def l2_normalise(x: Tensor) -> Tensor:
    """Scale every vector to unit Euclidean length, x / ||x||_2; a zero vector stays zero.

    Shapes: x (..., d) -> (..., d). Where squares could overflow or vanish, divides by the largest entry first. NaN
    and infinity are refused.

    >>> l2_normalise(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if inputs_are_checked():
        return x / torch.where(length > 0, length, 1)
    if length.numel() and float(length.detach().amin()) > 1e-15 and float(length.detach().amax()) < 1e15:
        return x / length
    if not bool(x.detach().isfinite().all()):
        raise InputError(NOT_FINITE)
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.detach().abs().amax(-1, keepdim=True).clamp_min(tiny)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / length.clamp_min(tiny)


def rectify(x: Tensor) -> Tensor:
    """Split signed features losslessly into non-negative ones, [relu(x), relu(-x)].

    Shapes: x (..., d) -> (..., 2d).

    >>> rectify(torch.tensor([1.0, -2.0]))
    tensor([1., 0., 0., 2.])
    """
    return torch.cat([x.clamp_min(0), (-x).clamp_min(0)], dim=-1)


def one_hot(labels: Tensor, n_ways: int, dtype: torch.dtype) -> Tensor:
    """Mark the class of every sample, 1[y = k].

    Shapes: labels (..., s) -> (..., s, k).

    Args:
        labels: Class of every sample, from 0.
        n_ways: Number of classes, k.
        dtype: Type of the result.

    >>> one_hot(torch.tensor([1, 0]), 2, torch.float32)
    tensor([[0., 1.],
            [1., 0.]])
    """
    return (labels.unsqueeze(-1) == torch.arange(n_ways, device=labels.device)).to(dtype)


def class_means(support: Tensor, labels: Tensor, n_ways: int) -> Tensor:
    """Average the support of every class: the prototypes m_k (Snell et al. 2017, eq. 1).

    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d). A class without support gets zeros.

    >>> class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2)
    tensor([[2.],
            [5.]])
    """
    member = one_hot(labels, n_ways, support.dtype)  # (..., s, k)
    share = member / member.sum(-2, keepdim=True).clamp_min(1)
    return share.transpose(-1, -2) @ support


def shrunk_means(support: Tensor, labels: Tensor, n_ways: int, shrinkage: float) -> Tensor:
    """Average the support of every class together with `shrinkage` examples that look like the average class.

    (n_k m_k + shrinkage m) / (n_k + shrinkage), with m the mean of the m_k. The mean of few examples is zero for some
    features that its class has, which puts it far from all queries: the fewer examples, the more so.
    Shapes: support (..., s, d), labels (..., s) or (s,) -> (..., k, d).

    Args:
        shrinkage: Number of examples of the average class; 0 gives `class_means`.

    >>> shrunk_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), n_ways=2, shrinkage=1.0)
    tensor([[2.5000],
            [4.2500]])
    """
    means = class_means(support, labels, n_ways)
    if shrinkage == 0:
        return means
    shots = one_hot(labels, n_ways, support.dtype).sum(-2).unsqueeze(-1)  # (..., k, 1)
    common = means.sum(-2, keepdim=True) / (shots > 0).sum(-2, keepdim=True).clamp_min(1)
    return (shots * means + shrinkage * common) / (shots + shrinkage)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Compute ||x - y||^2 of every pair by one matrix product.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k). Measured from the mean of y and in units of the
    largest entry: nothing cancels that need not, and nothing overflows before the result itself does.

    Args:
        x: Vectors, such as queries.
        y: Vectors that they are compared with, such as prototypes.

    >>> squared_distances(torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0], [0.0, 3.0]]))
    tensor([[25.,  0.]])
    """
    unit = torch.maximum(_largest(x), _largest(y)).clamp_min(torch.finfo(x.dtype).tiny)  # (..., 1, 1)
    x, y = x / unit, y / unit
    origin = y.mean(-2, keepdim=True)
    x, y = x - origin, y - origin
    squares = x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * x @ y.transpose(-1, -2)).clamp_min(0) * unit * unit


def _largest(x: Tensor) -> Tensor:
    x = x.detach()
    if x.shape[-2] == 0:
        return x.new_zeros(*x.shape[:-2], 1, 1)
    return torch.maximum(x.amax((-2, -1), keepdim=True), -x.amin((-2, -1), keepdim=True))


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Compute cos(x, y) = x.y / (||x|| ||y||) of every pair; 0 where a vector is zero.

    Shapes: x (..., q, d), y (..., k, d) -> (..., q, k).

    >>> cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, 0.0]]))
    tensor([[1., 0., 0.]])
    """
    return l2_normalise(x) @ l2_normalise(y).transpose(-1, -2)


#: The default bound of the rates: the paper's, or so many times the rate of the average feature where that is more.
PAPER_BOUND, RATE_BOUND = 40.0, 1.5


def rate_bound(means: Tensor, lambda_max: float | None = None) -> float | Tensor:
    """Give the largest rate of a task: lambda_max, or else 40, and 1.5 / the mean of all its features if that is more.

    It is more for long vectors of unit length, whose features are small: from about 300 to 600 features on.
    Shapes: means (..., k, d) -> (..., 1, 1), or the number that is given.

    Args:
        means: Mean of every feature of every class, non-negative.
        lambda_max: Largest rate, above 0, if it is given.

    >>> rate_bound(torch.tensor([[0.02, 0.0], [0.01, 0.01]]))
    tensor([[150.]])
    >>> rate_bound(torch.tensor([[0.2, 0.0]])), rate_bound(torch.tensor([[0.2, 0.0]]), 80.0)
    (tensor([[40.]]), 80.0)
    """
    if lambda_max is not None:
        return lambda_max
    mean = means.mean((-2, -1), keepdim=True)
    return torch.where(mean > 0, RATE_BOUND / mean, PAPER_BOUND).clamp(PAPER_BOUND, 1e12)


def exponential_rates(means: Tensor, lambda_max: float | Tensor) -> Tensor:
    """Estimate the rate of an exponential distribution, lambda = 1 / mean (paper eq. 3), at most lambda_max.

    Shapes: (...) -> (...). The mean is floored at 1 / lambda_max before the division: the same as clipping
    lambda (Algorithm 1, line 8), without a division by zero.

    Args:
        means: Mean of every feature, non-negative.
        lambda_max: Largest rate, above 0, as `rate_bound` gives it.

    >>> exponential_rates(torch.tensor([0.5, 0.0]), lambda_max=40.0)
    tensor([ 2., 40.])
    """
    return means.clamp_min(1 / lambda_max).reciprocal()


def exponential_log_likelihood(x: Tensor, rates: Tensor) -> Tensor:
    """Sum the exponential log-densities of a vector's features, sum_i log lambda_i - lambda . x (paper eq. 6).

    Shapes: x (..., q, d), rates (..., k, d) -> (..., q, k): a matrix product and a constant per class.

    Args:
        x: Non-negative vectors.
        rates: Rate of every feature of every class, above 0.

    >>> exponential_log_likelihood(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 1.0], [2.0, 0.5]]))
    tensor([[-3., -3.]])
    """
    return rates.log().sum(-1).unsqueeze(-2) - x @ rates.transpose(-1, -2)


#: Temperatures are sought within this factor of the scores' own spread, either way.
RANGE = 1e4


def confusion_counts(predicted: Tensor, truth: Tensor, n_ways: int) -> Tensor:
    """Count the queries of every task by true and predicted class.

    Shapes: predicted (t, q), truth (t, q) -> (t, k, k), true class first.

    >>> confusion_counts(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 0, 1]]), 2)
    tensor([[[1, 1],
             [0, 1]]])
    """
    pair = truth.long() * n_ways + predicted.long()
    counts = torch.zeros(len(pair), n_ways * n_ways, dtype=torch.int64, device=pair.device)
    counts.scatter_add_(1, pair, torch.ones_like(pair))
    return counts.view(-1, n_ways, n_ways)


def task_metrics(confusion: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute accuracy, balanced accuracy and macro-F1 of every task.

    Balanced accuracy is the mean recall of the classes that have queries; macro-F1 the mean F1 of the classes that
    have queries or predictions (both as in scikit-learn). Shapes: (t, k, k) -> three times (t,), float64.

    Args:
        confusion: Number of queries by true and predicted class, as `confusion_counts` gives it.

    >>> accuracy, balanced, f1 = task_metrics(torch.tensor([[[1, 1], [0, 1]]]))
    >>> round(accuracy.item(), 3), round(balanced.item(), 3), round(f1.item(), 3)
    (0.667, 0.75, 0.667)
    """
    confusion = confusion.double()
    right = confusion.diagonal(dim1=-2, dim2=-1)  # (t, k)
    actual, guessed = confusion.sum(-1), confusion.sum(-2)
    recall = right / actual.clamp_min(1)
    f1 = 2 * right / (actual + guessed).clamp_min(1)
    present, seen = actual > 0, actual + guessed > 0
    return (
        right.sum(-1) / actual.sum(-1),
        recall.sum(-1) / present.sum(-1),
        f1.sum(-1) / seen.sum(-1),
    )


def class_confusion(confusion: Tensor, classes: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Add the counts of all tasks up by class: how often true class a was taken for b, and could have been.

    Shapes: confusion (t, k, k), classes (t, k) -> twice (c, c), true class first.

    Args:
        confusion: Counts of every task, by `confusion_counts`.
        classes: Which class each way of a task is, from 0 to n_classes - 1.
        n_classes: Number of classes c of the whole data set.

    >>> wrong, chances = class_confusion(torch.tensor([[[1, 1], [0, 1]]]), torch.tensor([[2, 0]]), 3)
    >>> int(wrong[2, 0]), int(chances[2, 0]), int(chances[0, 2])
    (1, 2, 1)
    """
    classes = classes.long()
    pair = (classes[:, :, None] * n_classes + classes[:, None]).reshape(-1)  # (t k k,)
    queries = confusion.sum(-1, keepdim=True).expand_as(confusion)
    taken, could = (
        torch.zeros(n_classes * n_classes, dtype=torch.int64).index_add_(0, pair, counts.reshape(-1).long())
        for counts in (confusion, queries)
    )
    return taken.view(n_classes, n_classes), could.view(n_classes, n_classes)


def decide(scores: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Give the best class of every query and its probability in softmax(scores / temperature).

    Shapes: (..., k) -> (...) int64 and (...).

    Args:
        scores: Score of every class, higher is better.
        temperature: What scores are divided by before the softmax.

    >>> decide(torch.tensor([[0.0, 0.0], [0.0, 9.0]]))
    (tensor([0, 1]), tensor([0.5000, 0.9999]))
    """
    best, predicted = scores.max(-1)
    return predicted, (scores - best.unsqueeze(-1)).div_(temperature).exp_().sum(-1).reciprocal_()


def reliability_counts(top: Tensor, right: Tensor, bins: int = 15) -> Tensor:
    """Count, over bins of the largest probability: the queries, its sum, and the right ones.

    Bins are of equal width, ((b - 1) / bins, b / bins]. Shapes: top (n,), right (n,) -> (3, bins), float64.

    Args:
        top: The largest probability of each query.
        right: Whether the class with that probability is the true one.
        bins: Number of bins.

    >>> reliability_counts(torch.tensor([0.5, 0.9]), torch.tensor([False, True]), bins=2)
    tensor([[1.0000, 1.0000],
            [0.5000, 0.9000],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    place = (top * bins).ceil_().long().sub_(1).clamp_(0, bins - 1)
    count = torch.bincount(place, minlength=bins).double()
    return torch.stack([count, *(torch.bincount(place, x.double(), minlength=bins) for x in (top, right))])


def probabilities(scores: Tensor, temperature: float) -> Tensor:
    """Give softmax(scores / temperature) over the last dimension, in float64, finite for scores of any size.

    Shapes: (..., k) -> (..., k).

    Args:
        scores: Score of every class, higher is better.
        temperature: What scores are divided by: the larger, the closer all probabilities.

    >>> probabilities(torch.tensor([1000.0, 1000.0, -3e38]), 1.0)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    check_temperature(temperature, "try 1")
    scores = scores.double()
    return ((scores - scores.amax(-1, keepdim=True)) / temperature).softmax(-1)  # at worst -inf


def check_temperature(temperature: Any, hint: str) -> None:
    """Refuse anything but a positive finite number; unlike parameters it has the scale of the scores, which is any.

    Args:
        temperature: What was given.
        hint: What to do instead.
    """
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    try:
        positive = number and 0 < float(temperature) < math.inf
    except OverflowError:  # a whole number beyond the largest float
        positive = False
    if not positive:
        raise InputError(f"temperature must be a positive finite number, got {shown(temperature)}: {hint}")


def fit_temperature(
    scores: Tensor, labels: Tensor, *, weights: Tensor | None = None, default: float | None = None, spread: float = 1.0
) -> float:
    """Find the temperature under which the labels are the most probable.

    Minimises sum_i w_i -log softmax(scores_i / T)[y_i], and with a `default` T_0 also
    (log T - log T_0)^2 / (2 spread^2): the mode under a log-normal prior, which few examples move little.
    Where every label has the highest score, only the prior keeps T from zero.
    Shapes: scores (n, k), labels (n,), weights (n,).

    Args:
        weights: How much each example counts, 1 by default.
        default: Temperature T_0 that is assumed without examples; None for no prior.
        spread: Standard deviation of log T in the prior.

    >>> scores, labels = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0, 0, 1])
    >>> round(fit_temperature(scores, labels), 3)  # three in four are right: odds of 3 at a lead of 3
    2.731
    >>> round(fit_temperature(scores[:0], labels[:0], default=8.0), 3)
    8.0
    """
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise InputError(
            f"expected scores (n, k) and labels (n,), got {tuple(scores.shape)} and {tuple(labels.shape)}: one label "
            "for each row of scores"
        )
    if default is None and not len(scores):
        raise InputError("a temperature needs at least one scored example, got none: give a default")
    scores, labels = scores.double(), labels.long()
    behind = scores - scores.amax(-1, keepdim=True)  # (n, k)
    weights = torch.ones_like(behind[:, 0]) if weights is None else weights.double()
    size = float(-behind.clamp_min(-1e300).mean()) if len(behind) else 0.0
    if size == 0:  # all scores are equal: any temperature is as good
        return 1.0 if default is None else default
    centre = math.log(size)

    def loss(log_t: Tensor) -> Tensor:
        scaled = behind / log_t.exp().view(-1, 1, 1)  # (g, n, k)
        right = scaled.gather(-1, labels.view(1, -1, 1).expand(len(log_t), -1, 1)).squeeze(-1)
        total = (weights * (scaled.logsumexp(-1) - right)).sum(-1)
        return total if default is None else total + (log_t - math.log(default)).square() / (2 * spread**2)

    reach = math.log(RANGE)
    low, high = centre - reach, centre + reach
    if default is not None:
        low, high = min(low, math.log(default) - reach), max(high, math.log(default) + reach)
    few = behind.numel() <= 20_000  # then a finer grid at once costs less than more rounds
    points = 33 if few else 9
    while high - low > 1e-8 * max(1.0, abs(low)):
        grid = torch.linspace(low, high, points, dtype=torch.float64, device=behind.device)
        best = int((loss(grid) if few else torch.cat([loss(grid[i : i + 1]) for i in range(points)])).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, points - 1)])
    return math.exp((low + high) / 2)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Average over bins of the largest probability how far it is from the share of right answers (top-label ECE).

    Each bin of equal width counts by its examples (Guo et al. 2017). Shapes: probabilities (..., k), labels (...).

    Args:
        probabilities: Probability of every class.
        labels: The true classes.
        bins: Number of bins.

    >>> sure = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    >>> round(calibration_error(sure, torch.tensor([0, 1, 1])), 3)  # (2 |0.9 - 0.5| + |0.6 - 1|) / 3
    0.4
    """
    if bins < 1:
        raise InputError(f"bins must be 1 or more, got {bins}: try 15")
    if not labels.numel():
        raise InputError("a calibration error needs at least one example, got none: give some")
    top, predicted = probabilities.double().reshape(-1, probabilities.shape[-1]).max(-1)
    count, confidence, correct = reliability_counts(top, predicted == labels.reshape(-1).to(predicted), bins)
    return float((confidence - correct).abs().sum() / count.sum())

"""The combined metric: several scores through joint Gaussian CDFs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional.checks import check_choice, check_ways, prepare
from likelyshot.functional.normal_cdf import normal_log_cdf
from likelyshot.methods.calibration import Calibration, Gaussian, check_metrics
from likelyshot.methods.cosine import cosine
from likelyshot.methods.euclidean import euclidean
from likelyshot.methods.mll import mll


def score_columns(
    support: Tensor | Sequence[Tensor],
    labels: Tensor,
    query: Tensor | Sequence[Tensor],
    *,
    n_ways: int,
    metrics: Sequence[str],
    lambda_max: float | None,
    normalise: bool,
) -> Tensor:
    """Put the scores of one to three metrics side by side, alpha = [a_euc, a_cos, a_mll] (paper eq. 7-9).

    Shapes: support (..., s, d) or one such per metric, query (..., q, d) likewise -> (..., q, k, n), float64.

    Args:
        metrics: Names of the metrics, of "euclidean", "cosine" and "mll", in the order of the columns.
        lambda_max: Upper bound of the rates of MLL, as in `mll`.
        normalise: Scale every vector to unit length first.
    """
    metrics = check_metrics(metrics)
    supports = [support] * len(metrics) if isinstance(support, Tensor) else support
    queries = [query] * len(metrics) if isinstance(query, Tensor) else query
    if not len(supports) == len(queries) == len(metrics):
        raise InputError(
            f"expected features of one network, or of one network per metric ({len(metrics)}: {', '.join(metrics)}), "
            f"got {len(supports)} of the support and {len(queries)} of the query"
        )
    pairs = list(zip(supports, queries, strict=True))
    # once for a network that metrics share
    prepared = {(id(s), id(q)): prepare(s, labels, q, n_ways, normalise) for s, q in pairs}
    score = {
        "euclidean": functools.partial(euclidean, normalise=False),
        "cosine": functools.partial(cosine, normalise=False),
        "mll": functools.partial(mll, normalise=False, lambda_max=lambda_max),
    }
    columns = []
    for metric, (s, q) in zip(metrics, pairs, strict=True):
        s, q = prepared[id(s), id(q)]
        columns.append(score[metric](s, labels, q, n_ways=n_ways).double())
    return torch.stack(columns, dim=-1)


def combined(
    support: Tensor | Sequence[Tensor],
    labels: Tensor,
    query: Tensor | Sequence[Tensor],
    *,
    n_ways: int,
    calibration: Calibration,
    rule: str = "youden",
) -> Tensor:
    """Score by how probable the metrics' joint values are within a class, and how improbable across classes.

    Paper: Hess & Ditzler, A maximum log-likelihood method for imbalanced few-shot learning tasks.
    Equations 7-12: P_tp = F_intra(alpha), P_fp = 1 - F_cross(alpha), F the joint Gaussian CDF of
    the calibration; the class with the largest P_tp - P_fp (Youden) wins. Returned is an increasing function of
    that index which does not tie in the tails, see `RULES`.
    Shapes: support (..., s, d) or one such per metric of the calibration, labels (..., s), query likewise
    -> (..., q, k), float64.

    Args:
        calibration: Gaussians of the scores of right and of wrong (query, class) pairs, made by `likelyshot.calibrate`
            from validation tasks of the same ways, shots and feature dimensions.
        rule: Index that decides: "youden" (the paper's), "closest" or "concordance", see `RULES`.

    >>> from likelyshot.methods.calibration import fit_calibration
    >>> support, query = torch.eye(2), torch.tensor([[1.0, 0.2], [0.1, 1.0], [1.0, 0.7]])
    >>> labels, truth, metrics = torch.tensor([0, 1]), torch.tensor([0, 1, 0]), ("cosine", "mll")
    >>> columns = score_columns(support, labels, query, n_ways=2, metrics=metrics, lambda_max=40.0, normalise=True)
    >>> calibration = fit_calibration(columns, truth, metrics=metrics, shots=1, dims=(2, 2))
    >>> combined(support, labels, query, n_ways=2, calibration=calibration).argmax(-1)
    tensor([0, 1, 0])
    """
    check_choice("rule", rule, RULES)
    check_calibration(calibration)
    check_ways(n_ways)
    first = support if isinstance(support, Tensor) else support[0]
    dims = (first.shape[-1],) * len(calibration.metrics)
    if not isinstance(support, Tensor):
        dims = tuple(s.shape[-1] for s in support)
    calibration.check(ways=n_ways, shots=first.shape[-2] / n_ways, dims=dims)
    columns = score_columns(
        support,
        labels,
        query,
        n_ways=n_ways,
        metrics=calibration.metrics,
        lambda_max=calibration.lambda_max,
        normalise=calibration.normalise,
    )
    return RULES[rule](*_tails(columns, calibration.intra), *_tails(columns, calibration.cross))


def check_calibration(calibration: Any) -> None:
    """Refuse anything but a calibration of the combined metric."""
    if not isinstance(calibration, Calibration):
        raise InputError(
            f"expected a likelyshot.Calibration, got {type(calibration).__name__}: make one with "
            "likelyshot.calibrate(validation features, tasks), or read one with likelyshot.Calibration.load(path)"
        )


def _tails(columns: Tensor, gaussian: Gaussian) -> tuple[Tensor, Tensor]:
    """Log F and log(1 - F) of the Gaussian over its independent columns."""
    used = list(gaussian.independent)
    mean = torch.tensor(gaussian.mean, dtype=columns.dtype)[used]  # on the host, which asks the matrix for its values
    covariance = torch.tensor(gaussian.covariance, dtype=columns.dtype)[used][:, used]
    deviation = covariance.diagonal().sqrt()
    correlation = covariance / (deviation.unsqueeze(-1) * deviation)
    return normal_log_cdf((columns[..., used] - mean.to(columns)) / deviation.to(columns), correlation)


def _youden(log_tp: Tensor, log_fn: Tensor, log_tn: Tensor, log_fp: Tensor) -> Tensor:
    """J = P_tp - P_fp, as log (1 + J) / (1 - J) = log (P_tp + P_tn) / (P_fn + P_fp)."""
    return torch.logaddexp(log_tp, log_tn) - torch.logaddexp(log_fn, log_fp)


def _closest(log_tp: Tensor, log_fn: Tensor, log_tn: Tensor, log_fp: Tensor) -> Tensor:
    """-d, d^2 = P_fn^2 + P_fp^2 the squared distance to (0, 1), as log (2 - d^2) / d^2."""
    near = torch.logaddexp(log_tp + log_fn.exp().log1p(), log_tn + log_fp.exp().log1p())
    return near - torch.logaddexp(2 * log_fn, 2 * log_fp)


def _concordance(log_tp: Tensor, log_fn: Tensor, log_tn: Tensor, log_fp: Tensor) -> Tensor:
    """C = P_tp (1 - P_fp), as log C / (1 - C)."""
    return log_tp + log_tn - torch.logaddexp(log_fn, log_tp + log_fp)


#: Decision rules, each an increasing function of the published index in which the tails do not round to a tie:
#: where 1 + J is 1e-30 for every class, J itself is -1 for all of them, but its logarithm still orders them.
RULES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "youden": _youden,
    "closest": _closest,
    "concordance": _concordance,
}

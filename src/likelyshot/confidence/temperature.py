"""How sure a method may be: a temperature from the labelled examples alone, or from validation tasks.

Scores are far too sure of themselves: MLL adds up 1,280 features as if they were independent. Probabilities are
softmax(scores / T). What T has to be depends on the method, the shots and the features, but hardly in units of the
gap: how far the support's own class leads the others when the support is scored against itself. T = factor x gap is
the default; examples that are held out of the support correct it. docs/results/confidence.md has the figures.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from likelyshot.errors import InputError
from likelyshot.functional import temperature as temperatures
from likelyshot.functional.temperature import probabilities as probabilities
from likelyshot.methods import Method, facts_of
from likelyshot.methods.binding import parameters_of
from likelyshot.methods.calibration import Calibration

#: Items of the pile, drawn at random, that held-out examples join for a transductive method.
PILE = 200


class Prior(NamedTuple):
    """A log-normal prior of the temperature: exp(log(factor x gap) +- spread)."""

    factor: float
    spread: float


INDUCTIVE, TRANSDUCTIVE = Prior(0.07, 0.5), Prior(0.09, 0.5)


@dataclass(frozen=True, eq=False)
class Held:
    """Scores of labelled examples by a method that did not see their labels; m of them, an example may recur."""

    scores: Tensor  # (m, k) float64, in units of their run's gap
    labels: Tensor  # (m,) int64
    rows: Tensor  # (m,) int64, place in the support
    gap: float  # of the whole support, in units of the scores

    @property
    def weights(self) -> Tensor:
        """One for every example, shared by its recurrences, (m,)."""
        return 1 / self.rows.bincount()[self.rows].double()

    @property
    def class_weights(self) -> Tensor:
        """The same for every class, worth as many equal examples as they are: (sum w)^2 / sum w^2, (m,)."""
        share = self.weights / self.labels.bincount(self.weights)[self.labels]
        return share * share.sum() / (share * share / self.weights).sum()


def is_transductive(method: Method) -> bool:
    """Whether what a query gets may depend on the other queries; assumed of methods that we do not know."""
    return facts_of(method).kind == "transductive"


def prior_of(method: Method) -> Prior:
    """Give what is known of a method's temperature before it has seen an example."""
    own, prior = facts_of(method).temperature, TRANSDUCTIVE if is_transductive(method) else INDUCTIVE
    return prior if own is None else prior._replace(factor=own)


def held_out(
    method: Method,
    support: Tensor,
    labels: Tensor,
    n_ways: int,
    *,
    query: Tensor | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> Held:
    """Score labelled examples by a method that was given only the others.

    The support is split into folds, each with an example of every class where it has as many, so that no class is
    short of shots alone: 5-shot supports give 5 folds of 4 shots. Splits are repeated while `runs` allow: 10 of a
    method by a formula, 5 of transductive MLL, 3 of methods that may take long. A class with one example keeps it:
    it is a wrong class for the others, and never held out. For transductive methods, held-out examples join the
    `query` pile (at most 200 of it).
    Shapes: support (n, d), labels (n,), query (q, d).

    >>> support, labels = torch.tensor([[3.0, 4.0], [3.0, 4.2], [4.0, 3.0]]), torch.tensor([0, 0, 1])
    >>> from likelyshot.methods import METHODS
    >>> held = held_out(METHODS["cosine"], support, labels, 2, runs=2)
    >>> sorted(held.rows.tolist()), held.scores.argmax(-1).tolist()  # row 2 is the only one of its class
    ([0, 1], [0, 0])
    """
    if support.ndim != 2 or labels.shape != support.shape[:1]:
        raise InputError(
            f"expected support (n, d) and labels (n,), got {tuple(support.shape)} and {tuple(labels.shape)}: one label "
            "for each row"
        )
    facts = facts_of(method)
    runs = runs or (10 if facts.kind == "closed form" else facts.runs)
    pile = _pile(query, seed).to(support) if query is not None and is_transductive(method) else support[:0]
    generator = torch.Generator().manual_seed(seed)
    whole = gap_of(method, support, labels, n_ways)
    scores, rows = [support.new_empty(0, n_ways, dtype=torch.float64)], [labels.new_empty(0)]
    for out in _splits(labels.cpu(), runs, generator):
        out = out.to(labels.device)
        keep = torch.ones_like(labels, dtype=torch.bool).index_fill_(0, out, False)
        few, few_labels = support[keep], labels[keep]
        run = _for_shots(method, len(few) / n_ways)
        if is_transductive(method):
            held = run(few, few_labels, torch.cat([support[out], pile]), n_ways=n_ways)[: len(out)]
            gap = gap_of(run, few, few_labels, n_ways)
        else:
            both = run(few, few_labels, torch.cat([support[out], few]), n_ways=n_ways)
            held, gap = both[: len(out)], _lead(both[len(out) :], few_labels)
        scores.append(held.double() / gap if gap > 0 else torch.zeros_like(held, dtype=torch.float64))
        rows.append(out)
    place = torch.cat(rows)
    return Held(torch.cat(scores), labels[place], place, whole)


def temperature_of(held: Held, prior: Prior = INDUCTIVE) -> float:
    """Give the likeliest temperature: `prior.factor` x gap, corrected by what the held-out examples show.

    Every class counts the same, however many examples it has. No held-out example, as with one example in every
    class, leaves the default.

    >>> nothing = Held(torch.zeros(0, 2), torch.zeros(0).long(), torch.zeros(0).long(), gap=200.0)
    >>> round(temperature_of(nothing), 3)
    14.0
    """
    if not 0 < held.gap < float("inf"):  # a support that does not tell its classes apart
        return 1.0
    known = held.scores.isfinite().all(-1)
    factor = temperatures.fit_temperature(
        held.scores[known],
        held.labels[known],
        weights=held.class_weights[known],
        default=prior.factor,
        spread=prior.spread,
    )
    return factor * held.gap


def support_temperature(
    method: Method, support: Tensor, labels: Tensor, n_ways: int, *, query: Tensor | None = None, seed: int = 0
) -> float:
    """Give the temperature of a method's scores from the labelled examples: `held_out`, then `temperature_of`.

    Shapes: support (n, d), labels (n,), query (q, d), which matters to transductive methods only.

    >>> from likelyshot.methods import METHODS
    >>> support, labels = torch.tensor([[3.0, 4.0], [4.0, 3.0]]), torch.tensor([0, 1])
    >>> round(support_temperature(METHODS["cosine"], support, labels, 2), 5)  # 0.07 (1 - cosine)
    0.0028
    """
    held = held_out(method, support, labels, n_ways, query=query, seed=seed)
    return temperature_of(held, prior_of(method))


def gap_of(method: Method, support: Tensor, labels: Tensor, n_ways: int) -> float:
    """Measure by how much the support's own class leads the mean of the others, the support scored against itself.

    The unit in which a method's temperature hardly depends on shots, ways or, among the inductive ones, method; it is
    larger with few features. Shapes: support (n, d), labels (n,).
    """
    return _lead(method(support, labels, support, n_ways=n_ways), labels)


def _lead(scores: Tensor, labels: Tensor) -> float:
    scores = scores.double()
    own = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    others = (scores.sum(-1) - own) / max(scores.shape[-1] - 1, 1)
    return float((own - others).mean())


def _splits(labels: Tensor, runs: int, generator: torch.Generator) -> list[Tensor]:
    """Choose the rows that each run holds out: at least one, never the last of a class."""
    sizes = labels.bincount()
    if runs < 2:
        raise InputError(f"runs must be 2 or more, got {runs}: each run holds out a part of the examples")
    folds = min(runs, int(sizes.max()))
    if folds < 2:
        return []
    splits = []
    for _ in range(runs // folds):
        fold = torch.full_like(labels, -1)
        for label in dict.fromkeys(labels.tolist()):  # in the order of the rows: names of classes do not matter
            size = int(sizes[label])
            if size > 1:
                fold[labels == label] = torch.randperm(max(size, folds), generator=generator)[:size] % folds
        splits += [out for index in range(folds) if len(out := (fold == index).nonzero().flatten())]
    return splits


def _pile(query: Tensor, seed: int) -> Tensor:
    if len(query) <= PILE:
        return query
    chosen = torch.randperm(len(query), generator=torch.Generator().manual_seed(seed))[:PILE]
    return query[chosen.sort().values.to(query.device)]


def _for_shots(method: Method, shots: float) -> Method:
    """Let the combined metric use its calibration for a support that lacks the held-out examples."""
    calibration = parameters_of(method).get("calibration")
    if isinstance(calibration, Calibration):
        return functools.partial(method, calibration=replace(calibration, shots=shots))
    return method

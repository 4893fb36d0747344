"""Print how the likelihood mixture compares: with every rival, without each of its parts, and on piles of many classes.

python -m tools.ahead cells|shapes|ablation|piles|trust [NAME=FEATURES ...] [--split val] [--tasks 300] [--draws 8]

Without features, those of the packaged CUB networks. Statistics of base classes come from the same file, if it has
them; methods that need them are left out where it does not. Differences are paired, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from tools.calibration import print_table
from torch import Tensor

from likelyshot import Balanced, Dirichlet, Features, InputError, evaluate, sample_tasks
from likelyshot.confidence.held_out import expectation_from
from likelyshot.data.features import Base, splits
from likelyshot.data.packaged import NETWORKS
from likelyshot.data.results import mean_ci95
from likelyshot.functional.scores import l2_normalise
from likelyshot.methods import METHODS, Method
from likelyshot.methods.binding import needs_of, takes_of
from likelyshot.methods.facts import BASE_STATISTICS, STATISTICS
from likelyshot.methods.likelihood_mixture import Constants, fit_mixture
from likelyshot.own_data.model import Model

OURS = "likelihood_mixture"
SLOW = ("lr_ici", "alpha_tim", "tim", "entropy_min", "baseline", "baseline_pp", "logistic", "svm")
NOT_HERE = ("combined", "euclidean", "cosine", "protonet", "matching")
KINDS = ("dirichlet 1", "dirichlet 2", "dirichlet 5", "balanced")
#: What is left when a part is taken away.
ABLATION: dict[str, dict[str, Any]] = {
    "no exponential likelihood": {"exponential": 0.0},
    "no Gaussian likelihood": {"exponential": 1.0},
    "both likelihoods count half": {"exponential": 0.5},
    "no logistic regression": {"regression": 0.0},
    "regression counts half": {"regression": 0.5},
    "no square root": {"power": 1.0},
    "no prior examples": {"prior_examples": 1e-6},
    "no scatter within classes": {"prior_scatter": 1e6},
    "no scatter of the queries": {"query_directions": 1e-6},
    "equal shares": {"prior_queries": 1e9},
    "no neighbours": {"agreement": 0.0},
    "no trust in the support alone": {"trusted_shots": 1e9},
    "queries of no class count": {"background": 1e9},
    "25 directions": {"directions": 25.0},
    "60 directions": {"directions": 60.0},
    "answers are worth as much as labels": {"skill": 1.0},
    "prior scatter 0.25 for all": {"prior_scatter": 0.25},
    "prior scatter 1 for all": {"prior_scatter": 1.0},
}


class Pile(NamedTuple):
    """What a pile is drawn like."""

    ways: int
    shots: int
    size: int
    kind: str  # of the shares: dirichlet, balanced, or absent: dirichlet, and nothing of the first class
    foreign: float = 0.0  # share of things of no class


PILES = (
    *(Pile(20, shots, 400, "dirichlet") for shots in (1, 2, 3, 5, 10)),
    Pile(20, 5, 400, "balanced"),
    *(Pile(20, 5, size, "dirichlet") for size in (60, 5000)),
    Pile(10, 5, 400, "dirichlet"),
    Pile(10, 5, 400, "dirichlet", 0.2),
    Pile(10, 1, 400, "dirichlet", 0.2),
)

#: Items of a pile up to which protoLP, whose graph is solved, takes no more than seconds.
LARGEST_GRAPH = 1000
#: Tasks of other shapes than 5-way with 1 and 5 shots and 75 queries.
SHAPES = (
    *(Pile(5, shots, 75, "dirichlet") for shots in (10, 20)),
    *(Pile(ways, shots, 15 * ways, "dirichlet") for ways in (10, 20) for shots in (1, 5)),
    *(Pile(5, shots, size, "dirichlet") for size in (20, 500) for shots in (1, 5)),
    *(Pile(5, shots, 75, "absent") for shots in (1, 5)),
)
INDUCTIVE = ("likelihood", "mll", "euclidean", "cosine", "ridge")  # and logistic, which is slower


def plan(kind: str, per_class: int) -> Balanced | Dirichlet:
    """Give the plan of a cell; smaller where classes are small."""
    if kind == "balanced":
        return Balanced(min(15, per_class // 2))
    total, alpha = min(75, 2 * per_class), float(kind.split()[1])
    return Dirichlet(total, alpha)


def statistics(name: str, base: Base | None) -> dict[str, Tensor] | None:
    """Bind what a method needs; None where it is not known."""
    needs, takes = needs_of(METHODS[name]), takes_of(METHODS[name])
    known = {} if base is None else {key: getattr(base, STATISTICS[key].base) for key in BASE_STATISTICS}
    usable = {key: value for key, value in known.items() if value is not None and key in [*needs, *takes]}
    return usable if set(needs) <= usable.keys() else None


def difference(ours: np.ndarray, other: np.ndarray) -> str:
    """Show accuracy in % and the paired difference to ours."""
    mean, half = mean_ci95(ours - other)
    return f"{100 * other.mean():.1f} ({100 * mean:+.2f} ± {100 * half:.2f})"


def note(text: str) -> None:
    """Say on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)


def cells(name: str, features: Features, base: Base | None, options: argparse.Namespace) -> None:
    """Compare with rivals on 5-way tasks."""
    fewest = int(features.counts.min())
    tasks_of = {
        cell: sample_tasks(
            features.labels, n_tasks=options.tasks, ways=5, shots=cell[1], query=plan(cell[0], fewest - cell[1]), seed=7
        )
        for cell in options.cells
    }
    rivals = [m for m in METHODS if m not in (OURS, *NOT_HERE) and (options.slow_tasks or m not in SLOW)]
    table: list[list[str]] = []
    ours: dict[tuple[str, int], np.ndarray] = {}
    without = [f"{OURS}, no base classes"] if statistics(OURS, base) else []
    for row_name in [OURS, *without, *(options.rivals or rivals)]:
        method = row_name.split(",")[0]
        bound = {} if row_name in without else statistics(method, base)
        if bound is None:
            continue
        row = [row_name]
        count = min(options.tasks, options.slow_tasks or options.tasks) if method in SLOW else options.tasks
        for cell, tasks in tasks_of.items():
            note(f"{name}: {row_name}, {cell[0]}, {cell[1]}-shot, {count} tasks")
            run = functools.partial(METHODS[method], **bound)
            accuracy = evaluate(run, features, tasks[:count], workers=options.workers).accuracy
            ours.setdefault(cell, accuracy)
            row.append(f"{100 * accuracy.mean():.2f}" if row_name == OURS else difference(ours[cell][:count], accuracy))
        table.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    split = features.source.get("split", options.split)
    title = f"{name}, {split} classes, {options.tasks} tasks: accuracy in % (ours minus it)"
    print_table(title, ["method", *(f"{kind}, {shots}-shot" for kind, shots in tasks_of)], table)


def ablation(name: str, features: Features, base: Base | None, options: argparse.Namespace) -> None:
    """Take one part away after the other."""
    fewest = int(features.counts.min())
    tasks_of = {
        cell: sample_tasks(
            features.labels, n_tasks=options.tasks, ways=5, shots=cell[1], query=plan(cell[0], fewest - cell[1]), seed=7
        )
        for cell in options.cells
    }
    wanted = (Pile(20, 5, 400, "dirichlet"), Pile(20, 10, 400, "dirichlet"), Pile(20, 5, 3000, "dirichlet"))
    piles = list(dict.fromkeys(fitted(pile, features) for pile in wanted))
    table: list[list[str]] = []
    ours: dict[object, np.ndarray] = {}
    for part, change in {OURS: {}, **ABLATION}.items():
        note(f"{name}: {part}")
        run = functools.partial(with_constants, constants=Constants()._replace(**change))
        row = [part]
        for key in (*tasks_of, *piles):
            if isinstance(key, Pile):
                accuracy = np.array([right(run, *draw(features, key, i), key.ways) for i in range(options.draws)])
            else:
                accuracy = evaluate(run, features, tasks_of[key], workers=options.workers).accuracy
            ours.setdefault(key, accuracy)
            row.append(f"{100 * accuracy.mean():.1f}" if part == OURS else difference(ours[key], accuracy))
        table.append(row)
    head = [
        *(f"{kind}, {shots}-shot" for kind, shots in tasks_of),
        *(f"{p.ways}-way {p.shots}-shot pile of {p.size:,}" for p in piles),
    ]
    print_table(f"{name}, {options.split} classes: accuracy in % (whole minus it)", ["", *head], table)


def with_constants(
    support: Tensor,
    labels: Tensor,
    query: Tensor,
    *,
    n_ways: int,
    constants: Constants,
    base_within: Tensor | None = None,
) -> Tensor:
    """Score by the mixture with other constants."""
    fit = fit_mixture(support, labels, query, n_ways=n_ways, base_within=base_within, constants=constants)
    return fit.scores(query)


def fitted(pile: Pile, features: Features) -> Pile:
    """Make a pile that the classes suffice for."""
    classes = len(features.classes)
    ways = min(pile.ways, classes if not pile.foreign else classes * 2 // 3)
    room = int(features.counts.sort().values[-ways:].sum()) - ways * pile.shots
    return pile._replace(ways=ways, size=min(pile.size, int(room * 0.6)))


def draw(features: Features, pile: Pile, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw labelled examples with their classes, and a pile with its own, -1 where it is of none of them."""
    generator = np.random.default_rng([17, seed, *pile[:3]])
    labels = features.labels.numpy()
    order = generator.permutation(len(features.classes))
    rows = [generator.permutation(np.flatnonzero(labels == c)) for c in order[: pile.ways]]
    foreign = int(pile.size * pile.foreign)
    even = np.full(pile.ways, 1 / pile.ways)
    shares = even if pile.kind == "balanced" else generator.dirichlet(2 * np.ones(pile.ways))
    if pile.kind == "absent":
        shares[0] = 0
    wanted = (pile.size - foreign) * shares / shares.sum()
    room = np.where(shares > 0, [len(r) - pile.shots for r in rows], 0)
    counts = np.minimum(np.floor(wanted).astype(int), room)
    while counts.sum() < min(pile.size - foreign, room.sum()):
        counts[np.argmax(np.where(counts < room, wanted - counts, -np.inf))] += 1
    support = np.concatenate([r[: pile.shots] for r in rows])
    query = [r[pile.shots : pile.shots + n] for r, n in zip(rows, counts, strict=True)]
    truth = [np.full(n, k) for k, n in enumerate(counts)]
    if foreign:
        others = order[pile.ways :]
        pool = np.flatnonzero(np.isin(labels, others[: max(3, len(others) // 3)]))
        query.append(generator.permutation(pool)[:foreign])
        truth.append(np.full(len(query[-1]), -1))
    shuffled = generator.permutation(sum(map(len, query)))
    vectors = features.vectors.float()
    return (
        vectors[support],
        torch.arange(pile.ways).repeat_interleave(pile.shots),
        vectors[np.concatenate(query)[shuffled]],
        torch.from_numpy(np.concatenate(truth)[shuffled]),
    )


def right(run: Method, support: Tensor, labels: Tensor, query: Tensor, truth: Tensor, ways: int) -> float:
    """Give the share of a pile, foreign things left out, that is named rightly."""
    of_class = truth >= 0
    return float((run(support, labels, query, n_ways=ways).argmax(-1)[of_class] == truth[of_class]).double().mean())


def scikit_learn(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int) -> Tensor:
    """Score by scikit-learn's logistic regression on unit vectors, C by its own cross-validation; 100 at one shot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = logistic_regression(support, labels)
    return torch.from_numpy(model.predict_log_proba(l2_normalise(query).numpy()))


def logistic_regression(support: Tensor, labels: Tensor) -> Any:
    """Fit scikit-learn's logistic regression to unit vectors; C_ has the strengths that it chose."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    fewest = int(torch.bincount(labels).min())
    if fewest > 1:
        model = LogisticRegressionCV(Cs=[1, 10, 100, 1000], cv=min(5, fewest), max_iter=300, tol=1e-3)
    else:
        model = LogisticRegression(C=100.0, max_iter=300, tol=1e-3)
    return model.fit(l2_normalise(support).numpy(), labels.numpy())


def self_training(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int) -> Tensor:
    """Score by scikit-learn's self-training of that logistic regression: answers above 75 % become labels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import SelfTrainingClassifier

    x, y = with_pile(support, labels, query)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = np.median(getattr(logistic_regression(support, labels), "C_", 100.0))
        model = SelfTrainingClassifier(LogisticRegression(C=float(chosen), max_iter=300, tol=1e-3)).fit(x, y)
    return torch.from_numpy(model.predict_log_proba(x[len(labels) :]))


def label_spreading(support: Tensor, labels: Tensor, query: Tensor, *, n_ways: int) -> Tensor:
    """Score by scikit-learn's label spreading; of gamma 5 and 20 and 4 and 7 neighbours, the best on validation."""
    from sklearn.semi_supervised import LabelSpreading

    model = LabelSpreading(gamma=5.0, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*with_pile(support, labels, query))
    return torch.from_numpy(model.label_distributions_[len(labels) :])


def with_pile(support: Tensor, labels: Tensor, query: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Put labelled examples and a pile together as scikit-learn has it: unit vectors, -1 where there is no label."""
    x = l2_normalise(torch.cat([support, query])).numpy()
    return x, np.concatenate([labels.numpy(), np.full(len(query), -1)])


def piles(name: str, features: Features, base: Base | None, options: argparse.Namespace) -> None:
    """Compare with what a user would do without us, on piles of many classes."""
    runs: dict[str, Callable[..., Tensor]] = {
        OURS: METHODS[OURS],
        "ours, one at a time": functools.partial(METHODS[OURS], iterations=0),
        "scikit-learn": scikit_learn,
        "self-training": self_training,
        "label spreading": label_spreading,
        "baseline_pp": METHODS["baseline_pp"],
        "mll_transductive": functools.partial(METHODS["mll_transductive"], shrinkage=1.0),
        "protolp": METHODS["protolp"],
    }
    table = []
    for pile in dict.fromkeys(fitted(p, features) for p in PILES):
        note(f"{name}: {pile}")
        draws = [draw(features, pile, i) for i in range(options.draws)]
        quick = {key: run for key, run in runs.items() if key != "protolp" or pile.size <= LARGEST_GRAPH}
        results = {key: np.array([right(run, *d, pile.ways) for d in draws]) for key, run in quick.items()}
        title = f"{pile.ways}-way {pile.shots}-shot, {pile.size} {pile.kind}"
        shown = [difference(results[OURS], results[key]) if key in results else "-" for key in list(runs)[1:]]
        table.append(
            [
                title + (f", {pile.foreign:.0%} foreign" if pile.foreign else ""),
                f"{100 * results[OURS].mean():.1f}",
                *shown,
            ]
        )
    print_table(
        f"{name}, {options.split} classes, {options.draws} draws: accuracy in % (ours minus it)", ["pile", *runs], table
    )


def shapes(name: str, features: Features, base: Base | None, options: argparse.Namespace) -> None:
    """Compare with the best inductive method on tasks of other shapes."""
    table = []
    for pile in dict.fromkeys(fitted(p, features) for p in SHAPES):
        note(f"{name}: {pile}")
        draws = [draw(features, pile, i) for i in range(options.draws)]
        results = {key: np.array([right(METHODS[key], *d, pile.ways) for d in draws]) for key in (OURS, *INDUCTIVE)}
        few = draws[: max(options.draws // 5, 1)]
        results["logistic"] = np.array([right(METHODS["logistic"], *d, pile.ways) for d in few])
        shown = {key: difference(results[OURS][: len(values)], values) for key, values in results.items()}
        best = max(INDUCTIVE, key=lambda key: results[key].mean())
        absent = ", one class absent" if pile.kind == "absent" else ""
        title = f"{pile.ways}-way {pile.shots}-shot, {pile.size} queries{absent}"
        table.append([title, f"{100 * results[OURS].mean():.1f}", f"{best} {shown[best]}", shown["logistic"]])
    head = ["task", OURS, "best of five", f"logistic, {max(options.draws // 5, 1)} tasks"]
    title = f"{name}, {options.split} classes, {options.draws} tasks: accuracy in % (ours minus it)"
    print_table(title, head, table)


def trust(name: str, features: Features, base: Base | None, options: argparse.Namespace) -> None:
    """Compare what `classify` says of a pile with what is true of it."""
    table = []
    wanted = [Pile(*pair, 400, "dirichlet") for pair in TRUST if pair[1] in (options.shots or pair)]
    for pile in dict.fromkeys(fitted(pile, features) for pile in wanted):
        note(f"{name}: {pile}")
        draws = [draw(features, pile, 1000 + i) for i in range(options.draws)]
        rows = np.array([judged(*each, options.method) for each in draws])
        right, expected, low, high, calibration, confidence, shares, counts = rows.T
        covered = "-" if np.isnan(expected).any() else f"{100 * ((low <= right) & (right <= high)).mean():.0f} %"
        shown = "-" if np.isnan(expected).any() else f"{100 * expected.mean():.1f}"
        errors = [f"{values.mean():.3f}" for values in (calibration, shares, counts)]
        title = f"{pile.ways}-way {pile.shots}-shot, {pile.size}"
        table.append([title, f"{100 * right.mean():.1f}", shown, covered, f"{100 * confidence.mean():.1f}", *errors])
    head = ["pile", "right", "expected", "within interval", "mean probability", "calibration error", "shares", "counts"]
    print_table(f"{name}, {options.split} classes, {options.draws} draws: what classify says, in %", head, table)


#: Ways and shots of the piles of `trust`.
TRUST = [(5, 1), (20, 1), (20, 2), (20, 3), (20, 5), (20, 10)]


def judged(support: Tensor, labels: Tensor, query: Tensor, truth: Tensor, method: str | None) -> tuple[float, ...]:
    """Classify a pile as `classify` does, and compare probabilities, expectation and shares with the truth."""
    ways = int(labels.max()) + 1
    model = Model.fit(support, [f"{label:03d}" for label in labels.tolist()], method=method)
    name, pile = model.method_for(len(query)), query.numpy()
    sample = model.sample(pile)
    held_out = model.held_out(name, sample)
    expectation = expectation_from(held_out, model.labels, model.classes)
    answers = model.judge(name, sample, held_out).answers(
        query, torch.cat([scores for _, scores in model.scores(pile)()]), [str(i) for i in range(len(query))]
    )
    right = answers.best == truth.numpy()
    place = np.minimum((answers.probability * 15).astype(int), 14)
    gaps = [abs((answers.probability - right)[place == bin].sum()) for bin in range(15)]
    shares = np.bincount(truth, minlength=ways) / len(truth)
    counts = np.bincount(answers.best, minlength=ways) / len(truth)
    return (
        float(right.mean()),
        expectation.accuracy,
        *expectation.interval,
        sum(gaps) / len(truth),
        float(answers.probability.mean()),
        float(np.abs(answers.probabilities.mean(0) - shares).sum() / 2),
        float(np.abs(counts - shares).sum() / 2),
    )


def sets(places: list[str], split: str) -> Iterator[tuple[str, Features, Base | None]]:
    """Load the features of a split, and the base statistics next to them."""
    packaged = [f"CUB {metric}={path}" for metric, path in NETWORKS.items()]
    for text in places or packaged:
        name, _, path = text.rpartition("=")
        parts = splits(path)
        try:
            base = Base.load(path)
        except InputError:
            base = None
        yield name or path, Features.load(path, split=split if split in parts else None), base


TABLES = {"cells": cells, "shapes": shapes, "ablation": ablation, "piles": piles, "trust": trust}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*TABLES])
    parser.add_argument("features", nargs="*", metavar="NAME=FEATURES")
    parser.add_argument("--split", choices=["val", "test"], default="val")
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--method", help="of trust, instead of the default of classify")
    parser.add_argument("--rivals", nargs="*", help="methods to compare with, instead of all fast ones")
    parser.add_argument("--slow-tasks", type=int, default=0, help="tasks for slow methods; 0 leaves them out")
    parser.add_argument(
        "--only", nargs="*", metavar="KIND", choices=KINDS, help="kinds of cells, such as 'dirichlet 2'"
    )
    parser.add_argument("--shots", nargs="*", type=int, help="of cells (default: 1 5) and of trust (default: all)")
    options = parser.parse_args()
    options.cells = [(kind, shots) for kind in options.only or KINDS for shots in options.shots or (1, 5)]
    torch.set_num_threads(1)
    for name, features, base in sets(options.features, options.split):
        TABLES[options.what](name, features, base, options)


if __name__ == "__main__":
    main()

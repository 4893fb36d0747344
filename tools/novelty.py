"""Print how well things of unknown classes are told, by several scores, on the packaged CUB features or others.

python -m tools.novelty [FEATURES] [--tasks 1000] [--split test]
"""

from __future__ import annotations

import argparse

import torch
from tools.calibration import print_table
from torch import Tensor

from likelyshot import Balanced, Dirichlet, Features, sample_tasks
from likelyshot.confidence.held_out import INDUCTIVE_FACTOR, support_gap
from likelyshot.confidence.novelty import learn_novelty
from likelyshot.data.packaged import PACKAGED
from likelyshot.evaluation.evaluate import cores, map_chunks
from likelyshot.functional.scores import (
    class_means,
    cosines,
    exponential_log_likelihood,
    exponential_rates,
    l2_normalise,
)
from likelyshot.methods.mll import mll

KNOWN, RATE, SHIPPED = 5, 0.05, "**best class against background (shipped)**"
PLANS = {
    "balanced, 5 unknown": (5, Balanced(15)),
    "Dirichlet(2), 5 unknown": (5, Dirichlet(150)),
    "Dirichlet(0.5), 1 unknown": (1, Dirichlet(60, 0.5)),
}


def auroc(scores: Tensor, unknown: Tensor) -> float:
    """Give the probability that an unknown thing scores above a known one; ties count half."""
    known, other = scores[~unknown], scores[unknown]
    above = (other.unsqueeze(-1) > known).double() + 0.5 * (other.unsqueeze(-1) == known).double()
    return float(above.mean())


def candidates(support: Tensor, labels: Tensor, query: Tensor) -> dict[str, Tensor]:
    """Score the queries of one task in every way that was tried; higher is less like any class."""
    scores = mll(support, labels, query, n_ways=KNOWN).double()
    p = (scores / (INDUCTIVE_FACTOR * support_gap(mll, support, labels, KNOWN))).softmax(-1)
    unit, pile = l2_normalise(support), l2_normalise(query)
    prototypes, mean = class_means(unit, labels, KNOWN), pile.mean(0, keepdim=True)
    return {
        SHIPPED: learn_novelty(support, labels, KNOWN, pile=query).score(query),
        "the same, without a pile": learn_novelty(support, labels, KNOWN).score(query),
        "cosine to the best class, centred on the pile": -cosines(pile - mean, prototypes - mean).amax(-1),
        "MLL of the best class against the pile's": (
            exponential_log_likelihood(pile, exponential_rates(mean, 40.0)).squeeze(-1) - scores.amax(-1)
        ),
        "cosine to the best class": -cosines(pile, prototypes).amax(-1),
        "cosine to the nearest example": -(pile @ unit.T).amax(-1),
        "entropy of the probabilities": torch.special.entr(p).sum(-1),
        "largest probability": -p.amax(-1),
        "MLL of the best class": -scores.amax(-1),
    }


def main() -> None:
    """Print the tables of docs/results/confidence.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="?", default=PACKAGED)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    arguments = parser.parse_args()
    features = Features.load(arguments.features, split=arguments.split)
    columns, rates = {}, []
    for plan_name, (unknown_ways, plan) in PLANS.items():
        for shots in (1, 5):
            tasks = sample_tasks(
                features.labels, n_tasks=arguments.tasks, ways=KNOWN + unknown_ways, shots=shots, query=plan, seed=0
            )
            labels = tasks.support_labels[: KNOWN * shots]

            def judge(
                supports: list[Tensor],
                queries: list[Tensor],
                chunk: slice,
                truth: Tensor = tasks.query_labels,
                labels: Tensor = labels,
            ) -> list[tuple[dict[str, float], float, float]]:
                judged = []
                for support, query, ways in zip(supports[0], queries[0], truth[chunk], strict=True):
                    support, unknown = support[: len(labels)], ways >= KNOWN
                    if not 0 < int(unknown.sum()) < len(unknown):
                        continue
                    scores = candidates(support, labels, query)
                    novelty = learn_novelty(support, labels, KNOWN, pile=query)
                    rejected = (scores[SHIPPED] > novelty.threshold(RATE, scores[SHIPPED])).double()
                    figures = {name: auroc(score, unknown) for name, score in scores.items()}
                    judged.append((figures, float(rejected[~unknown].mean()), float(rejected[unknown].mean())))
                return judged

            judged = [one for part in map_chunks(judge, [features], tasks, "cpu", None, cores(), None) for one in part]
            head = f"{plan_name}, {shots}-shot"
            columns[head] = {name: sum(one[0][name] for one in judged) / len(judged) for name in judged[0][0]}
            rates.append([head, *(f"{100 * sum(one[i] for one in judged) / len(judged):.1f} %" for i in (1, 2))])
    rows = [[name, *(f"{figures[name]:.3f}" for figures in columns.values())] for name in next(iter(columns.values()))]
    where = f"CUB {arguments.split} classes, {KNOWN} known, {arguments.tasks} tasks"
    print_table(f"AUROC: {where}", ["score", *columns], rows)
    print_table(
        f"Rejected at a rate of {100 * RATE:.0f} %: {where}",
        ["5 ways", "of known classes", "of unknown classes"],
        rates,
    )


if __name__ == "__main__":
    main()

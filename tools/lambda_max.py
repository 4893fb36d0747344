"""Compare bounds of MLL's rates on validation classes: the paper's 40, and multiples of the average feature's rate.

For example, with the features of CUB's validation classes and those of other networks:

    python tools/lambda_max.py cub.safetensors cifar_conv4_val.safetensors --tasks 300
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from likelyshot import Balanced, Dirichlet, Features, evaluate, sample_tasks
from likelyshot.data.features import splits
from likelyshot.functional import scores
from likelyshot.methods import METHODS
from likelyshot.methods.binding import bind

FACTORS = (1.2, 1.5, 2.0, 3.0)


def variants(path: Path) -> Iterator[tuple[str, Features]]:
    """Give the validation classes of a file, and long ones also cut to 256 features, doubled, and centred and split."""
    features = Features.load(path, split="val" if "val" in splits(path) else None)
    vectors = features.vectors.float()
    yield path.stem, features
    if features.dim < 1000:
        return
    columns = torch.randperm(features.dim, generator=torch.Generator().manual_seed(0))[:256]
    centred = vectors - vectors.mean(0)
    others = {"256 of them": vectors[:, columns], "twice": vectors.repeat(1, 2), "split": scores.rectify(centred)}
    for name, changed in others.items():
        yield f"{path.stem}, {name}", Features(changed, features.labels, features.classes, {})


def main() -> None:
    """Print, for every set, method and number of shots, the accuracy with 40 and what each factor adds to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=300)
    arguments = parser.parse_args()
    print("| features | length | method | shots | 40 | " + " | ".join(f"{factor:g}" for factor in FACTORS) + " |")
    print("|---|---:|---|---:|---:|" + "---:|" * len(FACTORS))
    for file in arguments.files:
        for name, features in variants(file):
            few = int(features.counts.min()) < 60  # too few for imbalanced queries
            imbalanced = Balanced(15) if few else Dirichlet(75, 2.0)
            for method, plan in (("mll", Balanced(15)), ("mll_transductive", imbalanced)):
                for shots in (1, 5):
                    tasks = sample_tasks(
                        features.labels, n_tasks=arguments.tasks, ways=5, shots=shots, query=plan, seed=0
                    )
                    paper = evaluate(bind(method, {"lambda_max": 40.0}), features, tasks).mean
                    gains = []
                    for scores.RATE_BOUND in FACTORS:
                        gains.append(100 * (evaluate(METHODS[method], features, tasks).mean - paper))
                    print(f"| {name} | {features.dim} | `{method}` | {shots} | {100 * paper:.1f} | ", end="")
                    print(" | ".join(f"{gain:+.1f}" for gain in gains) + " |", flush=True)


if __name__ == "__main__":
    main()

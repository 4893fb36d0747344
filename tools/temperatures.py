"""Print the temperature of each metric that fits a features file best on its validation classes: where stage 2 begins.

python tools/temperatures.py runs/resnet12_stage1/features.safetensors
"""

from __future__ import annotations

import functools
import sys

from likelyshot import Balanced, Features, sample_tasks
from likelyshot.evaluation.evaluate import fit_temperature
from likelyshot.methods import METHODS


def main(path: str) -> None:
    """Fit on 300 tasks, 5-way 1-shot; MLL with the lambda_max of training."""
    features = Features.load(path, split="val")
    tasks = sample_tasks(features.labels, n_tasks=300, ways=5, shots=1, query=Balanced(15), seed=0)
    mll = functools.partial(METHODS["mll"], lambda_max=100.0)
    for name, method in {"euclidean": METHODS["euclidean"], "cosine": METHODS["cosine"], "mll": mll}.items():
        print(f"{name} {fit_temperature(method, features, tasks):.2g}")


if __name__ == "__main__":
    main(sys.argv[1])

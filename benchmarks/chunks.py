"""Milliseconds per task by the size of chunks and the number of threads: why `machine.CACHE_BYTES` is what it is.

python -m benchmarks.chunks [--tasks 800]
"""

from __future__ import annotations

import argparse
import functools

import torch

from benchmarks.__main__ import DIM, QUERIES, SHOTS, WAYS, make, seconds
from likelyshot import Dirichlet, evaluate, sample_tasks
from likelyshot.machine import cores
from likelyshot.methods import METHODS
from likelyshot.methods.binding import needs_of

NAMES = ("mll", "likelihood", "likelihood_mixture", "mll_transductive", "paddle", "protolp", "bavardage")
MEGABYTES = (4, 8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=800)
    count = parser.parse_args().tasks
    features = make(20, 100, 0)
    tasks = sample_tasks(features.labels, n_tasks=count, ways=WAYS, shots=SHOTS, query=Dirichlet(QUERIES), seed=0)
    base = {"base_mean": features.vectors.mean(0), "base_within": torch.eye(DIM)}
    print("| method | " + " | ".join(f"{mb} MB, {w} threads" for w in (1, cores()) for mb in MEGABYTES) + " |")
    print("|---" * (1 + 2 * len(MEGABYTES)) + "|")
    for name in NAMES:
        method = functools.partial(METHODS[name], **{need: base[need] for need in needs_of(METHODS[name])})
        cells = []
        for workers in (1, cores()):
            for size in MEGABYTES:
                run = functools.partial(evaluate, method, features, tasks, workers=workers, chunk_bytes=size * 2**20)
                cells.append(f"{1e3 * seconds(run, 3) / count:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

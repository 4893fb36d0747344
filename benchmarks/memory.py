"""What it costs that glibc hands freed memory back: python -m benchmarks.memory [--runs 3] [--steps 10]

Trains Conv4 on random images of 32 x 32 pixels in fresh processes: as glibc is, with `likelyshot.machine.keep_memory`,
and with environment variables set before the process starts. Page faults and CPU time hardly depend on what else the
machine does; images per second do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

VARIANTS = ("plain", "keep_memory", "environment")
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
}
BATCH, WARM_UP = 128, 3


def measure(variant: str, steps: int) -> dict[str, float]:
    """Train for some steps in this process."""
    import torch
    from torch.nn import functional

    from likelyshot.encoders import networks
    from likelyshot.machine import keep_memory

    if variant == "keep_memory":
        keep_memory()
    encoder = networks.build("conv4", {}).to(memory_format=torch.channels_last)
    classifier = torch.nn.Linear(encoder.dim, 64)
    optimiser = torch.optim.SGD([*encoder.parameters(), *classifier.parameters()], lr=0.01, momentum=0.9)
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        images = torch.rand(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        loss = functional.cross_entropy(classifier(encoder(images)), torch.randint(64, (BATCH,)))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - started
    return {
        "faults per step": (after.ru_minflt - before.ru_minflt) / steps,
        "user, ms per step": 1000 * (after.ru_utime - before.ru_utime) / steps,
        "system, ms per step": 1000 * (after.ru_stime - before.ru_stime) / steps,
        "images/s": BATCH * steps / seconds,
        "peak, MB": after.ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(measure(options.variant, options.steps)))
        return
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(options.runs):  # in turns, so that the load of the machine meets all alike
        for variant in VARIANTS:
            command = [sys.executable, "-m", "benchmarks.memory", "--variant", variant, "--steps", str(options.steps)]
            plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
            environment = plain | (ENVIRONMENT if variant == "environment" else {})
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            results[variant].append(json.loads(ran.stdout))
    names = list(results["plain"][0])
    print(f"Median of {options.runs} runs of {options.steps} steps with {BATCH} images each\n")
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for variant, runs in results.items():
        cells = [f"{statistics.median(run[name] for run in runs):,.0f}" for name in names]
        print(f"| {variant} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

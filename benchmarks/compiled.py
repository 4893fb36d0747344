"""Whether torch.compile makes a step of TIM's descent faster on a CPU; docs/gpu.md has what this printed.

python -m benchmarks.compiled

A step is 2 thin matrix products and some 20 operations on small tensors, a thousand times over. The compiled step is
written without buffers, as torch.compile wants it; both must give the same prototypes.
"""

from __future__ import annotations

import functools
import math
import time

import torch
from torch import Tensor

from likelyshot.functional.prototype_descent import descend_prototypes

TASKS, WAYS, QUERIES, DIM, STEPS, TAU, RATE = 20, 5, 75, 640, 300, 15.0, 1e-3


def step(
    w: Tensor, mean: Tensor, square: Tensor, samples: Tensor, target: Tensor, rate: Tensor, root: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take one step of Adam down the support's cross entropy."""
    n = target.shape[-1]
    logits = w @ samples.mT - TAU / 2 * w.square().sum(-1, keepdim=True)
    log_p = logits.log_softmax(-2).clamp_min(math.log(torch.finfo(w.dtype).tiny))
    slope = torch.cat([target + log_p[..., :n].exp() / n, 0 * log_p[..., n:]], -1)
    gradient = slope @ samples - TAU * slope.sum(-1, keepdim=True) * w
    mean, square = mean.lerp(gradient, 0.1), 0.999 * square + 0.001 * gradient * gradient
    return w - rate * mean / (square.sqrt() + 1e-8 * root), mean, square


def descend(function: object, start: Tensor, samples: Tensor, target: Tensor) -> Tensor:
    """Take all steps by a function, compiled or not."""
    assert callable(function)
    w, mean, square = start, torch.zeros_like(start), torch.zeros_like(start)
    for count in range(1, STEPS + 1):
        root = math.sqrt(1 - 0.999**count)
        rates = torch.tensor(RATE * root / (1 - 0.9**count)), torch.tensor(root)
        w, mean, square = function(w, mean, square, samples, target, *rates)
    return w


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    support = torch.nn.functional.normalize(torch.rand(TASKS, WAYS, DIM), dim=-1)
    query = torch.nn.functional.normalize(torch.rand(TASKS, QUERIES, DIM), dim=-1)
    samples, target = TAU * torch.cat([support, query], -2), -torch.eye(WAYS).expand(TASKS, WAYS, WAYS) / WAYS
    labels = torch.arange(WAYS)
    began = time.process_time()
    compiled = torch.compile(step)
    descend(compiled, support, samples, target)
    print(f"compiled in {time.process_time() - began:.1f} CPU seconds")
    ours = functools.partial(descend_prototypes, support, labels, query, WAYS, torch.zeros_like, TAU, STEPS, RATE)
    ways = {
        "ours, in buffers": ours,
        "the plain step": lambda: descend(step, support, samples, target),
        "the plain step, compiled": lambda: descend(compiled, support, samples, target),
    }
    torch.testing.assert_close(ways["the plain step"](), ways["the plain step, compiled"](), rtol=1e-3, atol=1e-4)
    for name, run in ways.items():
        best = math.inf
        for _ in range(5):
            began = time.process_time()
            run()
            best = min(best, time.process_time() - began)
        print(f"{name}: {1e6 * best / STEPS:,.0f} CPU microseconds a step of {TASKS} tasks")


if __name__ == "__main__":
    main()

"""What a round of transductive MLL spends its time on: microseconds of one core per task; docs/results/cub.md has them.

python -m benchmarks.rounds
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from unittest import mock

import torch

from likelyshot.functional.scores import exponential_rates
from likelyshot.methods.mll_transductive import ClassSums, moved

TASKS, BLOCK, WAYS, QUERIES, DIM, REPEATS = 27, 3, 5, 75, 512, 200


def microseconds(function: Callable[[], object], tasks: int) -> float:
    """The fastest twentieth of many runs, so that others on the machine count little."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        function()
        times.append(time.thread_time() - began)
    return 1e6 * statistics.quantiles(times, n=20)[0] / tasks


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    query = torch.nn.functional.normalize(torch.rand(TASKS, QUERIES, DIM) ** 2, dim=-1)
    means = torch.nn.functional.normalize(torch.rand(TASKS, WAYS, DIM) ** 2, dim=-1)
    rates, compiled = exponential_rates(means, 40.0), ClassSums(query, WAYS)
    with mock.patch.object(sys.modules[ClassSums.__module__], "compiled_sums", return_value=None):
        sums = ClassSums(query, WAYS)
    total, count = sums(rates)
    block, row = query[:BLOCK], torch.randint(BLOCK * WAYS, (BLOCK * QUERIES,))
    gathered, member = rates.view(-1, DIM).neg()[row].view(block.shape), torch.rand(BLOCK, WAYS, QUERIES)
    out, few = torch.empty_like(block), torch.empty(BLOCK, WAYS, DIM)
    parts: dict[str, tuple[Callable[[], object], int]] = {
        "product of rates and queries": (lambda: rates @ query.mT, TASKS),
        "rates of the assigned classes": (
            lambda: torch.index_select(rates.view(-1, DIM), 0, row, out=out.view(-1, DIM)),
            BLOCK,
        ),
        "times the queries": (lambda: torch.mul(gathered, block, out=out), BLOCK),
        "2 to the power": (lambda: torch.exp2(gathered, out=out), BLOCK),
        "Phi times the queries": (lambda: torch.addcmul(block, block, gathered, value=-1, out=out), BLOCK),
        "sums by class": (lambda: torch.bmm(member, block, out=few), BLOCK),
        "new prototypes and rates": (lambda: exponential_rates(moved(means, total, count, 0.5), 40.0), TASKS),
        "all of ClassSums, by operations of torch": (lambda: sums(rates), TASKS),
        "all of ClassSums, by the compiled loop": (lambda: compiled(rates), TASKS),
        "to copy the queries once, in cache": (lambda: out.copy_(block), BLOCK),
    }
    for name, (function, tasks) in parts.items():
        print(f"{name:42} {microseconds(function, tasks):5.1f}")


if __name__ == "__main__":
    main()

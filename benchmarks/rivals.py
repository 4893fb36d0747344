"""Transductive methods against easyfsl 1.5.0, on the same tasks in the same run.

python -m benchmarks.rivals            # minutes: the rivals are slow
python -m benchmarks.rivals --quick    # the ratios are rough

easyfsl takes one task at a time, by process_support_set and forward, with all of torch's threads or with one,
whichever is faster. Ours run through `evaluate`, which gathers the features too. Queries are balanced, as easyfsl's
PT-MAP assumes. Its defaults differ from ours (PT-MAP: 10 rounds, where we have 20; LaplacianShot: prototypes
rectified first): only time is compared. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import platform
import warnings
from collections.abc import Callable, Sequence
from datetime import date
from types import ModuleType

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.__main__ import DIM, QUERIES, SHOTS, WAYS, make, seconds
from likelyshot import Balanced, evaluate, sample_tasks
from likelyshot.evaluation.evaluate import cores
from likelyshot.methods import METHODS

ABSENT = "easyfsl is not installed: make easyfsl"
Row = tuple[str, float, float, float | None]  # what, reference and ours in ms per task, the ratio aimed at


def load_easyfsl() -> ModuleType | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision looks for image libraries that nothing here needs
        try:
            return importlib.import_module("easyfsl.methods")
        except ImportError:
            return None


def autograd_tim(support: Tensor, labels: Tensor, query: Tensor, steps: int, entropy: Callable[[Tensor], Tensor]):
    """TIM-GD as one would write it: torch.optim.Adam on the prototypes of one task, gradients by autograd."""
    support, query = (torch.nn.functional.normalize(x, dim=-1) for x in (support, query))
    prototypes = torch.stack([support[labels == k].mean(0) for k in range(WAYS)]).requires_grad_()
    optimiser = torch.optim.Adam([prototypes], lr=1e-4)

    def logits(x: Tensor) -> Tensor:
        return -7.5 * ((x**2).sum(-1, keepdim=True) - 2 * x @ prototypes.T + (prototypes**2).sum(-1))

    for _ in range(steps):
        optimiser.zero_grad()
        p = logits(query).softmax(-1)
        loss = torch.nn.functional.cross_entropy(logits(support), labels)
        (loss - entropy(p.mean(0)) + entropy(p).mean()).backward()
        optimiser.step()
    return logits(query).detach()


def shannon(p: Tensor) -> Tensor:
    return -(p * p.clamp_min(1e-12).log()).sum(-1)


def tsallis_2(p: Tensor) -> Tensor:
    return 1 - p.square().sum(-1)


def rows(quick: bool) -> list[Row]:
    """Measure every rival that is installed, and the plain autograd loop."""
    repeats, n_tasks, n_slow = (1, 200, 1) if quick else (5, 2_000, 5)
    features, base_mean = make(20, 100, 0), make(20, 100, 1).vectors.mean(0)
    draw = functools.partial(
        sample_tasks, features.labels, ways=WAYS, shots=SHOTS, query=Balanced(QUERIES // WAYS), seed=0
    )
    tasks, few = draw(n_tasks=n_tasks), draw(n_tasks=n_tasks // 10 if quick else n_tasks // 20)
    support, query, labels = features.vectors[tasks.support], features.vectors[tasks.query], tasks.support_labels

    def each(solve: Callable[[Tensor, Tensor], object], n: int) -> float:
        """Milliseconds for one of n tasks solved one after the other, with all threads or with one; quick: with one."""
        threads, times = torch.get_num_threads(), []
        for number in (1,) if quick else (threads, 1):
            torch.set_num_threads(number)
            times.append(seconds(lambda: [solve(support[i], query[i]) for i in range(n)], repeats))
        torch.set_num_threads(threads)
        return min(times) / n * 1e3

    def ours(name: str, chosen=tasks, **params: object) -> float:
        method = functools.partial(METHODS[name], **params)
        return seconds(lambda: evaluate(method, features, chosen), repeats) / len(chosen) * 1e3

    result: list[Row] = []
    easyfsl = load_easyfsl()
    if easyfsl is not None:

        def rival(model: torch.nn.Module, n: int) -> float:
            def solve(support: Tensor, query: Tensor) -> None:
                with torch.no_grad():
                    model.process_support_set(support, labels)
                    model(query)

            return each(solve, n)

        cl2n = {"feature_centering": base_mean, "feature_normalization": 2.0}
        result += [
            (
                "PT-MAP, against easyfsl",
                rival(easyfsl.PTMAP(), n_slow),
                ours("pt_map"),
                20,
            ),
            (
                "LaplacianShot, against easyfsl",
                rival(easyfsl.LaplacianShot(**cl2n), 20 * n_slow),
                ours("laplacianshot", base_mean=base_mean),
                8,
            ),
            (
                "BD-CSPN, against easyfsl",
                rival(easyfsl.BDCSPN(**cl2n), 20 * n_slow),
                ours("bd_cspn", base_mean=base_mean),
                5,
            ),
            (
                "TIM, 50 steps, against easyfsl",
                rival(easyfsl.TIM(feature_normalization=2.0), n_slow),
                ours("tim", few, steps=50),
                None,
            ),
        ]
    for name, title, entropy in (("tim", "TIM", shannon), ("alpha_tim", "alpha-TIM", tsallis_2)):
        slow = each(lambda s, q, e=entropy: autograd_tim(s, labels, q, 1_000, e), max(1, n_slow // 2))
        result.append((f"{title}, 1,000 steps, against autograd", slow, ours(name, few), None))
    return result


def show(table_rows: Sequence[Row], quick: bool) -> None:
    table = Table(title=f"{WAYS}-way {SHOTS}-shot, {QUERIES} balanced queries, {DIM} features", title_justify="left")
    for heading in ("what", "reference, ms", "likelyshot, ms", "tasks / s", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for what, slow, fast, goal in table_rows:
        speed = "> 10,000" if fast < 0.1 else f"{1e3 / fast:,.0f}"
        table.add_row(what, f"{slow:.3g}", f"{fast:.3g}", speed, f"{slow / fast:.3g} x", f"{goal} x" if goal else "-")
    console = Console(width=120)
    console.print(table)
    if load_easyfsl() is None:
        console.print(ABSENT, highlight=False)
    console.print(
        f"{date.today()}, {cores()} cores, {platform.system()} {platform.machine()}, torch {torch.__version__}; "
        f"best of {1 if quick else 5}; goal of TIM and alpha-TIM with 1,000 steps: 15 tasks / s",
        highlight=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tasks and repeats")
    quick = parser.parse_args().quick
    show(rows(quick), quick)


if __name__ == "__main__":
    main()

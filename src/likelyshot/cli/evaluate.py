"""The command likelyshot evaluate."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from likelyshot.cli.shared import (
    ALPHA,
    PER_CLASS,
    TOTAL,
    AlphaOption,
    BaseOption,
    CalibrationOption,
    DeviceOption,
    JsonOption,
    LabelsOption,
    MethodOption,
    NetworksArgument,
    NormaliseOption,
    OverlapOption,
    ParamOption,
    PartOption,
    PerClassOption,
    Plan,
    QueryOption,
    RayOption,
    RectifyOption,
    SeedOption,
    ShotsOption,
    SplitOption,
    TasksOption,
    TotalOption,
    ValOption,
    WaysOption,
    difference,
    on_cluster,
    part_of,
    print_json,
    queries_of,
    running,
    say_part,
)
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from likelyshot.data.results import Result
    from likelyshot.evaluation.run import Job, Networks
    from likelyshot.machine import Progress

#: What parts and finished results say of the command that made them.
ABOUT = {"command": "evaluate"}


def evaluate(
    features: NetworksArgument = None,
    method: MethodOption = ["euclidean", "cosine", "mll", "mll_transductive"],  # noqa: B006
    ways: WaysOption = 5,
    shots: ShotsOption = [1, 5],  # noqa: B006
    query: QueryOption = Plan.dirichlet,
    alpha: AlphaOption = ALPHA,
    total: TotalOption = TOTAL,
    per_class: PerClassOption = PER_CLASS,
    tasks: TasksOption = 10_000,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    param: ParamOption = None,
    split: SplitOption = None,
    labels: LabelsOption = None,
    val: ValOption = None,
    base: BaseOption = None,
    calibration: CalibrationOption = None,
    normalise: NormaliseOption = True,
    rectify: RectifyOption = False,
    overlap: OverlapOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write the results (JSON) and report.html to.")
    ] = None,
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare methods on the same few-shot tasks.

    For example:

        likelyshot evaluate features.safetensors --method mll cosine --shots 1 5
        likelyshot evaluate F.npz --query dirichlet --alpha 1 --param lambda_max=80 -o results/f
        likelyshot evaluate --method all --tasks 1000 --json > rows.json
        likelyshot evaluate euclidean.safetensors cosine.safetensors mll.safetensors --method mll combined

    With three files, each metric is scored on the features of its own network, combined on all of them, and any other
    method on the last.
    """
    with running(as_json) as (screen, start), on_cluster(ray):
        from likelyshot.data.files import output_folder
        from likelyshot.evaluation.parts import run_part
        from likelyshot.evaluation.run import Job, compare, read_networks, save_results, work
        from likelyshot.machine import check_device
        from likelyshot.methods import METHODS
        from likelyshot.methods.binding import parse_methods, parse_params
        from likelyshot.methods.calibration import Calibration

        this_part = part_of(part)
        if this_part is not None and output is None:
            raise InputError("expected a folder for the results of a part: give -o FOLDER, the same for all parts")
        names = parse_methods(method)
        params = parse_params(names, param or [], normalise)
        networks = read_networks(
            features or [],
            split=split,
            labels=labels,
            rectify=rectify,
            val=val or [],
            base=base,
            methods=names,
            metrics=params.get("combined", {}).get("metrics"),
            calibration=None if calibration is None else Calibration.load(calibration),
            seed=seed,
            device=check_device(device),
        )
        plan = queries_of(query, total, alpha, per_class)
        samples = networks.draw(tasks, ways, shots, plan, overlap)
        if output is not None:
            output_folder(output, make=False)
        jobs = [Job(name, params[name], sample, f"{sample.shots}-shot, {name}") for sample in samples for name in names]
        progress, say = start(work(jobs, networks))
        settings: dict[str, Any] = {"skip": len(names) == len(METHODS), "progress": progress, "say": say}
        if this_part is not None and output is not None:
            say_part(screen, this_part, run_part(jobs, networks, this_part, output, about=ABOUT, **settings), output)
            return
        results = run_all(screen, jobs, networks, output if ray is not None else None, **settings)
        if output is not None:
            say("report")
            save_results(output_folder(output), results, sys.argv[1:])
            write_report(output, results)
    for sample in samples:
        title = f"{networks.title()}: {ways}-way {sample.shots}-shot, {plan.describe()}, {tasks:,} tasks"
        screen.print(results_table(title, [result for result in results if result.config["shots"] == sample.shots]))
    if output is not None:
        screen.print(f"Wrote the results and report.html to {output}", soft_wrap=True)
    if as_json:
        print_json(compare(results))


def run_all(
    screen: Console,
    jobs: Sequence[Job],
    networks: Networks,
    keep: Path | None,
    *,
    skip: bool,
    progress: Progress,
    say: Callable[[str], None],
) -> list[Result]:
    """Evaluate all methods, and print which were skipped; finished ones stay in the folder `keep`, if there is one."""
    from likelyshot.evaluation.parts import run_kept
    from likelyshot.evaluation.run import run

    skipped: dict[str, object] = {}
    if keep is not None:
        merged = run_kept(jobs, networks, keep, about=ABOUT, skip=skip, progress=progress, say=say)
        skipped |= merged.refused
        results = [result for _, result in merged.results]
    else:
        refused = (lambda job, error: skipped.setdefault(job.method, error)) if skip else None
        results = [result for _, result in run(jobs, networks, refused=refused, progress=progress, say=say)]
    for name, error in skipped.items():
        screen.print(f"Skipped {name}: {error}", style="yellow")
    if not results:
        raise InputError("none of the methods can be evaluated on these features: see the reasons above")
    return results


def write_report(folder: Path, results: list[Result]) -> None:
    """Write the page of an evaluation."""
    from likelyshot.report import compare_results, write_report_page

    command = {"run": folder.name, "command": sys.argv[1:], "environment": results[0].environment}
    page = compare_results(results, made_by=[command])
    write_report_page(folder / "report.html", page, command=shlex.join(["likelyshot", *sys.argv[1:]]))


def results_table(title: str, results: list[Result]) -> Table:
    """Lay out the methods of one number of shots."""
    from likelyshot.data.results import with_interval
    from likelyshot.evaluation.run import references

    table = Table(title=Text(title), title_justify="left", caption_justify="left")
    table.add_column("method")
    others = references(results)
    against = [f"minus {other.method}" for other in others]
    for heading in ("accuracy, %", *against, "balanced acc., %", "macro-F1, %", "ms / task"):
        table.add_column(heading, justify="right")
    best = max(result.mean for result in results)
    for result in results:
        table.add_row(
            result.method,
            Text(with_interval(result.mean, result.ci95), style="bold" if result.mean == best else ""),
            *(difference(None if other is result else result.minus(other)) for other in others),
            f"{100 * result.balanced_accuracy.mean():.2f}",
            f"{100 * result.macro_f1.mean():.2f}",
            f"{1000 * result.seconds / len(result.accuracy):.2f}",
        )
    return table

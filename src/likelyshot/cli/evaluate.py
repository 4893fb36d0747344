"""The command likelyshot evaluate."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import (
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
    PerClassOption,
    Plan,
    QueryOption,
    RectifyOption,
    SeedOption,
    ShotsOption,
    SplitOption,
    TasksOption,
    TotalOption,
    ValOption,
    WaysOption,
)
from likelyshot.errors import InputError


def evaluate(
    features: NetworksArgument = None,
    method: MethodOption = ["euclidean", "cosine", "mll", "mll_transductive"],  # noqa: B006
    ways: WaysOption = 5,
    shots: ShotsOption = [1, 5],  # noqa: B006
    query: QueryOption = Plan.dirichlet,
    alpha: AlphaOption = 2.0,
    total: TotalOption = 75,
    per_class: PerClassOption = 15,
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
        Path | None, typer.Option("--output", "-o", help="Folder for the results as JSON, and report.html.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Any methods on any features, on the same tasks.

    For example:

        likelyshot evaluate features.safetensors --method mll cosine --shots 1 5

        likelyshot evaluate F.npz --query dirichlet --alpha 1 --param lambda_max=80 -o results/f

        likelyshot evaluate --method all --tasks 1000 --json > rows.json

        likelyshot evaluate euclidean.safetensors cosine.safetensors mll.safetensors --method mll combined

    Of three networks, each metric is scored on its own, combined on all of them, and any other method on the last.
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import inputs
        from likelyshot.cli.tables import evaluation_table
        from likelyshot.data.containers import write_document
        from likelyshot.data.files import output_folder
        from likelyshot.data.results import environment
        from likelyshot.evaluation.evaluate import evaluate as run
        from likelyshot.machine import check_device
        from likelyshot.methods.binding import TEMPERATURE_TASKS, Statistics, bind
        from likelyshot.methods.calibration import Calibration
        from likelyshot.report import compare_results, load_runs, write_report_page

        names, every = inputs.methods(method)
        check_device(device)
        params = inputs.params(names, param or [], normalise)
        known = Calibration.load(calibration) if calibration is not None else None
        networks = inputs.networks(
            features,
            split,
            labels,
            rectify,
            val=val,
            base=base,
            metrics=params.get("combined", {}).get("metrics"),
            shared=Statistics(calibration=known, seed=seed, device=device),
            names=names,
        )
        plan = inputs.plan(query, alpha, total, per_class)
        drawn = inputs.draw(networks, tasks, ways, shots, plan, seed, overlap)
        if output is not None:
            output_folder(output, make=False)
        fitting = min(TEMPERATURE_TASKS, tasks) if networks.members[-1].validation is not None else 0
        progress, say = start(len(names) * len(drawn) * (tasks + fitting))
        results, left_out = [], set()
        for sample in drawn:
            for name in names:
                say(f"{sample.shots}-shot, {name}")
                chosen, statistics = networks.of(name)
                try:
                    bound = bind(name, params[name], statistics, ways=ways, shots=sample.shots)
                    temperature = statistics.temperature(bound, sample, progress)
                    result = run(bound, chosen, sample, device=device, progress=progress, temperature=temperature)
                    results.append(replace(result, config={**result.config, "networks": networks.digests}))
                except InputError as error:
                    if not every:
                        raise
                    if name not in left_out:
                        screen.print(f"{name} is left out: {error}", style="yellow", markup=False, emoji=False)
                    left_out.add(name)
                    progress(tasks + fitting)
        if not results:
            raise InputError("no method can be evaluated on these features: see above what each of them needs")
        rows = []
        for result in results:
            same = [other for other in results if other.config["shots"] == result.config["shots"]]
            gaps = {other.method: result.minus(other) for other in inputs.references(same)}
            minus = {name: {"mean": gap.mean, "ci95": gap.ci95} for name, gap in gaps.items()}
            rows.append({**result.row(), "minus": minus})
        if output is not None:
            folder = output_folder(output)
            for result in results:
                result.save(folder / f"{query.value}_{result.config['shots']}shot_{result.method}.json")
            for shots_made, made in networks.calibrations():
                made.save(folder / f"calibration_{shots_made}shot.json")
            document = {"command": sys.argv[1:], "environment": environment(), "rows": rows}
            write_document(folder / "evaluate.json", document)
            say("report")
            found = load_runs([folder])
            data = compare_results(found.results, found.sweeps, found.made_by)
            write_report_page(folder / "report.html", data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
    for sample in drawn:
        mine = [result for result in results if result.config["shots"] == sample.shots]
        files = inputs.title([one.features for one in networks.members])
        title = f"{files}: {ways}-way {sample.shots}-shot, {plan.describe()}, {tasks:,} tasks"
        screen.print(evaluation_table(title, mine, inputs.references(mine)))
    if output is not None:
        said = f"Results, configuration and report.html, a page about them: {output}"
        screen.print(said, soft_wrap=True, markup=False, emoji=False)
    if as_json:
        print_json(rows)

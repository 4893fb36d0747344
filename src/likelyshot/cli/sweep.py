"""The command likelyshot sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import (
    AlphaOption,
    BaseOption,
    DeviceOption,
    JsonOption,
    LabelsOption,
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
    TasksOption,
    TotalOption,
    ValOption,
    WaysOption,
)
from likelyshot.errors import InputError


def sweep(
    features: NetworksArgument = None,
    method: Annotated[str, typer.Option("--method", "-m", help="The method to study.")] = "mll",
    grid: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FIRST:LAST:STEP or NAME=A,B,C; one or two. Default: lambda_max, 10 to 100 by 10."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to draw tasks from. Default: val, if there is one.")] = None,
    ways: WaysOption = 5,
    shots: ShotsOption = [1, 5],  # noqa: B006
    query: QueryOption = Plan.balanced,
    alpha: AlphaOption = 2.0,
    total: TotalOption = 75,
    per_class: PerClassOption = 15,
    tasks: TasksOption = 1_000,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    param: ParamOption = None,
    labels: LabelsOption = None,
    val: ValOption = None,
    base: BaseOption = None,
    normalise: NormaliseOption = True,
    rectify: RectifyOption = False,
    overlap: OverlapOption = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for sweep.json and sweep.svg.")] = Path(
        "results/sweep"
    ),
    as_json: JsonOption = False,
) -> None:
    """A method's accuracy over a grid of its parameters, as a table, JSON and a plot.

    For example:

        likelyshot sweep --method mll --grid lambda_max=20:80:10

        likelyshot sweep -m mll_transductive --query dirichlet --grid iterations=0,1,2,5,10,20 eta=0.1:0.9:0.2
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import inputs
        from likelyshot.cli.tables import sweep_table
        from likelyshot.data.features import splits
        from likelyshot.data.files import output_folder
        from likelyshot.evaluation.sweep import sweep as run
        from likelyshot.machine import check_device
        from likelyshot.methods.binding import Statistics, parameters
        from likelyshot.report.sweep_chart import draw_sweep

        names, _ = inputs.methods([method])
        if len(names) != 1:
            raise InputError(f"a sweep takes one method, got {len(names)}: choose one of {', '.join(names)}")
        check_device(device)
        if not grid and "lambda_max" not in parameters(names[0]):
            known = ", ".join(parameters(names[0])) or "none"
            raise InputError(f"expected --grid NAME=A,B,C, as {names[0]} has no lambda_max: its parameters are {known}")
        grids = inputs.grids(names[0], grid or ["lambda_max=10:100:10"])
        fixed = inputs.params(names, param or [], normalise)[names[0]]
        held = not features or "val" in splits(features[0])
        networks = inputs.networks(
            features,
            split or ("val" if held else None),
            labels,
            rectify,
            val=val,
            base=base,
            metrics=fixed.get("metrics"),
            shared=Statistics(seed=seed, device=device),
            names=names,
        )
        chosen, statistics = networks.of(names[0])
        plan = inputs.plan(query, alpha, total, per_class)
        drawn = inputs.draw(networks, tasks, ways, shots, plan, seed, overlap)
        output_folder(output, make=False)
        points = 1
        for values in grids.values():
            points *= len(values)
        progress, say = start(points * len(drawn) * tasks)
        say(f"{names[0]}, {' x '.join(grids)}")
        swept = run(
            names[0],
            grids,
            chosen,
            drawn,
            params=fixed,
            statistics=statistics,
            device=device,
            progress=progress,
        )
        folder = output_folder(output)
        swept.save(folder / "sweep.json", sys.argv[1:])
        draw_sweep(swept, folder / "sweep.svg")
    screen.print(sweep_table(f"{names[0]} on {inputs.title(chosen)}: {plan.describe()}", swept))
    best = ", ".join(f"{key} = {value}" for key, value in swept.best().items())
    screen.print(f"Best over the shots: {best}. Saved: {folder}/sweep.json and sweep.svg", soft_wrap=True)
    if as_json:
        print_json(list(swept.rows))

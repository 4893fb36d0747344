"""The command likelyshot sweep."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from likelyshot.cli.shared import (
    ALPHA,
    PER_CLASS,
    TOTAL,
    AlphaOption,
    BaseOption,
    DeviceOption,
    JsonOption,
    LabelsOption,
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
    TasksOption,
    TotalOption,
    ValOption,
    WaysOption,
    on_cluster,
    part_of,
    print_json,
    queries_of,
    running,
    say_part,
)
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.evaluation.sweep import Grid


def sweep(
    features: NetworksArgument = None,
    method: Annotated[list[str], typer.Option("--method", "-m", metavar="NAME", help="The method.")] = ["mll"],  # noqa: B006
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="One or two parameters, as NAME=FIRST:LAST:STEP or NAME=A,B,C. Default: lambda_max, 10 to 100 by 10."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of the features file to draw tasks from. Default: val, if there is one.")
    ] = None,
    ways: WaysOption = 5,
    shots: ShotsOption = [1, 5],  # noqa: B006
    query: QueryOption = Plan.balanced,
    alpha: AlphaOption = ALPHA,
    total: TotalOption = TOTAL,
    per_class: PerClassOption = PER_CLASS,
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
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write sweep.json and sweep.svg to.")] = Path(
        "results/sweep"
    ),
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a method over a grid of its parameters, and plot its accuracy.

    Use it to choose parameters on the split val. Then test them with likelyshot evaluate.

    For example:

        likelyshot sweep --method mll --grid lambda_max=20:80:10
        likelyshot sweep -m mll_transductive --query dirichlet --grid iterations=0,1,2,5,10,20 eta=0.1:0.9:0.2
    """
    with running(as_json) as (screen, start), on_cluster(ray):
        from likelyshot.cli.tables import sweep_table
        from likelyshot.data.files import output_folder
        from likelyshot.evaluation.parts import run_kept, run_part
        from likelyshot.evaluation.run import read_networks
        from likelyshot.evaluation.sweep import gather, points
        from likelyshot.evaluation.sweep import sweep as run
        from likelyshot.machine import check_device
        from likelyshot.report.sweep_chart import draw_sweep

        name, values, params = method_and_grid(method, grid, param, normalise)
        networks = read_networks(
            features or [],
            split=split,
            prefer="val",
            labels=labels,
            rectify=rectify,
            val=val or [],
            base=base,
            methods=[name],
            metrics=params.get("metrics"),
            seed=seed,
            device=check_device(device),
        )
        plan = queries_of(query, total, alpha, per_class)
        samples = networks.draw(tasks, ways, shots, plan, overlap)
        output_folder(output, make=False)
        progress, say = start(math.prod(map(len, values.values())) * len(samples) * tasks)
        say(f"{name}, {' x '.join(values)}")
        this_part = part_of(part)
        about: dict[str, Any] = {
            "command": "sweep",
            "method": name,
            "grid": {key: list(each) for key, each in values.items()},
            "params": params,
            "digests": [sample.digest for sample in samples],
        }
        settings: dict[str, Any] = {"about": about, "temperatures": False, "progress": progress}
        if this_part is not None:
            jobs = points(name, values, samples, params)
            say_part(screen, this_part, run_part(jobs, networks, this_part, output, **settings, say=say), output)
            return
        if ray is not None:
            merged = run_kept(points(name, values, samples, params), networks, output, **settings)
            swept = gather(name, values, [result for _, result in merged.results], params, about["digests"])
        else:
            swept = run(name, values, networks, samples, params=params, progress=progress)
        folder = output_folder(output)
        earlier = ", in place of an earlier sweep" if (folder / "sweep.json").exists() else ""
        swept.save(folder / "sweep.json", sys.argv[1:])
        draw_sweep(swept, folder / "sweep.svg")
    screen.print(sweep_table(f"{name} on {networks.title(name)}: {plan.describe()}", swept))
    best = ", ".join(f"{key} = {value}" for key, value in swept.best().items())
    screen.print(f"Best, averaged over the shots: {best}", soft_wrap=True)
    screen.print(f"Wrote sweep.json and sweep.svg to {folder}{earlier}", soft_wrap=True)
    if as_json:
        print_json(list(swept.rows))


def method_and_grid(
    method: list[str], grid: list[str] | None, param: list[str] | None, normalise: bool
) -> tuple[str, Grid, dict[str, Any]]:
    """Read the method, the values to sweep over (by default, lambda_max from 10 to 100) and the other parameters."""
    from likelyshot.methods.binding import parameters, parse_grid, parse_methods, parse_params

    name, *others = parse_methods(method)
    if others:
        raise InputError(f"a sweep takes one method, got {len(others) + 1}: choose one, for example {name}")
    if not parameters(name):
        raise InputError(f"{name} has no parameters to sweep over: choose another method")
    if not grid and "lambda_max" not in parameters(name):
        known = ", ".join(parameters(name))
        raise InputError(f"expected --grid NAME=A,B,C, as {name} has no lambda_max: its parameters are {known}")
    values = parse_grid(name, grid or ["lambda_max=10:100:10"])
    params = parse_params([name], param or [], normalise)[name]
    if both := sorted(set(params) & set(values)):
        raise InputError(f"{both[0]} is in the grid and fixed by another option: leave one of them out")
    return name, values, params

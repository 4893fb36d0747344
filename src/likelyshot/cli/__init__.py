"""The command line: parse, call, print."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from likelyshot import __version__
from likelyshot.cli.display import console, print_json, running
from likelyshot.cli.options import (
    AlphaOption,
    BaseOption,
    CalibrationOption,
    DeviceOption,
    FeaturesArgument,
    JsonOption,
    LabelsOption,
    MethodOption,
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

app = typer.Typer(
    help="Few-shot classification by likelihood.",
    epilog="Start with: likelyshot reproduce",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    rich_markup_mode="markdown",
)

#: Options that take several values, as in `--method mll cosine`, repeated, or with commas.
SEVERAL = ("--method", "-m", "--shots", "--param", "-p", "--grid")


def main() -> None:
    """Run the command line: exit code 0 done, 2 the user's input, 1 our fault."""
    try:
        app(spread(sys.argv[1:]))
    except InputError as error:
        typer.echo(f"likelyshot: {error}", err=True)
        sys.exit(2)


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat the flag before every further value of an option that takes several.

    >>> spread(["evaluate", "F", "--method", "mll", "cosine", "--shots", "1", "5", "--json"])
    ['evaluate', 'F', '--method', 'mll', '--method', 'cosine', '--shots', '1', '--shots', '5', '--json']
    """
    spreaded: list[str] = []
    option, given = "", False
    for argument in arguments:
        if argument.startswith("-") and not argument[1:].isdigit():
            option, given = (argument, False) if argument in SEVERAL else ("", False)
        elif option and given and not Path(argument).is_file():
            spreaded.append(option)
        elif option and given:
            option = ""
        else:
            given = True
        spreaded.append(argument)
    return spreaded


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Few-shot classification by likelihood."""
    if show:
        typer.echo(f"likelyshot {__version__}")
        raise typer.Exit


@app.command()
def reproduce(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.")] = Path("results/reproduce"),
    tasks: TasksOption = 10_000,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    full: Annotated[
        bool, typer.Option("--full", help="Every method, at four degrees of imbalance: over an hour on two cores.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute finished cells anew.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The paper's tables on the packaged features.

    Chooses lambda_max on the validation classes, then evaluates every metric on 10,000 balanced and 10,000 imbalanced
    tasks of the test classes, and the rivals that are quick; with --full all of them, slow ones on 1,000 tasks.
    Stopped with Ctrl-C, it continues from the finished cells.

    For example:

        likelyshot reproduce

        likelyshot reproduce --tasks 500 -o results/quick

        likelyshot reproduce --full -o results/full
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import inputs
        from likelyshot.cli.tables import reproduction_tables, sweep_table, to_markdown
        from likelyshot.files import write_whole
        from likelyshot.reproduce import reproduce as run
        from likelyshot.reproduce import rows, total_work

        inputs.check_device(device)
        progress, say = start(total_work(max(tasks, 0), full))
        done = run(output, n_tasks=tasks, seed=seed, device=device, full=full, fresh=fresh, progress=progress, say=say)
        tables = [sweep_table("MLL on the validation classes, balanced", done.sweep), *reproduction_tables(done)]
        write_whole(done.folder / "tables.md", "\n\n".join(map(to_markdown, tables)).encode() + b"\n")
    for table in tables:
        screen.print(table)
    kept = f" ({done.reused} finished cells taken from there; --fresh computes them anew)" if done.reused else ""
    screen.print(
        f"Results, configuration, plot and these tables as Markdown: {done.folder}{kept}",
        highlight=False,
        soft_wrap=True,
        markup=False,
        emoji=False,
    )
    if as_json:
        print_json(rows(done.results))


@app.command()
def evaluate(
    features: FeaturesArgument = None,
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
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results as JSON.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Any methods on any features, on the same tasks.

    For example:

        likelyshot evaluate features.safetensors --method mll cosine --shots 1 5

        likelyshot evaluate F.npz --query dirichlet --alpha 1 --param lambda_max=80 -o results/f

        likelyshot evaluate --method all --tasks 1000 --json > rows.json
    """
    with running(as_json) as (screen, start):
        from likelyshot.binding import bind
        from likelyshot.cli import inputs
        from likelyshot.cli.tables import evaluation_table
        from likelyshot.evaluation import evaluate as run
        from likelyshot.files import output_folder, write_json
        from likelyshot.results import environment

        names, every = inputs.methods(method)
        inputs.check_device(device)
        params = inputs.params(names, param or [], normalise)
        chosen = inputs.load(features, split, labels, rectify)
        statistics = inputs.statistics(features, val, base, calibration, rectify, seed, device)
        drawn = [
            inputs.draw(chosen, tasks, ways, count, inputs.plan(query, alpha, total, per_class), seed, overlap)
            for count in dict.fromkeys(shots)
        ]
        if output is not None:
            output_folder(output, make=False)
        progress, say = start(len(names) * len(drawn) * tasks)
        results, left_out = [], set()
        for sample in drawn:
            for name in names:
                say(f"{sample.shots}-shot, {name}")
                try:
                    bound = bind(name, params[name], statistics, ways=ways, shots=sample.shots)
                    results.append(run(bound, chosen, sample, device=device, progress=progress))
                except InputError as error:
                    if not every:
                        raise
                    if name not in left_out:
                        screen.print(f"left out: {error}", style="yellow", markup=False, emoji=False)
                    left_out.add(name)
                    progress(tasks)
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
            for shots_made, made in statistics.made():
                made.save(folder / f"calibration_{shots_made}shot.json")
            document = {"command": sys.argv[1:], "environment": environment(), "rows": rows}
            write_json(folder / "evaluate.json", document)
    for sample in drawn:
        mine = [result for result in results if result.config["shots"] == sample.shots]
        plan = inputs.plan(query, alpha, total, per_class).describe()
        title = f"{inputs.title(chosen)}: {ways}-way {sample.shots}-shot, {plan}, {tasks:,} tasks"
        screen.print(evaluation_table(title, mine, inputs.references(mine)))
    if output is not None:
        screen.print(f"Results and configuration: {output}", soft_wrap=True)
    if as_json:
        print_json(rows)


@app.command()
def sweep(
    features: FeaturesArgument = None,
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
        from likelyshot.features import splits
        from likelyshot.files import output_folder
        from likelyshot.packaged import PACKAGED
        from likelyshot.plots import draw_sweep
        from likelyshot.sweep import sweep as run

        names, _ = inputs.methods([method])
        if len(names) != 1:
            raise InputError(f"a sweep takes one method, got {len(names)}: choose one of {', '.join(names)}")
        inputs.check_device(device)
        grids = inputs.grids(names[0], grid or ["lambda_max=10:100:10"])
        path = features or PACKAGED
        chosen = inputs.load(path, split or ("val" if "val" in splits(path) else None), labels, rectify)
        statistics = inputs.statistics(features, val, base, None, rectify, seed, device)
        drawn = [
            inputs.draw(chosen, tasks, ways, count, inputs.plan(query, alpha, total, per_class), seed, overlap)
            for count in dict.fromkeys(shots)
        ]
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
            params=inputs.params(names, param or [], normalise)[names[0]],
            statistics=statistics,
            device=device,
            progress=progress,
        )
        folder = output_folder(output)
        swept.save(folder / "sweep.json")
        draw_sweep(swept, folder / "sweep.svg")
    plan = inputs.plan(query, alpha, total, per_class).describe()
    screen.print(sweep_table(f"{names[0]} on {inputs.title(chosen)}: {plan}", swept))
    best = ", ".join(f"{key} = {value}" for key, value in swept.best().items())
    screen.print(f"Best over the shots: {best}. Saved: {folder}/sweep.json and sweep.svg", soft_wrap=True)
    if as_json:
        print_json(list(swept.rows))


@app.command()
def explore(
    features: FeaturesArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("results/explore.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every figure as SVG, PDF and PNG.", show_default=False)
    ] = None,
    split: SplitOption = None,
    labels: LabelsOption = None,
    ways: WaysOption = 5,
    shots: Annotated[int, typer.Option(help="Labelled examples per class, of the tasks that are scored.")] = 1,
    tasks: TasksOption = 500,
    seed: SeedOption = 0,
    lambda_max: Annotated[float, typer.Option(help="Bound on the rates of MLL.")] = 40.0,
    normalise: NormaliseOption = True,
    rectify: RectifyOption = False,
    as_json: JsonOption = False,
) -> None:
    """A page about features: are they exponential, do classes differ, and how well do the metrics separate them?

    One HTML file that works offline: the histogram of any feature and class with its exponential fit, which of six
    families fits best, how the rates differ between classes, and the scores within and between classes.

    For example:

        likelyshot explore

        likelyshot explore F.safetensors --split val -o f.html --figures figures
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import inputs
        from likelyshot.explore import explore as run
        from likelyshot.explore import explore_work
        from likelyshot.explore_page import write_explore_figures, write_explore_page
        from likelyshot.files import output_folder

        chosen = inputs.load(features, split, labels, rectify)
        if output.is_dir():
            raise InputError(f"expected a file for the page, but {output} is a folder: write -o {output}/explore.html")
        output_folder(output.parent, make=False)
        if figures is not None:
            output_folder(figures, make=False)
        progress, say = start(explore_work(chosen, tasks))
        say("fits and scores")
        data = run(
            chosen,
            tasks=tasks,
            ways=ways,
            shots=shots,
            seed=seed,
            lambda_max=lambda_max,
            normalise=normalise,
            progress=progress,
        )
        say("page")
        output_folder(output.parent)
        page = write_explore_page(output, data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
        drawn = write_explore_figures(output_folder(figures), data) if figures is not None else []
    screen.print(f"Open {page} in a browser.", soft_wrap=True, highlight=False)
    if drawn:
        screen.print(f"{len(drawn)} figures: {figures}", soft_wrap=True, highlight=False)
    if as_json:
        print_json(data)


@app.command("list")
def list_methods(
    method: Annotated[str | None, typer.Argument(help="One method, to read all about it.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """The methods: what each does, needs and comes from.

    For example:

        likelyshot list

        likelyshot list mll_transductive
    """
    from likelyshot.binding import about
    from likelyshot.cli.tables import method_page, methods_table
    from likelyshot.methods import METHODS

    rows = [about(name) for name in ([method] if method is not None else METHODS)]
    if as_json:
        print_json(rows)
    else:
        console().print(methods_table(rows) if method is None else method_page(rows[0]))

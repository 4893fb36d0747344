"""The command likelyshot reproduce."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from likelyshot.cli.shared import (
    DeviceOption,
    JsonOption,
    PartOption,
    RayOption,
    SeedOption,
    TasksOption,
    on_cluster,
    part_of,
    print_json,
    running,
    say_part,
)

if TYPE_CHECKING:
    from rich.table import Table

    from likelyshot.evaluation.reproduce import Reproduction


def reproduce(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the results to.")] = Path(
        "results/reproduce"
    ),
    tasks: TasksOption = 10_000,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Evaluate every method at four degrees of imbalance. Takes over half an hour on two cores."
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Compute everything again, even cells that are finished or of other tasks.")
    ] = False,
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the tables of the paper on the packaged features.

    Chooses lambda_max on the validation classes. Then evaluates the metrics on 10,000 balanced and 10,000 imbalanced
    tasks of the test classes, together with the methods that are quick. --full evaluates all methods, slow ones on
    1,000 tasks. After Ctrl-C, the same command continues with the cells that are missing.

    For example:

        likelyshot reproduce
        likelyshot reproduce --tasks 500 -o results/quick
        likelyshot reproduce --full -o results/full
    """
    with running(as_json) as (screen, start), on_cluster(ray):
        from likelyshot.evaluation.reproduce import reproduce as run
        from likelyshot.evaluation.reproduce import reproduce_part, rows
        from likelyshot.machine import check_device

        settings: dict[str, Any] = {"n_tasks": tasks, "seed": seed, "device": check_device(device), "full": full}
        if (this_part := part_of(part)) is not None:
            say_part(screen, this_part, reproduce_part(output, this_part, **settings, start=start), output)
            return
        done = run(output, command=sys.argv[1:], fresh=fresh, **settings, start=start)
        tables = write_tables(done)
    for table in tables:
        screen.print(table)
    reused = f"; {done.reused} finished cells were reused, --fresh computes them again" if done.reused else ""
    screen.print(f"Wrote the results, tables.md and report.html to {done.folder}{reused}", soft_wrap=True)
    if as_json:
        print_json(rows(done.results))


def write_tables(done: Reproduction) -> list[Table]:
    """Write the tables, the figure and the page of a reproduction, and return the tables."""
    from likelyshot.cli.tables import reproduction_tables, sweep_table, to_markdown
    from likelyshot.data.files import write_whole
    from likelyshot.data.results import environment
    from likelyshot.report import compare_results, write_report_page
    from likelyshot.report.sweep_chart import draw_sweep

    draw_sweep(done.sweep, done.folder / "lambda_max.svg")
    tables = [sweep_table("MLL on the validation classes, balanced", done.sweep), *reproduction_tables(done)]
    write_whole(done.folder / "tables.md", "\n\n".join(map(to_markdown, tables)).encode() + b"\n")
    made_by = {"run": done.folder.name, "command": sys.argv[1:], "environment": environment()}
    data = compare_results(list(done.results.values()), [done.sweep], [made_by])
    write_report_page(done.folder / "report.html", data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
    return tables

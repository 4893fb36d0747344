"""The command likelyshot reproduce."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import DeviceOption, JsonOption, SeedOption, TasksOption


def reproduce(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.")] = Path("results/reproduce"),
    tasks: TasksOption = 10_000,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    full: Annotated[
        bool, typer.Option("--full", help="Every method, at four degrees of imbalance: over half an hour on two cores.")
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
        from likelyshot.cli.tables import reproduction_tables, sweep_table, to_markdown
        from likelyshot.data.files import write_whole
        from likelyshot.evaluation.reproduce import reproduce as run
        from likelyshot.evaluation.reproduce import rows, total_work
        from likelyshot.machine import check_device
        from likelyshot.report import compare_results, load_runs, write_report_page

        check_device(device)
        progress, say = start(total_work(max(tasks, 0), full))
        done = run(
            output,
            command=sys.argv[1:],
            n_tasks=tasks,
            seed=seed,
            device=device,
            full=full,
            fresh=fresh,
            progress=progress,
            say=say,
        )
        tables = [sweep_table("MLL on the validation classes, balanced", done.sweep), *reproduction_tables(done)]
        write_whole(done.folder / "tables.md", "\n\n".join(map(to_markdown, tables)).encode() + b"\n")
        say("report")
        data = compare_results(list(done.results.values()), [done.sweep], load_runs([done.folder]).made_by)
        write_report_page(done.folder / "report.html", data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
    for table in tables:
        screen.print(table)
    kept = f" ({done.reused} finished cells taken from there; --fresh computes them anew)" if done.reused else ""
    screen.print(
        f"Results, configuration, these tables as Markdown, and report.html, a page about it all: {done.folder}{kept}",
        highlight=False,
        soft_wrap=True,
        markup=False,
        emoji=False,
    )
    if as_json:
        print_json(rows(done.results))

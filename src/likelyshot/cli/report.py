"""The command likelyshot report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import JsonOption
from likelyshot.errors import InputError


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders that evaluate -o, sweep or reproduce wrote, or single JSON files of them.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("results/report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for every figure as SVG, PDF and PNG.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """A page about results: who wins, by how much, how fast, how well calibrated, and what is confused.

    One HTML file that works offline. Results with the same features, ways, shots, queries and seed are compared task by
    task, whichever run they come from.

    For example:

        likelyshot report results/reproduce

        likelyshot report results/f results/sweep -o report.html --figures figures
    """
    with running(as_json) as (screen, start):
        from likelyshot.data.files import output_folder
        from likelyshot.report import (
            compare_results,
            load_runs,
            report_summary,
            write_report_figures,
            write_report_page,
        )

        if output.is_dir():
            raise InputError(f"expected a file for the page, but {output} is a folder: write -o {output}/report.html")
        output_folder(output.parent, make=False)
        if figures is not None:
            output_folder(figures, make=False)
        progress, say = start(3)
        say("results")
        found = load_runs(runs)
        progress(1)
        data = compare_results(found.results, found.sweeps, found.made_by)
        say("page")
        output_folder(output.parent)
        page = write_report_page(output, data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
        progress(1)
        say("figures")
        drawn = write_report_figures(output_folder(figures), data) if figures is not None else []
        progress(1)
    for file in found.damaged:
        warning = f"left out: {file} is no JSON object: if it was a result, make it anew"
        screen.print(warning, style="yellow", soft_wrap=True, markup=False, highlight=False)
    for sentence in report_summary(data):
        screen.print(sentence, soft_wrap=True, markup=False, emoji=False, highlight=False)
    screen.print(f"Open {page} in a browser.", soft_wrap=True, markup=False, highlight=False)
    if drawn:
        screen.print(f"{len(drawn)} figures: {figures}", soft_wrap=True, markup=False, highlight=False)
    if as_json:
        print_json(data)

"""The command likelyshot report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.shared import JsonOption, check_page, print_json, running


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders written by evaluate -o, sweep or reproduce, or single JSON files of these.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("results/report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for all figures, as SVG, PDF and PNG.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page about results: winners, differences, times, calibration and confused classes.

    The page is one HTML file that works offline. Results with the same features, ways, shots, queries and seed are
    compared task by task, even if they come from different runs.

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

        check_page(output)
        if figures is not None:
            output_folder(figures, make=False)
        progress, say = start(3)
        say("results")
        loaded = load_runs(runs)
        progress(1)
        data = compare_results(loaded.results, loaded.sweeps, loaded.made_by)
        say("page")
        output_folder(output.parent)
        page = write_report_page(output, data, command=shlex.join(["likelyshot", *sys.argv[1:]]))
        progress(1)
        say("figures")
        charts = write_report_figures(output_folder(figures), data) if figures is not None else []
        progress(1)
    for sentence in report_summary(data):
        screen.print(sentence, soft_wrap=True)
    screen.print(f"Open {page} in a browser.", soft_wrap=True)
    if charts:
        screen.print(f"Wrote {len(charts)} figures to {figures}.", soft_wrap=True)
    if as_json:
        print_json(data)

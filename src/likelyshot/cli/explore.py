"""The command likelyshot explore."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.shared import (
    FeaturesArgument,
    JsonOption,
    LabelsOption,
    NormaliseOption,
    RectifyOption,
    SeedOption,
    SplitOption,
    TasksOption,
    WaysOption,
    print_json,
    running,
)
from likelyshot.errors import InputError


def explore(
    features: FeaturesArgument = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("results/explore.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for all figures, as SVG, PDF and PNG.", show_default=False)
    ] = None,
    split: SplitOption = None,
    labels: LabelsOption = None,
    ways: WaysOption = 5,
    shots: Annotated[int, typer.Option(help="Labelled examples per class in each task.")] = 1,
    tasks: TasksOption = 500,
    seed: SeedOption = 0,
    lambda_max: Annotated[
        float | None,
        typer.Option(
            help="Upper bound of the rates of MLL. Default: 40, or 1.5 / mean of the features if more.",
            show_default=False,
        ),
    ] = None,
    normalise: NormaliseOption = True,
    rectify: RectifyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page about features: are they exponential, do classes differ, and how well do the metrics separate them?

    The page is one HTML file that works offline. It shows the histogram of any feature and class with its exponential
    fit, which of six families fits best, how the rates differ between classes, and the scores within and between
    classes.

    For example:

        likelyshot explore

        likelyshot explore F.safetensors --split val -o f.html --figures figures
    """
    with running(as_json) as (screen, start):
        from likelyshot.data.files import output_folder
        from likelyshot.data.packaged import PACKAGED
        from likelyshot.evaluation.explore import explore as run
        from likelyshot.evaluation.explore import explore_work
        from likelyshot.evaluation.run import read_features
        from likelyshot.report.explore_page import write_explore_figures, write_explore_page

        chosen = read_features(features or PACKAGED, split=split, labels=labels, rectify=rectify)
        if output.is_dir():
            raise InputError(f"expected an HTML file, but {output} is a folder: use -o {output}/explore.html")
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
    screen.print(f"Open {page} in a browser.", soft_wrap=True)
    if drawn:
        screen.print(f"Wrote {len(drawn)} figures to {figures}.", soft_wrap=True)
    if as_json:
        print_json(data)

"""The command likelyshot explore."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from likelyshot.cli.shared import (
    KINDS,
    JsonOption,
    LabelsOption,
    NormaliseOption,
    RectifyOption,
    SeedOption,
    SplitOption,
    TasksOption,
    WaysOption,
    check_page,
    print_json,
    running,
)

if TYPE_CHECKING:
    from likelyshot.data.features import Features

#: Classes of a task, unless there are fewer.
WAYS = 5


def explore(
    features: Annotated[
        Path | None,
        typer.Argument(
            help=f"{KINDS}. Or a folder of images, with class folders or without. Default: the packaged features.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("results/explore.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Folder for all figures, as SVG, PDF and PNG.", show_default=False)
    ] = None,
    split: SplitOption = None,
    labels: LabelsOption = None,
    ways: WaysOption = WAYS,
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
    encoder: Annotated[str, typer.Option(help="Encoder of a folder of images.")] = "efficientnet_lite0",
    as_json: JsonOption = False,
) -> None:
    """Write a page about images or their features: a map, how features are distributed, how well metrics separate.

    The page is one HTML file that works offline. A map shows which images look alike, with a picture for each of them.
    With several classes, the page also shows the histogram of any feature and class with its exponential fit, which of
    six families fits best, how the rates differ between classes, and the scores within and between classes.

    For example:

        likelyshot explore photos/ -o photos.html
        likelyshot explore F.safetensors --split val -o f.html --figures figures
    """
    with running(as_json) as (screen, start):
        from likelyshot.data.files import locate, output_folder
        from likelyshot.data.packaged import PACKAGED
        from likelyshot.evaluation.explore import explore as run
        from likelyshot.evaluation.explore import explore_map, explore_work
        from likelyshot.evaluation.run import read_features
        from likelyshot.report.explore_page import write_explore_figures, write_explore_page

        check_page(output)
        if figures is not None:
            output_folder(figures, make=False)
        file, folders = features or PACKAGED, [Path.cwd()]
        if file.is_dir() or file.suffix.lower() == ".zip":
            chosen = _embedded(file, encoder, split, start)
            folders.insert(0, file.resolve().parent)
            rectify = bool((chosen.vectors < 0).any())
        else:
            chosen = read_features(file, split=split, labels=labels)
            folders.insert(0, file.resolve().parent)
        if ways == WAYS:  # or as many as there are
            ways = min(ways, len(set(chosen.labels.tolist())))
        if len(sizes := chosen.counts[chosen.counts > 0]) < 2 or int(sizes.min()) <= shots:
            data = explore_map(chosen, seed=seed)
        else:
            progress, say = start(explore_work(chosen, tasks))
            say("fits and scores")
            data = run(
                chosen.rectified() if rectify else chosen,
                tasks=tasks,
                ways=ways,
                shots=shots,
                seed=seed,
                lambda_max=lambda_max,
                normalise=normalise,
                progress=progress,
            )
        places = [locate(name, folders) if chosen.paths is not None else "" for name in data["map"]["names"]]
        pictures = [place if isinstance(place, Path) else None for place in places]
        output_folder(output.parent)
        page = write_explore_page(output, data, command=shlex.join(["likelyshot", *sys.argv[1:]]), pictures=pictures)
        charts = []
        if figures is not None and "families" in data:
            charts = write_explore_figures(output_folder(figures), data)
    if "families" not in data:
        few = f"fewer than two classes with more than {shots} image{'s' if shots > 1 else ''} each"
        screen.print(f"The page has the map only, since there are {few}.", soft_wrap=True)
    if left_out := data["about"]["left_out"]:
        screen.print(f"Left out: {left_out}.", soft_wrap=True)
    screen.print(f"Open {page} in a browser.", soft_wrap=True)
    if charts:
        screen.print(f"Wrote {len(charts)} figures to {figures}.", soft_wrap=True)
    if as_json:
        print_json(data)


def _embedded(folder: Path, encoder: str, split: str | None, start: Any) -> Features:
    """Compute the features of a folder of images, without those that cannot be read; vectors are cached."""
    from likelyshot.encoders.extract import extract

    def begin(total: int) -> Callable[[int], None]:
        progress, say = start(total)
        say("images")
        done: Callable[[int], None] = progress
        return done

    with tempfile.TemporaryDirectory() as place:
        features = extract(
            folder,
            Path(place) / "features.safetensors",
            encoder=encoder,
            split=split,
            skip_unreadable=True,
            start=begin,
        ).features
    return replace(features, source={**features.source, "file": folder.resolve().name})

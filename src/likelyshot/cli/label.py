"""The command likelyshot label."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.own_data import (
    CacheOption,
    EncoderOption,
    LabelColumnOption,
    MaybeSupportOption,
    OneMethodOption,
    OwnDeviceOption,
    OwnParamOption,
    OwnSeedOption,
    PathColumnOption,
    TextColumnOption,
)
from likelyshot.cli.shared import running
from likelyshot.errors import InputError


def label(
    pile: Annotated[
        Path,
        typer.Argument(help="What to label: a folder of images, a table or a features file.", show_default=False),
    ],
    classes: Annotated[
        str | None,
        typer.Option(help="Classes to begin with, as in cat,dog; more can be added on the page.", show_default=False),
    ] = None,
    support: MaybeSupportOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The table of labels, .csv. Default: labels.csv here, or beside the pile if that lies elsewhere.",
            show_default=False,
        ),
    ] = None,
    label_studio: Annotated[
        Path | None,
        typer.Option(help="Start with the labels of a Label Studio export, .json.", show_default=False),
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            help="Write the labels for another tool, and open no page: folders, links, imagefolder, label-studio or "
            "features.",
            show_default=False,
        ),
    ] = None,
    method: OneMethodOption = None,
    encoder: EncoderOption = None,
    label_column: LabelColumnOption = None,
    path_column: PathColumnOption = None,
    text_column: TextColumnOption = None,
    param: OwnParamOption = None,
    seed: OwnSeedOption = 0,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    port: Annotated[int, typer.Option(help="Port of the page; 0 for any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Label a pile in the browser, in rounds of a few clicks.

    The page runs on this machine only. Every click is saved at once, and the same command goes on where you
    stopped. After each round the pile is classified, and the next screen shows what helps most.

    For example:

        likelyshot label pile/ --classes cat,dog
        likelyshot label pile/ --support labelled/ -o labels.csv
        likelyshot label pile/ --export imagefolder
    """
    with running(False) as (screen, start):
        from likelyshot.cli import own_data
        from likelyshot.labelling.exports import check_kind
        from likelyshot.labelling.session import label as run
        from likelyshot.labelling.session import table_of_labels

        for kind in export or []:
            check_kind(kind)
        if export and support is None and label_studio is None and os.path.exists(pile):  # noqa: PTH110
            check_labels(table_of_labels(pile, output))
        labelling = run(
            pile,
            classes=[] if classes is None else classes.split(","),
            support=support,
            output=output,
            label_studio=label_studio,
            label_column=label_column,
            path_column=path_column,
            text_column=text_column,
            encoder=encoder,
            seed=seed,
            device=device,
            cache="user" if cache else None,
            page=not export,
            port=port,
            browser=browser,
            stage=own_data.stages(start),
            say=lambda sentence: own_data.show(screen, sentence),
            **own_data.method_and_params(method, param),
        )
        if export:
            try:
                for kind in export:
                    own_data.show(screen, labelling.export(kind))
            finally:
                labelling.stop()
            return
    labelling.wait()
    own_data.show(screen, f"Stopped. {len(labelling.labels):,} labels are in {labelling.output}.")


def check_labels(table: Path) -> None:
    """Refuse to export labels before there are any, which would embed the whole pile first."""
    from likelyshot.labelling.labels import journal_path

    if not journal_path(table).exists():
        got = f"expected labels in {table}, but there are none yet"
        raise InputError(f"{got}: label some items first, or name their table with -o")

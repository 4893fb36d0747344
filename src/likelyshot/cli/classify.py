"""The command likelyshot classify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import JsonOption
from likelyshot.cli.own_data import (
    CacheOption,
    CopyOption,
    EncoderOption,
    ForBaseOption,
    ForValOption,
    GalleryOption,
    LinkOption,
    OneMethodOption,
    OwnDeviceOption,
    OwnParamOption,
    OwnRectifyOption,
    OwnSeedOption,
    RejectOption,
    SupportOption,
)


def classify(
    support: SupportOption,
    query: Annotated[
        Path,
        typer.Option(
            "--query",
            "-q",
            help="The pile: a folder, nested as it may be, an image, a table, or features.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The table to write: .csv, .parquet or .jsonl.")
    ] = Path("predictions.csv"),
    method: OneMethodOption = None,
    encoder: EncoderOption = None,
    reject: RejectOption = 0.05,
    copy_to: CopyOption = None,
    link_to: LinkOption = None,
    gallery: GalleryOption = None,
    val: ForValOption = None,
    base: ForBaseOption = None,
    param: OwnParamOption = None,
    rectify: OwnRectifyOption = False,
    seed: OwnSeedOption = 0,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Label a pile of images, texts or vectors by a few labelled examples.

    It first says what accuracy the labelled examples let expect. The table has the columns path, predicted,
    probability, runner_up, margin and reject; what could not be read is left out and told at the end.

    For example:

        likelyshot classify --support labelled/ --query pile/ -o predictions.csv --gallery gallery.html

        likelyshot classify -s labelled.csv -q texts.csv -o answers.jsonl --reject 0.1

        likelyshot classify -s few.npz -q million.npy -o answers.parquet
    """
    with running(as_json) as (screen, start):
        from likelyshot.cli import own_data
        from likelyshot.own_data.pipeline import classify as run

        chosen = own_data.chosen_method(method)
        own_data.check_outputs(query, output, gallery, copy_to, link_to)
        found = run(
            support,
            query,
            encoder=encoder,
            method=chosen,
            params=own_data.method_params(chosen, param),
            reject=reject,
            base=own_data.base_features(base, rectify),
            validation=own_data.validation_features(val),
            rectify=rectify or None,
            seed=seed,
            device=device,
            cache="user" if cache else None,
            stage=own_data.stages(start),
            say=lambda sentence: own_data.show(screen, sentence),
        )
        if found.expectation is not None:
            own_data.show_confusion(screen, found.expectation)
        found.save(output)
        own_data.show(screen, f"{len(found.items):,} answers: {output}")
        failed = own_data.write_extras(found, screen, gallery, copy_to, link_to)
    own_data.show_problems(screen, [*found.problems, *failed])
    if as_json:
        print_json(own_data.document(found, failed, output))

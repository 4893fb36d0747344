"""The command likelyshot classify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from likelyshot.cli.own_data import (
    AllOption,
    CacheOption,
    CopyOption,
    EncoderOption,
    ForBaseOption,
    ForValOption,
    GalleryOption,
    LabelColumnOption,
    LinkOption,
    OneMethodOption,
    OwnDeviceOption,
    OwnParamOption,
    OwnRectifyOption,
    OwnSeedOption,
    PathColumnOption,
    PerClassOption,
    RejectOption,
    SupportsOption,
    TextColumnOption,
)
from likelyshot.cli.shared import (
    JsonOption,
    PartOption,
    RayOption,
    check_kept,
    on_cluster,
    part_of,
    print_json,
    running,
)
from likelyshot.errors import InputError


def classify(
    support: SupportsOption = None,
    query: Annotated[
        Path | None,
        typer.Option(
            "--query",
            "-q",
            help="What to classify: a folder (searched recursively), an image, a table or a features file.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The table to write: .csv, .parquet or .jsonl; without an extension, a folder of Parquet files, "
            "of which a second run skips the finished ones. Default: predictions.csv.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Draw pictures and classify them, to see how it works in a minute.")
    ] = False,
    demo_folder: Annotated[Path, typer.Option(help="With --demo: the folder for everything that it writes.")] = Path(
        "likelyshot-demo"
    ),
    method: OneMethodOption = None,
    encoder: EncoderOption = None,
    reject: RejectOption = 0.05,
    all_probabilities: AllOption = False,
    copy_to: CopyOption = None,
    link_to: LinkOption = None,
    gallery: GalleryOption = None,
    gallery_per_class: PerClassOption = 60,
    label_column: LabelColumnOption = None,
    path_column: PathColumnOption = None,
    text_column: TextColumnOption = None,
    val: ForValOption = None,
    base: ForBaseOption = None,
    param: OwnParamOption = None,
    rectify: OwnRectifyOption = False,
    seed: OwnSeedOption = 0,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label a pile of images, texts or vectors, given a few labelled examples.

    Prints the accuracy to expect, estimated on held-out labelled examples, and at the end a summary. The table has the
    columns path, predicted, probability, runner_up, margin and reject. Unreadable files are skipped and listed.

    For example:

        likelyshot classify --demo
        likelyshot classify --support labelled/ --query pile/ -o predictions.csv --gallery gallery.html
        likelyshot classify --support labelled/ corrections.csv --query pile/
        likelyshot classify -s labelled.csv -q texts.csv -o answers.jsonl --reject 0.1
        likelyshot classify -s few.npz -q million.npy -o answers.parquet
        likelyshot classify -s few.npz -q 'shards/*.parquet' -o answers --part 2/8
    """
    with running(as_json) as (screen, start), on_cluster(ray):
        from likelyshot.cli import own_data
        from likelyshot.own_data.answers import Tally
        from likelyshot.own_data.piles import read_pile
        from likelyshot.own_data.pipeline import classify as run
        from likelyshot.own_data.pipeline import fit

        chosen = own_data.method_and_params(method, param)
        demo_data = None
        if demo:
            if support or query is not None:
                raise InputError("expected --demo alone, or --support and --query for your own data: leave one out")
            demo_data = own_data.begin_demo(screen, demo_folder)
            support, query = [demo_data.labelled], demo_data.pile
            output, gallery = output or demo_folder / "predictions.csv", gallery or demo_folder / "gallery.html"
        if not support or query is None:
            raise InputError(
                "expected labelled examples and a pile: give --support FOLDER and --query FOLDER, or try --demo"
            )
        output = output or Path("predictions.csv")
        this_part = part_of(part)
        own_data.check_outputs(query, output, gallery, copy_to, link_to, this_part)
        check_kept(output, query, *support, val, base)
        columns = {"label_column": label_column, "path_column": path_column, "text_column": text_column}
        stage, cache_place = own_data.stages(start), "user" if cache else None
        settings: dict[str, Any] = {
            **columns,
            "encoder": encoder,
            "reject": reject,
            "rectify": rectify or None,
            "seed": seed,
            "device": device,
            "cache": cache_place,
            "stage": stage,
            "say": lambda sentence: own_data.show(screen, sentence),
            **chosen,
            **own_data.other_classes(val, base, rectify),
        }
        pile = read_pile(query, **columns)
        if this_part is not None and pile.vectors is None:
            shared = {"cache": cache_place, "stage": stage, "all_probabilities": all_probabilities}
            own_data.embed_own_part(screen, fit(support, **settings), pile, output, this_part, **shared)
            return
        result = run(support, pile, keep=own_data.keep_vectors(output), **settings)
        own_data.show_confusion(screen, result.expectation)
        tally = Tally(result.model.classes)
        result.save(output, all_probabilities=all_probabilities, part=this_part, tally=tally)
        own_data.show_near_duplicates(screen, result)
        extras, failed = own_data.write_extras(result, gallery, copy_to, link_to, gallery_per_class, demo_data)
    own_data.show_problems(screen, [*result.problems, *failed])
    own_data.show_summary(screen, result, tally, output, extras, support, this_part)
    if demo_data is not None:
        own_data.end_demo(screen, demo_data, result)
    if as_json:
        print_json(own_data.classification_facts(result, tally, failed, output))

"""The command likelyshot predict."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from likelyshot.cli.own_data import (
    AllOption,
    CacheOption,
    CopyOption,
    EncoderOption,
    GalleryOption,
    LabelColumnOption,
    LinkOption,
    OwnDeviceOption,
    PathColumnOption,
    PerClassOption,
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
    print_lines,
    running,
)
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.own_data.model import Model


def predict(
    model: Annotated[Path, typer.Argument(help="A model that likelyshot fit wrote.", show_default=False)],
    query: Annotated[
        str,
        typer.Argument(
            help="An image, a folder, a table or a features file; - reads paths (or texts) from standard input, one "
            "per line.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The table to write: .csv, .parquet or .jsonl; without an extension, a folder of Parquet files, "
            "of which a second run skips the finished ones. Default: print JSONL to standard output.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[
        float | None, typer.Option(help="Rejection rate, instead of that of the model.", show_default=False)
    ] = None,
    all_probabilities: AllOption = False,
    copy_to: CopyOption = None,
    link_to: LinkOption = None,
    gallery: GalleryOption = None,
    gallery_per_class: PerClassOption = 60,
    label_column: LabelColumnOption = None,
    path_column: PathColumnOption = None,
    text_column: TextColumnOption = None,
    encoder: EncoderOption = None,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    part: PartOption = None,
    ray: RayOption = None,
    as_json: JsonOption = False,
) -> None:
    """Classify an image, a pile or a stream of paths with a model that likelyshot fit wrote.

    A stream is answered line by line, as JSONL, each item on its own. A line that cannot be answered gives an error in
    its place, and the stream goes on.

    For example:

        likelyshot predict model.safetensors photo.jpg
        likelyshot predict model.safetensors pile/ -o predictions.csv --gallery gallery.html
        find incoming -name '*.jpg' | likelyshot predict model.safetensors -
    """
    if output is None and as_json:
        raise InputError("--json describes the table that is written: name one with -o, or leave --json out")
    if query == "-":
        if output or gallery or copy_to or link_to or as_json:
            raise InputError("a stream is answered on standard output: leave out -o, --gallery, --copy-to and --json")
        _stream(model, reject, encoder, device, cache)
        return
    to_screen = as_json or output is None  # sentences must not mix with what is printed
    with running(to_screen) as (screen, start), on_cluster(ray):
        from likelyshot.cli import own_data
        from likelyshot.own_data.answers import Tally, json_lines
        from likelyshot.own_data.piles import read_pile
        from likelyshot.own_data.pipeline import predict as run

        this_part = part_of(part)
        own_data.check_outputs(Path(query), output, gallery, copy_to, link_to, this_part)
        check_kept(output, Path(query), model)
        loaded = _load(model, reject)  # first: it says if model and pile are swapped
        pile = read_pile(query, label_column=label_column, path_column=path_column, text_column=text_column)
        settings: dict[str, Any] = {
            "encoder": encoder,
            "device": device,
            "cache": "user" if cache else None,
            "stage": own_data.stages(start),
        }
        if this_part is not None and output is not None and pile.vectors is None:
            own_data.embed_own_part(
                screen, loaded, pile, output, this_part, all_probabilities=all_probabilities, **settings
            )
            return
        keep = own_data.keep_vectors(output)
        result = run(loaded, pile, keep=keep, say=lambda sentence: own_data.show(screen, sentence), **settings)
        tally = Tally(result.model.classes)
        if output is None:
            for piece in tally.through(result.chunks()):
                print_lines(screen, json_lines(piece, all_probabilities=all_probabilities))
        else:
            result.save(output, all_probabilities=all_probabilities, part=this_part, tally=tally)
        own_data.show_near_duplicates(screen, result)
        extras, failed = own_data.write_extras(result, gallery, copy_to, link_to, gallery_per_class)
    own_data.show_problems(screen, [*result.problems, *failed])
    if len(result.items) > 1 or output is not None:
        own_data.show_summary(screen, result, tally, output, extras, part=this_part)
    if as_json and output is not None:
        print_json(own_data.classification_facts(result, tally, failed, output))


def _load(path: Path, reject: float | None) -> Model:
    from likelyshot.own_data.model import Model

    model = Model.load(path)
    return model if reject is None else dataclasses.replace(model, reject=reject)


def _stream(path: Path, reject: float | None, encoder: str | None, device: str, cache: bool) -> None:
    """Answer standard input line by line."""
    with running(True) as (screen, _):
        from likelyshot.cli import own_data
        from likelyshot.own_data.pipeline import open_for
        from likelyshot.own_data.stream import answer_stream, stream_method

        model = _load(path, reject)
        opened = open_for(model, encoder, device)
        own_data.show(screen, f"Each line is classified on its own by {stream_method(model)} (inductive).")
    if isinstance(sys.stdin, io.TextIOWrapper):  # names of files are bytes, and need not be UTF-8
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        for line in answer_stream(model, opened, sys.stdin, cache="user" if cache else None):
            sys.stdout.write(line)
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of the answers has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

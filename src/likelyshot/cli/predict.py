"""The command likelyshot predict."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.display import print_json, running
from likelyshot.cli.options import JsonOption
from likelyshot.cli.own_data import (
    CacheOption,
    CopyOption,
    EncoderOption,
    GalleryOption,
    LinkOption,
    OwnDeviceOption,
)
from likelyshot.errors import InputError


def predict(
    model: Annotated[Path, typer.Argument(help="A model by likelyshot fit.", show_default=False)],
    query: Annotated[
        str,
        typer.Argument(
            help="An image, a folder, a table or features; - reads paths (or texts) from standard input, one a line.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The table to write: .csv, .parquet or .jsonl. Default: JSONL on standard output.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[
        float | None, typer.Option(help="Another rate of rejection than the model's.", show_default=False)
    ] = None,
    copy_to: CopyOption = None,
    link_to: LinkOption = None,
    gallery: GalleryOption = None,
    encoder: EncoderOption = None,
    device: OwnDeviceOption = "cpu",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Classify by a model that likelyshot fit wrote: one image, a pile, or a stream of paths.

    A stream is answered line by line, as JSONL, each item on its own; a line that cannot be answered gives an error
    in its place, and the stream goes on.

    For example:

        likelyshot predict model.safetensors photo.jpg

        likelyshot predict model.safetensors pile/ -o predictions.csv --gallery gallery.html

        find incoming -name '*.jpg' | likelyshot predict model.safetensors -
    """
    if output is None and as_json:
        raise InputError("--json tells about the table that is written: name it by -o, or leave --json out")
    if query == "-":
        if output or gallery or copy_to or link_to or as_json:
            raise InputError("a stream is answered on standard output: leave out -o, --gallery, --copy-to and --json")
        _stream(model, reject, encoder, device, cache)
        return
    to_screen = as_json or output is None  # what is said must not mix with what is printed
    with running(to_screen) as (screen, start):
        from likelyshot.cli import own_data
        from likelyshot.own_data.answers import json_line
        from likelyshot.own_data.model import Model
        from likelyshot.own_data.pipeline import predict as run

        own_data.check_outputs(Path(query), output, gallery, copy_to, link_to)
        loaded = Model.load(model)
        found = run(
            loaded if reject is None else dataclasses.replace(loaded, reject=reject),
            query,
            encoder=encoder,
            device=device,
            cache="user" if cache else None,
            stage=own_data.stages(start),
            say=lambda sentence: own_data.show(screen, sentence),
        )
        if output is None:
            for chunk in found.chunks():
                sys.stdout.writelines(map(json_line, chunk.rows()))
        else:
            found.save(output)
            own_data.show(screen, f"{len(found.items):,} answers: {output}")
        failed = own_data.write_extras(found, screen, gallery, copy_to, link_to)
    own_data.show_problems(screen, [*found.problems, *failed])
    if as_json and output is not None:
        print_json(own_data.document(found, failed, output))


def _stream(path: Path, reject: float | None, encoder: str | None, device: str, cache: bool) -> None:
    """Answer standard input line by line."""
    with running(True) as (screen, _):
        from likelyshot.cli import own_data
        from likelyshot.own_data.model import Model
        from likelyshot.own_data.pipeline import open_for
        from likelyshot.own_data.stream import answer_stream, stream_method

        loaded = Model.load(path)
        loaded = loaded if reject is None else dataclasses.replace(loaded, reject=reject)
        opened = open_for(loaded, encoder, device)
        by = f"by {stream_method(loaded)} (inductive), as a stream has no pile"
        own_data.show(screen, f"Each line is answered on its own {by}.")
    if isinstance(sys.stdin, io.TextIOWrapper):  # names of files are bytes, and need not be UTF-8
        sys.stdin.reconfigure(errors="surrogateescape")
    try:
        for line in answer_stream(loaded, opened, sys.stdin, cache="user" if cache else None):
            sys.stdout.write(line)
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # who read the answers has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

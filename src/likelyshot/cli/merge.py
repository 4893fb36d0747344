"""The command likelyshot merge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from likelyshot.cli.shared import running


def merge(
    folder: Annotated[Path, typer.Argument(help="The folder that all parts were written to.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The table to write: .csv, .parquet or .jsonl.", show_default=False),
    ] = None,
) -> None:
    """Put the parts together that commands wrote with --part.

    A part that is missing is named. The result is the same, bit by bit, as that of one command without --part.

    For example:

        likelyshot merge answers -o answers.csv
    """
    with running() as (screen, _):
        from likelyshot.errors import InputError
        from likelyshot.own_data.answer_folder import merge_answers

        if output is None:
            raise InputError("expected a table to write the answers to: give -o answers.csv, .parquet or .jsonl")
        count = merge_answers(folder, output)
    screen.print(f"Wrote {count:,} answers to {output}", soft_wrap=True)

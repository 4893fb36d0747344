"""The command likelyshot list."""

from __future__ import annotations

from typing import Annotated

import typer

from likelyshot.cli.shared import JsonOption, console, print_json


def list_methods(
    method: Annotated[
        str | None, typer.Argument(help="A method, to show everything about it.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods: what each does, what it needs and its paper.

    For your own data you need not choose: classify does, by the size of the pile. docs/methods.md compares the methods.

    For example:

        likelyshot list
        likelyshot list mll_transductive
    """
    from likelyshot.cli.tables import method_page, methods_table
    from likelyshot.methods import METHODS
    from likelyshot.methods.binding import about

    rows = [about(name) for name in ([method] if method is not None else METHODS)]
    if as_json:
        print_json(rows)
    else:
        console().print(methods_table(rows) if method is None else method_page(rows[0]))

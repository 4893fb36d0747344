"""Tables for the terminal and for pages."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from likelyshot.cli.tables import to_markdown


def test_markdown_has_the_title_the_cells_and_the_caption():
    table = Table(title="A title", caption="A caption")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    table.add_row("a|b", Text("84.12 ± 0.21", style="bold"))
    table.add_row("c", "1")
    assert to_markdown(table).splitlines() == [
        "A title",
        "",
        "| method | accuracy |",
        "| --- | ---: |",
        "| a\\|b | **84.12 ± 0.21** |",
        "| c | 1 |",
        "",
        "A caption",
    ]

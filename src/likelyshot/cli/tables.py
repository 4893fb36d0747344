"""Tables for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from likelyshot.cli.shared import difference
from likelyshot.data.results import with_interval
from likelyshot.data.tasks import Dirichlet
from likelyshot.evaluation import published
from likelyshot.evaluation.reproduce import SHOTS, WAYS, Reproduction
from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods.binding import titles
from likelyshot.methods.facts import STATISTICS


def to_markdown(table: Table) -> str:
    """Write a table as Markdown, for a page about results."""

    def line(cells: Sequence[Any]) -> str:
        texts = [(str(cell), getattr(cell, "style", "")) for cell in cells]
        marked = (f"**{text}**" if style == "bold" else text for text, style in texts)
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in marked)} |"

    headings = line([column.header for column in table.columns])
    rule = line(["---:" if column.justify == "right" else "---" for column in table.columns])
    body = [line(row) for row in zip(*(column.cells for column in table.columns), strict=True)]
    parts = (str(table.title or ""), "\n".join([headings, rule, *body]), str(table.caption or ""))
    return "\n\n".join(part for part in parts if part)


def reproduction_tables(run: Reproduction) -> list[Table]:
    """Lay out the tables of the paper, ours first, the published rows after them."""
    pairs = [(_our_table(run, protocol), _published(protocol)) for protocol in run.protocols]
    return [table for pair in pairs for table in pair if table is not None]


def _our_table(run: Reproduction, protocol: str) -> Table:
    query, rows = run.protocols[protocol]
    n_tasks = len(run.results[protocol, SHOTS[0], "euclidean"].accuracy)
    kind = "Imbalanced" if isinstance(query, Dirichlet) else protocol.capitalize()
    references = ["euclidean", *(name for name in ("mll_transductive",) if name in rows)]
    table = Table(
        title=f"{kind}: {WAYS}-way, {query.describe()}, {n_tasks:,} tasks\n"
        "ours, CUB test classes, EfficientNet-Lite0 with a head trained for each metric",
        caption="Mean accuracy ± 95 % interval, in %; differences are paired. Euclidean, Cosine and MLL each on the "
        "network trained with it, Combined on all three, every other method on that of MLL. MLL with lambda_max "
        f"{run.lambda_max:g}, the best on the validation classes.",
        title_justify="left",
        caption_justify="left",
    )
    names = titles()
    table.add_column("method", min_width=max(map(len, " ".join(names[row] for row in rows).split())))
    for shots in SHOTS:
        table.add_column(f"{shots}-shot", justify="right")
        for reference in references:
            table.add_column(f"minus {names[reference]}", justify="right")
    table.add_column("ms / task", justify="right")
    best = {shots: max(run.results[protocol, shots, row].mean for row in rows) for shots in SHOTS}
    for row in rows:
        cells: list[Text] = []
        for shots in SHOTS:
            result = run.results[protocol, shots, row]
            style = "bold" if result.mean == best[shots] else ""
            cells.append(Text(with_interval(result.mean, result.ci95), style=style))
            cells += [difference(run.difference(protocol, shots, row, other)) for other in references]
        fewer = "" if len(result.accuracy) == n_tasks else f" ({len(result.accuracy):,} tasks)"
        took = [run.results[protocol, shots, row] for shots in SHOTS]
        speed = " / ".join(f"{1000 * one.seconds / len(one.accuracy):.3g}" for one in took)
        table.add_row(names[row] + fewer, *cells, speed)
    return table


def _published(protocol: str) -> Table | None:
    if protocol not in ("inductive", "imbalanced"):
        return None
    rows = published.INDUCTIVE if protocol == "inductive" else published.IMBALANCED
    where = "Table I" if protocol == "inductive" else "Tables IV and V"
    table = Table(
        title=f"Published, {where} of Hess & Ditzler: other data sets and networks, not comparable with the above",
        title_justify="left",
        style="dim",
        row_styles=["dim"],
    )
    for heading in ("data", "network", "method"):
        table.add_column(heading)
    for shots in SHOTS:
        table.add_column(f"{shots}-shot", justify="right")
    for previous, row in zip((None, *rows), rows, strict=False):
        if previous is not None and previous[:2] != row[:2]:
            table.add_section()
        first = previous is None or previous[:2] != row[:2]
        digits = 2 if protocol == "inductive" else 1
        table.add_row(
            *(row[:2] if first else ("", "")),
            row.method,
            f"{row.one_shot:.{digits}f}",
            f"{row.five_shot:.{digits}f}",
        )
    return table


def sweep_table(title: str, sweep: Sweep) -> Table:
    """Lay out a sweep: a line for every point of the grid, a column for every number of shots."""
    table = Table(title=Text(title), title_justify="left")
    for key in sweep.grid:
        table.add_column(key, justify="right")
    shots = sorted({row["shots"] for row in sweep.rows})
    for count in shots:
        table.add_column(f"{count}-shot, %", justify="right")
    best = {count: max(row["mean"] for row in sweep.rows if row["shots"] == count) for count in shots}
    for values in itertools.product(*sweep.grid.values()):
        point = dict(zip(sweep.grid, values, strict=True))
        by_shots = {row["shots"]: row for row in sweep.rows if row["point"] == point}
        table.add_row(
            *(f"{value:g}" if isinstance(value, float) else str(value) for value in values),
            *(
                Text(
                    with_interval(by_shots[n]["mean"], by_shots[n]["ci95"]),
                    style="bold" if by_shots[n]["mean"] == best[n] else "",
                )
                for n in shots
            ),
        )
    return table


def _needs(row: Mapping[str, Any]) -> str:
    needs = [STATISTICS[name].source if name in STATISTICS else name for name in row["needs"]]
    needs += [f"{STATISTICS[name].source} if known" for name in row["takes"]]
    return ", ".join(needs + ["non-negative features"] * row["non_negative"])


def methods_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out the methods, a line each: what comes before the first comma says enough here."""
    table = Table()
    for heading in ("method", "what it does", "needs", "paper"):
        table.add_column(heading)
    for row in rows:
        does, paper = (row[key].split(",")[0].removeprefix("Score by ").rstrip(".") for key in ("does", "paper"))
        table.add_row(*(Text(text) for text in (row["method"], does, _needs(row) or "-", paper)))
    return table


def method_page(row: Mapping[str, Any]) -> Text:
    """Write all about one method."""
    needed = _needs(row) or "nothing but the task"
    plain = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in row["parameters"].items()}
    parameters = "\n".join(f"  {key}={value}" for key, value in plain.items()) or "  none"
    return Text.assemble((row["method"], "bold"), f"\n{row['text']}\n\nNeeds: {needed}\nParameters:\n{parameters}")

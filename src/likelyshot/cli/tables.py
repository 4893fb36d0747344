"""Tables for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from likelyshot import published
from likelyshot.reproduce import PROTOCOLS, SHOTS, WAYS, Reproduction
from likelyshot.results import Difference, Result
from likelyshot.sweep import Sweep

NAMES = {
    "euclidean": "Euclidean",
    "cosine": "Cosine",
    "mll": "MLL",
    "mll_transductive": "MLL, transductive",
    "combined": "Combined",
}


def percent(mean: float, ci95: float) -> str:
    """Write a fraction with its interval in percent.

    >>> percent(0.8412, 0.0021)
    '84.12 ± 0.21'
    """
    return f"{100 * mean:.2f} ± {100 * ci95:.2f}"


def difference(result: Result, reference: Result) -> Text:
    """Write a paired difference, coloured when its interval leaves out zero."""
    if result is reference:
        return Text("reference", style="dim")
    found: Difference = result.minus(reference)
    return Text(str(found), style=("green" if found.mean > 0 else "red") if found.significant else "")


def evaluation_table(title: str, results: Sequence[Result], reference: Result) -> Table:
    """Lay out the methods of one setting."""
    table = Table(title=Text(title), title_justify="left", caption_justify="left")
    table.add_column("method")
    for heading in (
        "accuracy, %",
        f"minus {reference.method}",
        "balanced acc., %",
        "macro-F1, %",
        "ms / task",
    ):
        table.add_column(heading, justify="right")
    best = max(result.mean for result in results)
    for result in results:
        table.add_row(
            result.method,
            Text(percent(result.mean, result.ci95), style="bold" if result.mean == best else ""),
            difference(result, reference),
            f"{100 * result.balanced_accuracy.mean():.2f}",
            f"{100 * result.macro_f1.mean():.2f}",
            f"{1000 * result.seconds / len(result.accuracy):.2f}",
        )
    return table


def reproduction_tables(run: Reproduction) -> list[Table]:
    """Lay out the two tables of the paper, ours first, the published rows after them."""
    return [table for protocol in PROTOCOLS for table in (_ours(run, protocol), _published(protocol))]


def _ours(run: Reproduction, protocol: str) -> Table:
    query, methods = PROTOCOLS[protocol]
    n_tasks = len(run.results[protocol, SHOTS[0], methods[0]].accuracy)
    table = Table(
        title=f"{protocol.capitalize()}: {WAYS}-way, {query.describe()}, {n_tasks:,} tasks\n"
        "ours, CUB test classes, EfficientNet-Lite0 features",
        caption=f"Mean accuracy ± 95 % interval, in %; differences are paired. MLL with lambda_max "
        f"{run.lambda_max:g}, the best on the validation classes.",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("method")
    for shots in SHOTS:
        table.add_column(f"{shots}-shot", justify="right")
        table.add_column("minus Euclidean", justify="right")
    best = {shots: max(run.results[protocol, shots, name].mean for name in methods) for shots in SHOTS}
    for name in methods:
        cells: list[Text] = []
        for shots in SHOTS:
            result = run.results[protocol, shots, name]
            style = "bold" if result.mean == best[shots] else ""
            cells += [
                Text(percent(result.mean, result.ci95), style=style),
                difference(result, run.results[protocol, shots, "euclidean"]),
            ]
        table.add_row(NAMES[name], *cells)
    return table


def _published(protocol: str) -> Table:
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
        here = {row["shots"]: row for row in sweep.rows if row["point"] == point}
        table.add_row(
            *(f"{value:g}" if isinstance(value, float) else str(value) for value in values),
            *(
                Text(
                    percent(here[n]["mean"], here[n]["ci95"]),
                    style="bold" if here[n]["mean"] == best[n] else "",
                )
                for n in shots
            ),
        )
    return table


NEEDS = {"base_mean": "base features", "calibration": "validation features"}


def methods_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out the methods, a line each: what comes before the first comma says enough here."""
    table = Table()
    for heading in ("method", "what it does", "needs", "paper"):
        table.add_column(heading)
    for row in rows:
        does, paper = (row[key].split(",")[0].removeprefix("Score by ").rstrip(".") for key in ("does", "paper"))
        needed = ", ".join(NEEDS.get(name, name) for name in row["needs"]) or "-"
        table.add_row(*(Text(text) for text in (row["method"], does, needed, paper)))
    return table


def method_page(row: Mapping[str, Any]) -> Text:
    """Write all about one method."""
    needed = ", ".join(NEEDS.get(name, name) for name in row["needs"]) or "nothing but the task"
    plain = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in row["parameters"].items()}
    given = "\n".join(f"  {key}={value}" for key, value in plain.items()) or "  none"
    return Text.assemble((row["method"], "bold"), f"\n{row['text']}\n\nNeeds: {needed}\nParameters:\n{given}")

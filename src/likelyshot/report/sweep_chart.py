"""The chart of a sweep, and the same as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from likelyshot.data.results import half_width
from likelyshot.errors import InputError
from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods.binding import titles
from likelyshot.report.charts import Chart, Heat, Intervals, Line, Panel
from likelyshot.report.figures import write_figure

MOST_WRITTEN = 10  # columns of a heat map whose values fit into its cells


def draw_sweep(sweep: Sweep, path: str | Path) -> Path:
    """Draw a sweep as a picture; the ending of the path chooses svg, pdf or png."""
    return write_figure(path, sweep_chart(sweep))


def sweep_chart(sweep: Sweep, name: str = "sweep") -> Chart:
    """Describe a sweep: accuracy over one parameter, with 95 % intervals, or a heat map for every number of shots.

    >>> same = {"shots": 1, "ways": 5, "tasks": 9, "mean": 0.5, "ci95": 0.1}
    >>> rows = [{"point": {"lambda_max": x}, **same} for x in (1, 2)]
    >>> sweep_chart(Sweep("mll", {"lambda_max": [1, 2]}, rows, {})).panels[0].marks[0].y
    [50.0, 50.0]
    """
    if len(sweep.grid) not in (1, 2):
        raise InputError(f"expected a sweep of one or two parameters to draw, got {len(sweep.grid)}: sweep fewer")
    shots = sorted({row["shots"] for row in sweep.rows})
    first = sweep.rows[0]
    method = titles().get(sweep.method, sweep.method)
    protocol = f"{method}: {first['ways']}-way, {first['tasks']:,} tasks each"
    over = " and ".join(sweep.grid)
    if len(sweep.grid) == 2:
        panels, how = [_heat(sweep, count) for count in shots], "brighter is better"
    else:
        panels, how = [_curves(sweep, shots, protocol)], "with 95 % intervals"
    caption = f"Accuracy in % over {over}, {how}; {protocol}. Best point, averaged over the shots: {best_point(sweep)}."
    return Chart(name, f"{method} over {over}", caption, panels)


def best_point(sweep: Sweep) -> str:
    """Write the best parameters of a sweep.

    >>> row = {"point": {"eta": 0.5, "iterations": 10.0}, "shots": 1, "mean": 0.5}
    >>> best_point(Sweep("mll_transductive", {"eta": [0.5], "iterations": [10.0]}, [row], {}))
    'eta = 0.5, iterations = 10'
    """
    return ", ".join(f"{key} = {_tick(value)}" for key, value in sweep.best().items())


def _curves(sweep: Sweep, shots: list[int], title: str) -> Panel:
    ((key, values),) = sweep.grid.items()
    words = any(isinstance(value, str | bool | tuple | list) for value in values)
    marks: list[Line | Intervals] = []
    for colour, count in enumerate(shots):
        rows = [row for row in sweep.rows if row["shots"] == count]
        mean, half = [100 * row["mean"] for row in rows], [half_width(row["ci95"]) for row in rows]
        if words:
            marks.append(Intervals(f"{count}-shot", [_tick(value) for value in values], mean, half, colour))
        else:
            marks.append(Line(f"{count}-shot", values, mean, colour, half))
    return Panel("accuracy, %", key, marks, title) if words else Panel(key, "accuracy, %", marks, title)


def _heat(sweep: Sweep, shots: int) -> Panel:
    (down, rows), (across, columns) = sweep.grid.items()
    means = [100 * row["mean"] for row in sweep.rows if row["shots"] == shots]
    table = [means[i : i + len(columns)] for i in range(0, len(means), len(columns))]
    names, heads = ([_tick(value) for value in values] for values in (rows, columns))
    heat = Heat("accuracy, %", names, heads, table, write=len(columns) <= MOST_WRITTEN)
    return Panel(across, down, [heat], f"{shots}-shot accuracy, %")


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

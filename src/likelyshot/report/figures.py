"""Charts as pictures for a paper: SVG, PDF and PNG in one look, without a browser."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from likelyshot.data.files import output_folder, write_whole
from likelyshot.errors import InputError
from likelyshot.report.charts import (
    COLOURS,
    DASHES,
    SYMBOLS,
    Bars,
    Chart,
    Heat,
    Intervals,
    Line,
    Panel,
    Points,
    Steps,
    beside_colour,
    side_by_side,
)

FORMATS = ("svg", "pdf", "png")
QUIET = "#767676"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a class called $x$ stays text
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "likelyshot",
    "pdf.fonttype": 42,  # as journals ask
}


def write_figures(folder: str | Path, charts: Sequence[Chart]) -> list[Path]:
    """Write every chart to a folder, as NAME.svg, NAME.pdf and NAME.png."""
    folder = output_folder(folder)
    written = []
    for chart in charts:
        pictures = _pictures(chart, FORMATS)
        written += [write_whole(folder / f"{chart.name}.{suffix}", picture) for suffix, picture in pictures.items()]
    return written


def write_figure(path: str | Path, chart: Chart) -> Path:
    """Write a chart as one file, whose suffix names the format."""
    suffix = Path(path).suffix.lstrip(".").lower()
    if suffix not in FORMATS:
        raise InputError(
            f"expected a picture as {', '.join(FORMATS)}, got {Path(path).name!r}: give the file one of these endings"
        )
    return write_whole(path, _pictures(chart, [suffix])[suffix])


def draw_chart(chart: Chart) -> Figure:
    """Draw a chart, its panels side by side.

    >>> line = Line("y = x", [0, 1], [0, 1])
    >>> figure = draw_chart(Chart("identity", "The identity", "The line y = x.", [Panel("x", "y", [line])]))
    >>> figure.axes[0].get_xlabel()
    'x'
    """
    heights = [_height(panel) for panel in chart.panels]
    wide = 6.4 if len(chart.panels) == 1 else 3.6 * len(chart.panels)
    figure = Figure(figsize=(wide, max(heights)), layout="constrained")
    for position, panel in enumerate(chart.panels, 1):
        axes = figure.add_subplot(1, len(chart.panels), position)
        axes.set(xlabel=panel.x, ylabel=panel.y)
        _panel(axes, panel)
    return figure


def _pictures(chart: Chart, formats: Sequence[str]) -> dict[str, bytes]:
    dates = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same bytes every time
    pictures = {}
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a letter that the font lacks is drawn as a box
        figure = draw_chart(chart)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # arranged once for all formats
        for suffix in formats:
            picture = io.BytesIO()
            figure.savefig(picture, format=suffix, dpi=200, metadata=dates[suffix])
            pictures[suffix] = picture.getvalue()
    return pictures


def _height(panel: Panel) -> float:
    first = panel.marks[0]
    if isinstance(first, Heat):
        row, least = (0.26, 2.6) if first.write else (0.14, 2.5)
        return min(8.0, max(least, 1.0 + row * len(first.rows)))
    named = [mark for mark in panel.marks if not isinstance(mark, Heat) and mark.name]
    legend = 0.18 * (len(named) + bool(panel.title)) if len(named) > 1 else 0.0
    if isinstance(first, Bars):
        series = sum(isinstance(mark, Bars) for mark in panel.marks)
        return 0.8 + legend + len(first.labels) * (0.1 + 0.2 * series)
    if isinstance(first, Intervals):
        return 0.8 + legend + 0.22 * len(first.labels)
    return 2.7 + legend


def _panel(axes: Axes, panel: Panel) -> None:
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    intervals = [mark for mark in panel.marks if isinstance(mark, Intervals)]
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")  # powers would be mathematics, which is off
        axes.xaxis.set_minor_formatter(NullFormatter())
    for mark in panel.marks:
        if isinstance(mark, Line):
            _line(axes, mark)
        elif isinstance(mark, Steps):
            fill, edge = ((_colour(mark.colour), opacity) for opacity in (0.2, 0.7))
            name = _text(mark.name) or None
            axes.stairs(mark.heights, mark.edges, fill=True, facecolor=fill, edgecolor=edge, lw=0.7, label=name)
        elif isinstance(mark, Points):
            _points(axes, mark)
        elif isinstance(mark, Heat):
            _heat(axes, mark)
    if bars:
        _bars(axes, bars)
    elif intervals:
        _intervals(axes, intervals)
    elif any(isinstance(mark, Steps) for mark in panel.marks):
        axes.set_ylim(bottom=0)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        title = {"title": panel.title, "alignment": "left"} if panel.title else {}
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **title)
    else:
        axes.set_title(panel.title)


def _line(axes: Axes, mark: Line) -> None:
    name = _text(mark.name) or None
    if mark.colour is None:
        axes.plot(mark.x, mark.y, color=QUIET, linewidth=0.8, label=name, zorder=1)
        return
    colour, dash = _colour(mark.colour), beside_colour(mark.colour, list(DASHES.values()))
    if mark.half:
        y, half = np.array(mark.y), np.array(mark.half)
        axes.fill_between(mark.x, y - half, y + half, color=colour, alpha=0.13, linewidth=0)
    symbol = beside_colour(mark.colour, list(SYMBOLS.values())) if mark.half else None
    axes.plot(mark.x, mark.y, color=colour, linestyle=dash, marker=symbol, markersize=4, label=name)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _marker(mark: Intervals | Points) -> dict[str, Any]:
    """Give colour, symbol and label as `errorbar` takes them."""
    return {
        "color": _colour(mark.colour),
        "fmt": beside_colour(mark.colour, list(SYMBOLS.values())),
        "markersize": 5,
        "markerfacecolor": "white" if mark.hollow else _colour(mark.colour),
        "label": _text(mark.name) or None,
    }


def _points(axes: Axes, mark: Points) -> None:
    axes.errorbar(mark.x, mark.y, mark.half, elinewidth=1, **_marker(mark))
    across, beside = (4, "left") if mark.right else (-4, "right")
    down, align = (-4, "top") if mark.below else (4, "bottom")
    for x, y, label, write in zip(mark.x, mark.y, mark.labels, mark.written, strict=True):
        if write:
            name = _text(label)
            axes.annotate(name, (x, y), (across, down), textcoords="offset points", ha=beside, va=align, fontsize=8)
    axes.margins(x=0.2, y=0.12)


def _intervals(axes: Axes, marks: Sequence[Intervals]) -> None:
    labels = marks[0].labels
    for mark, places in zip(marks, side_by_side(marks), strict=True):
        values = [math.nan if value is None else value for value in mark.values]
        axes.errorbar(values, places, xerr=mark.half, elinewidth=1.2, **_marker(mark))
    axes.set_yticks(range(len(labels)), [_text(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.25)


def _bars(axes: Axes, bars: Sequence[Bars]) -> None:
    at = np.arange(len(bars[0].labels))
    thick = 0.75 / len(bars)
    for number, mark in enumerate(bars):
        place = at + (number - (len(bars) - 1) / 2) * thick
        colours = [mark.colour] if isinstance(mark.colour, int) else mark.colour
        container = axes.barh(place, mark.values, thick, color=[*map(_colour, colours)], label=_text(mark.name) or None)
        axes.bar_label(container, [f"{value:.{mark.decimals}f}" for value in mark.values], padding=3, fontsize=8)
    axes.set_yticks(at, [_text(label) for label in bars[0].labels])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.18 * max(1e-9, *(value for mark in bars for value in mark.values)))


def _heat(axes: Axes, mark: Heat) -> None:
    table = np.array([[math.nan if value is None else value for value in row] for row in mark.values])
    low, high = mark.span or (np.nanmin(table), np.nanmax(table))
    image = axes.imshow(table, cmap="cividis", vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    every = max(1, math.ceil(len(mark.rows) / 50))
    axes.set_yticks(range(0, len(mark.rows), every), [_text(name) for name in mark.rows[::every]])
    axes.tick_params("y", labelsize=7 if len(mark.rows) > 12 else 9)
    every = max(1, math.ceil(len(mark.columns) / 10))
    axes.set_xticks(range(0, len(mark.columns), every), [_text(name) for name in mark.columns[::every]])
    if not mark.write:
        axes.figure.colorbar(image, ax=axes, label=mark.unit)
        return
    for i, j in np.ndindex(table.shape):
        shade = "black" if table[i, j] > (low + high) / 2 else "white"
        axes.text(j, i, f"{table[i, j]:.3g}", ha="center", va="center", color=shade)


def _text(name: str) -> str:
    r"""Prepare a name: printable, not too long, and without the underscore first that hides it from a legend.

    >>> _text("a\tb"), _text("_a"), _text("long " * 20)
    ('a b', ' _a', 'long long long long long long long long…')
    """
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    name = name if len(name) <= 40 else name[:39] + "…"
    return f" {name}" if name.startswith("_") else name

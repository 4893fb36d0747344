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

from likelyshot.charts import COLOURS, Bars, Chart, Heat, Line, Panel, Steps
from likelyshot.files import output_folder, write_whole

FORMATS = ("svg", "pdf", "png")
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 3)))  # lines differ by more than colour
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
    """Write every chart into a folder as NAME.svg, NAME.pdf and NAME.png."""
    folder = output_folder(folder)
    written = []
    for chart in charts:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a letter that the font lacks is drawn as a box
            figure = draw(chart)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # arranged once for all formats
            for suffix in FORMATS:
                written.append(write_whole(folder / f"{chart.name}.{suffix}", _picture(figure, suffix)))
    return written


def draw(chart: Chart) -> Figure:
    """Draw a chart, its panels side by side.

    >>> line = Line("y = x", [0, 1], [0, 1])
    >>> figure = draw(Chart("identity", "The identity", "The line y = x.", [Panel("x", "y", [line])]))
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


def _picture(figure: Figure, suffix: str) -> bytes:
    date = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]  # the same bytes every time
    picture = io.BytesIO()
    figure.savefig(picture, format=suffix, dpi=200, metadata=date)
    return picture.getvalue()


def _height(panel: Panel) -> float:
    first = panel.marks[0]
    if isinstance(first, Bars):
        return 0.9 + len(first.labels) * (0.1 + 0.2 * sum(isinstance(mark, Bars) for mark in panel.marks))
    if isinstance(first, Heat):
        return 2.6 if first.write else min(8.0, max(2.5, 1.0 + 0.14 * len(first.rows)))
    return 3.0


def _panel(axes: Axes, panel: Panel) -> None:
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    for mark in panel.marks:
        if isinstance(mark, Line):
            style = DASHES[mark.colour]
            axes.plot(mark.x, mark.y, color=COLOURS[mark.colour], linestyle=style, label=_text(mark.name) or None)
        elif isinstance(mark, Steps):
            fill, edge = ((COLOURS[mark.colour], opacity) for opacity in (0.2, 0.7))
            axes.stairs(
                mark.heights,
                mark.edges,
                fill=True,
                facecolor=fill,
                edgecolor=edge,
                lw=0.7,
                label=_text(mark.name) or None,
            )
        elif isinstance(mark, Heat):
            _heat(axes, mark)
    if bars:
        _bars(axes, bars)
    elif not isinstance(panel.marks[0], Heat):
        axes.set_ylim(bottom=0)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        title = {"title": panel.title, "alignment": "left"} if panel.title else {}
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **title)
    else:
        axes.set_title(panel.title)


def _bars(axes: Axes, bars: Sequence[Bars]) -> None:
    at = np.arange(len(bars[0].labels))
    thick = 0.75 / len(bars)
    for number, mark in enumerate(bars):
        place = at + (number - (len(bars) - 1) / 2) * thick
        drawn = axes.barh(place, mark.values, thick, color=COLOURS[mark.colour], label=_text(mark.name) or None)
        axes.bar_label(drawn, [f"{value:.3g}" for value in mark.values], padding=3, fontsize=8)
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

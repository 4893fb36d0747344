"""Pictures, drawn without a browser."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from likelyshot.charts import COLOURS
from likelyshot.files import write_whole
from likelyshot.sweep import Sweep


def draw_sweep(sweep: Sweep, path: str | Path) -> Path:
    """Draw a sweep as curves with 95 % bands (one parameter) or as a heat map (two); the suffix names the format."""
    panels = sorted({row["shots"] for row in sweep.rows})
    wide = len(sweep.grid) == 2
    figure = Figure(figsize=(6.4 if not wide else 1.5 + 4.5 * len(panels), 4.2), layout="constrained")
    if wide:
        for position, shots in enumerate(panels, 1):
            _heat_map(figure.add_subplot(1, len(panels), position), sweep, shots)
    else:
        _curves(figure.add_subplot(), sweep, panels)
    protocol = f"{sweep.rows[0]['ways']}-way, {sweep.rows[0]['tasks']:,} tasks each"
    figure.suptitle(f"{sweep.method}: {protocol}", fontsize=11)
    picture = io.BytesIO()
    with rc_context({"svg.hashsalt": "likelyshot", "svg.fonttype": "none"}):
        figure.savefig(picture, format=Path(path).suffix.lstrip(".") or "svg", dpi=150, metadata={"Date": None})
    return write_whole(path, picture.getvalue())


def _curves(axes, sweep: Sweep, panels: list[int]) -> None:  # type: ignore[no-untyped-def]
    ((key, values),) = sweep.grid.items()
    at = np.arange(len(values)) if any(isinstance(v, str | bool | tuple) for v in values) else np.array(values)
    for colour, shots in zip(itertools.cycle(COLOURS), panels, strict=False):
        rows = [row for row in sweep.rows if row["shots"] == shots]
        mean = 100 * np.array([row["mean"] for row in rows])
        ci95 = 100 * np.array([row["ci95"] for row in rows])
        axes.fill_between(at, mean - ci95, mean + ci95, color=colour, alpha=0.2, linewidth=0)
        axes.plot(at, mean, "o-", color=colour, markersize=4)
        axes.annotate(f"{shots}-shot", (at[-1], mean[-1]), xytext=(6, 0), textcoords="offset points", color=colour)
    axes.set_xticks(at, [_tick(value) for value in values])
    axes.set_xlabel(key)
    axes.set_ylabel("accuracy, %")
    axes.margins(x=0.12)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _heat_map(axes, sweep: Sweep, shots: int) -> None:  # type: ignore[no-untyped-def]
    (down, rows), (across, columns) = sweep.grid.items()
    table = np.array([100 * row["mean"] for row in sweep.rows if row["shots"] == shots])
    table = table.reshape(len(rows), len(columns))
    image = axes.imshow(table, cmap="cividis", aspect="auto", origin="lower")
    middle = (table.min() + table.max()) / 2
    for i, j in np.ndindex(table.shape):
        shade = "black" if table[i, j] > middle else "white"
        axes.text(j, i, f"{table[i, j]:.1f}", ha="center", va="center", color=shade, fontsize=7)
    axes.set_xticks(range(len(columns)), [_tick(value) for value in columns])
    axes.set_yticks(range(len(rows)), [_tick(value) for value in rows])
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    axes.set_title(f"{shots}-shot accuracy, %", fontsize=10)
    axes.figure.colorbar(image, ax=axes)


def _tick(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Charts as plain data, drawn by the page in a browser and by figures for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # Okabe & Ito: colour-blind safe
COLOURS_ON_DARK = ("#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#F0E442")

Numbers = Sequence[float]


@dataclass(frozen=True)
class Line:
    """A curve through points (x, y); without a colour, a thin one to compare with.

    `half` holds the half-widths of the intervals of y: a band is drawn, and the points are marked. Colours beyond the
    palette begin it again, with other dashes.
    """

    name: str
    x: Numbers
    y: Numbers
    colour: int | None = 0
    half: Numbers = ()
    kind: str = field(default="line", init=False)


@dataclass(frozen=True)
class Steps:
    """A histogram: heights between neighbouring edges, one fewer than these."""

    name: str
    edges: Numbers
    heights: Numbers
    colour: int = 0
    kind: str = field(default="steps", init=False)


@dataclass(frozen=True)
class Bars:
    """One bar per label, lying, with its value written at the end."""

    name: str
    labels: Sequence[str]
    values: Numbers
    colour: int = 0
    kind: str = field(default="bars", init=False)


@dataclass(frozen=True)
class Intervals:
    """One point per label, lying, with its interval: value ± half. None is left out; marks share their labels."""

    name: str
    labels: Sequence[str]
    values: Sequence[float | None]
    half: Numbers
    colour: int = 0
    kind: str = field(default="intervals", init=False)


@dataclass(frozen=True)
class Points:
    """Points (x, y ± half), each with a label, written to its left if `written` says so: above the point or `below`."""

    name: str
    x: Numbers
    y: Numbers
    half: Numbers
    labels: Sequence[str]
    written: Sequence[bool]
    colour: int = 0
    below: bool = False
    kind: str = field(default="points", init=False)


@dataclass(frozen=True)
class Heat:
    """A heat map: one value, or None, per row and column; `write` writes the values into the cells.

    `span` is the darkest and the brightest value, those that occur by default.
    """

    unit: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    write: bool = False
    span: tuple[float, float] | None = None
    kind: str = field(default="heat", init=False)


Mark = Line | Steps | Bars | Intervals | Points | Heat


@dataclass(frozen=True)
class Panel:
    """Marks on one pair of axes."""

    x: str  # what the axis across shows
    y: str
    marks: Sequence[Mark]
    title: str = ""
    log_x: bool = False


def side_by_side(marks: Sequence[Intervals]) -> list[list[float]]:
    """Find the place of every value along the labels: at its label, or beside the others that are there.

    >>> side_by_side([Intervals("", ["a", "b"], [1, 2], [0, 0]), Intervals("", ["a", "b"], [None, 3], [0, 0])])
    [[0.0, 0.89], [0.0, 1.11]]
    """
    places: list[list[float]] = [[] for _ in marks]
    for at in range(len(marks[0].labels)):
        here = [mark.values[at] is not None for mark in marks]
        for number, place in enumerate(places):
            before = sum(here[:number])
            place.append(at + 0.22 * (before - (sum(here) - 1) / 2) if here[number] else float(at))
    return places


@dataclass(frozen=True)
class Chart:
    """Panels side by side, with a caption that says in a sentence what is to be seen.

    >>> line = Line("y = x", [0, 1], [0, 1])
    >>> chart = Chart("identity", "The identity", "The line y = x from 0 to 1.", [Panel("x", "y", [line])])
    >>> chart.panels[0].marks[0].kind
    'line'
    """

    name: str  # for files and addresses: letters, digits and dashes
    title: str
    caption: str
    panels: Sequence[Panel]
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True)
class TextTable:
    """Cells as text, with a heading for every column; the first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str = field(default="table", init=False)

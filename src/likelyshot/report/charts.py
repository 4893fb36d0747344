"""Charts as plain data, which html draws in a browser and figures draws for a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # Okabe & Ito: colour-blind safe
COLOURS_ON_DARK = ("#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#F0E442")

#: Lines and points differ by more than colour: the name in plotly, and what matplotlib calls the same.
DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3))}
SYMBOLS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "triangle-up": "^",
    "triangle-down": "v",
    "star": "*",
    "cross": "P",
}

Numbers = Sequence[float]


@dataclass(frozen=True)
class Line:
    """A curve through points (x, y); without a colour, a thin one to compare with.

    `half` holds the half-widths of the intervals of y: a band is drawn, and the points are marked. Colours are numbers.
    Beyond the palette the colours begin again, with other dashes and symbols (`beside_colour`).
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
    """One horizontal bar per label, with its value written at the end; one colour for all, or one each.

    All values have as many decimals as give the largest three digits.

    >>> Bars("", ["a", "b"], [3.384, 0.63]).decimals, Bars("", ["a", "b"], [100.0, 95.23]).decimals
    (2, 1)
    """

    name: str
    labels: Sequence[str]
    values: Numbers
    colour: int | Sequence[int] = 0
    kind: str = field(default="bars", init=False)
    decimals: int = field(init=False)

    def __post_init__(self) -> None:
        largest = 0.999 * max(map(abs, self.values), default=0.0)  # 100 as 99.9: shares of all are common
        places = 2 - math.floor(math.log10(largest)) if largest > 0 else 0
        object.__setattr__(self, "decimals", max(0, min(places, 9)))


@dataclass(frozen=True)
class Intervals:
    """One point per label with its horizontal interval: value ± half; None is left out. Marks share their labels."""

    name: str
    labels: Sequence[str]
    values: Sequence[float | None]
    half: Numbers
    colour: int = 0
    hollow: bool = False
    kind: str = field(default="intervals", init=False)


@dataclass(frozen=True)
class Points:
    """Points (x, y ± half), each with a label.

    The label is written if `written` says so: above the point or `below`, to its left or its `right`.
    """

    name: str
    x: Numbers
    y: Numbers
    half: Numbers
    labels: Sequence[str]
    written: Sequence[bool]
    colour: int = 0
    below: bool = False
    right: bool = False
    hollow: bool = False
    kind: str = field(default="points", init=False)


@dataclass(frozen=True)
class Heat:
    """A heat map: one value, or None, per row and column; `write` writes the values into the cells.

    `span` has the values of the darkest and the brightest colour; by default the smallest and the largest value.
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


def beside_colour(index: int, kinds: Sequence[Any]) -> Any:
    """Choose the dash or symbol that goes with a colour; when the palette begins again, another.

    >>> [beside_colour(index, list(DASHES)) for index in (0, 1, 5)]
    ['solid', 'dash', 'dash']
    """
    return kinds[(index + index // len(COLOURS)) % len(kinds)]


def side_by_side(marks: Sequence[Intervals]) -> list[list[float]]:
    """Find the place of every value along the labels: at its label, or beside the others that are there.

    >>> side_by_side([Intervals("", ["a", "b"], [1, 2], [0, 0]), Intervals("", ["a", "b"], [None, 3], [0, 0])])
    [[0.0, 0.89], [0.0, 1.11]]
    """
    places: list[list[float]] = [[] for _ in marks]
    for at in range(len(marks[0].labels)):
        present = [mark.values[at] is not None for mark in marks]
        for number, place in enumerate(places):
            before = sum(present[:number])
            place.append(at + 0.22 * (before - (sum(present) - 1) / 2) if present[number] else float(at))
    return places


@dataclass(frozen=True)
class Chart:
    """Panels side by side, with a caption that says in a sentence what they show.

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

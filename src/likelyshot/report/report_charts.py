"""The charts of one setting of a report: accuracy, differences, time, imbalance, reliability, confused classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from likelyshot.data.results import half_width
from likelyshot.report.charts import COLOURS, Bars, Chart, Heat, Intervals, Line, Panel, Points

MOST_PAIRS = 12  # of confused classes
LEAST_QUERIES = 20  # in a bin of the reliability diagram

Setting = Mapping[str, Any]
MethodRow = Mapping[str, Any]


def method_colours(settings: Sequence[Setting]) -> dict[str, int]:
    """Give every method one colour, and the mark that goes with it, for all charts of a page.

    References come first, then the methods that rank best in any setting, since these are drawn as lines: the first
    colours differ most.
    """
    ranks: dict[str, list[int]] = {}
    for setting in settings:
        for rank, row in enumerate(setting["rows"]):
            ranks.setdefault(row["name"], []).append(rank)
    references = dict.fromkeys(name for setting in settings for name in setting["references"])
    others = sorted(ranks.keys() - references.keys(), key=lambda name: (min(ranks[name]), sum(ranks[name]), name))
    return {name: number for number, name in enumerate((*references, *others))}


def setting_charts(setting: Setting, colours: Mapping[str, int]) -> list[Chart]:
    """Describe all charts of a setting that its results allow.

    Args:
        setting: One of the settings of `compare_results`.
        colours: The colour of every method, from `method_colours`.
    """
    charts = [_accuracy(setting, colours)]
    if len(setting["rows"]) > 1:
        charts += [_differences(setting, colours), _time(setting, colours)]
    if setting["rows"][0]["by_share"]:
        charts.append(_imbalance(setting, colours))
    charts.append(_reliability(setting, colours))
    if best_row(setting)["confused"]:
        charts.append(_confused(setting, colours))
    return charts


def best_row(setting: Setting) -> MethodRow:
    """Give the row of the method that wins."""
    return next(row for row in setting["rows"] if row["name"] == setting["winner"]["best"])


def drawn_rows(setting: Setting, colours: Mapping[str, int]) -> list[MethodRow]:
    """Choose the methods that get a line: those with the first colours, as many as there are colours in the palette."""
    names = sorted((row["name"] for row in setting["rows"]), key=lambda name: colours[name])[: len(COLOURS)]
    return [row for row in setting["rows"] if row["name"] in names]


def _chart(setting: Setting, kind: str, title: str, caption: str, panels: Sequence[Panel]) -> Chart:
    return Chart(f"{kind}-{setting['name']}", title, caption, panels)


def _intervals(
    values: Mapping[str, Mapping[str, Any]], colours: Mapping[str, int], filled: set[str] | None = None
) -> list[Intervals]:
    """Draw the mean and ci95 of every method, in percent, on a line of its own: hollow unless `filled` has its name."""
    names, marks = list(values), []
    for place, (name, value) in enumerate(values.items()):
        means: list[float | None] = [None] * len(names)
        means[place] = 100 * value["mean"]
        half = [half_width(value["ci95"]) if other == name else 0.0 for other in names]
        marks.append(Intervals("", names, means, half, colours[name], filled is not None and name not in filled))
    return marks


def _accuracy(setting: Setting, colours: Mapping[str, int]) -> Chart:
    winner, rows = setting["winner"], {row["name"]: row for row in setting["rows"]}
    marks = _intervals(rows, colours, {winner["best"], *winner["tied"]})
    caption = (
        "Mean accuracy with its 95 % interval over the tasks. Filled marks: the best method and those that are not "
        "significantly behind it. Intervals may overlap without a tie, because methods are compared by their paired "
        "differences."
    )
    return _chart(setting, "accuracy", "Accuracy", caption, [Panel("accuracy, %", "", marks)])


def _differences(setting: Setting, colours: Mapping[str, int]) -> Chart:
    panels = []
    for reference, gaps in setting["differences"].items():
        known = {name: gap for name, gap in gaps.items() if gap is not None}
        if known:
            zero = Line("", [0, 0], [-0.6, len(known) - 0.4], None)
            panels.append(Panel(f"minus {reference}, points", "", [*_intervals(known, colours), zero]))
    caption = (
        "Paired differences of accuracy over the tasks that both methods have, with 95 % intervals. A difference whose "
        "interval does not contain zero is significant, before any correction for the number of comparisons."
    )
    return _chart(setting, "differences", "Paired differences", caption, panels)


def _time(setting: Setting, colours: Mapping[str, int]) -> Chart:
    rows = sorted(setting["rows"], key=lambda row: (row["ms"], row["mean"]))
    front = [row for row in rows if row["front"]]
    written = _legible(rows, setting["references"])
    steps = [100 * row["mean"] for row in front for _ in range(2)][:-1]
    marks: list[Line | Points] = [Line("", [row["ms"] for row in front for _ in range(2)][1:], steps, None)]
    for row in rows:
        name, behind = row["name"], not row["front"]
        half = [half_width(row["ci95"])]
        marks.append(
            Points(
                "",
                [row["ms"]],
                [100 * row["mean"]],
                half,
                [name],
                [name in written],
                colours[name],
                below=behind,
                right=written.get(name, False),
                hollow=behind,
            )
        )
    caption = (
        "Accuracy against wall time per task, on a logarithmic scale. Filled marks, joined by a line: no other method "
        f"is both faster and more accurate than {_list([row['name'] for row in front])}."
    )
    panel = Panel("milliseconds per task", "accuracy, %", marks, log_x=True)
    return _chart(setting, "time", "Accuracy against time", caption, [panel])


def _list(names: Sequence[str]) -> str:
    """Join names that may contain commas.

    >>> _list(["MLL", "MLL, transductive"])
    'MLL; MLL, transductive'
    """
    return "; ".join(names)


def _legible(rows: Sequence[MethodRow], references: Sequence[str]) -> dict[str, bool]:
    """Choose labels that cover no other label and no point: of the front first, then of references, then the best.

    Labels are to the left of their points, or to the right where only that is free, above those on the front and below
    the others; sizes are those of a figure for a paper, where 60 letters and 16 lines fill the axes. Gives which of
    them are to the right.
    """
    times, means = [math.log10(row["ms"]) for row in rows], [row["mean"] for row in rows]
    wide, high = max(max(times) - min(times), 0.5) * 1.4, (max(means) - min(means) or 1) * 1.3
    points = {row["name"]: (time / wide, row["mean"] / high) for row, time in zip(rows, times, strict=True)}
    chosen: dict[str, tuple[float, float, float, float]] = {}
    to_the_right: dict[str, bool] = {}
    end = max(x for x, _ in points.values()) + 0.1 / 1.4
    for row in sorted(rows, key=lambda row: (not row["front"], row["name"] not in references, -row["mean"])):
        x, y = points[row["name"]]
        length, low = (1 + min(len(row["name"]), 40)) / 60, y if row["front"] else y - 1 / 16
        others = [(*at, *at) for name, at in points.items() if name != row["name"]]
        for right, start, stop in ((False, x - length, x - 0.005), (True, x + 0.005, x + length)):
            box = (start, low, stop, low + 1 / 16)
            taken = any(_overlap(box, other) for other in (*others, *chosen.values()))
            if not taken and not (right and stop > end):
                chosen[row["name"]], to_the_right[row["name"]] = box, right
                break
    return to_the_right


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Check whether two boxes (left, low, right, high) have a point in common.

    >>> _overlap((0, 0, 2, 2), (1, 1, 3, 3)), _overlap((0, 0, 1, 1), (2, 0, 3, 1))
    (True, False)
    """
    return all(one[i] <= other[i + 2] and other[i] <= one[i + 2] for i in (0, 1))


def _imbalance(setting: Setting, colours: Mapping[str, int]) -> Chart:
    rows, line_rows = setting["rows"], drawn_rows(setting, colours)
    lines = []
    for row in line_rows:
        bins = [one for one in row["by_share"] if one is not None]
        x, y = ([100 * one[key] for one in bins] for key in ("share", "mean"))
        half = [half_width(one["ci95"]) for one in bins]
        lines.append(Line(row["name"], x, y, colours[row["name"]], half))
    panels = [Panel("share of the largest class, %", "accuracy, %", lines)]
    if len(rows) > len(line_rows):
        longest = max(rows, key=lambda row: int(row["tasks"]))["by_share"]
        columns = [f"{100 * one['share']:.0f}" if one else "" for one in longest]
        table = [[100 * one["mean"] if one else None for one in row["by_share"]] for row in rows]
        span = _without_outliers([value for values in table for value in values if value is not None])
        heat = Heat("accuracy, %", [row["name"] for row in rows], columns, table, span=span)
        panels.append(Panel("share of the largest class, %", "", [heat]))
    caption = (
        "Accuracy by the share of a task's queries that belong to its largest class. The tasks are in groups of about "
        "equal size; the bands are 95 % intervals."
        + (
            f" Lines: {len(line_rows)} methods. Heat map: all of them; a value far below the others has the darkest "
            "colour."
            if len(panels) > 1
            else ""
        )
    )
    return _chart(setting, "imbalance", "Accuracy against imbalance", caption, panels)


def _without_outliers(values: Sequence[float]) -> tuple[float, float] | None:
    """Find the range of values without those that lie further below the others than Tukey's fence.

    >>> _without_outliers([20.0, 80.0, 82.0, 84.0, 86.0, 88.0])
    (80.0, 88.0)
    """
    first, third = np.percentile(values, [25, 75]).tolist()
    low, high = min(value for value in values if value >= first - 1.5 * (third - first)), max(values)
    return (low, high) if high > low else None


def _reliability(setting: Setting, colours: Mapping[str, int]) -> Chart:
    marks = []
    for row in drawn_rows(setting, colours):
        bins = [one for one in row["reliability"] if one["queries"] >= LEAST_QUERIES]
        x, y = ([100 * one[key] for one in bins] for key in ("confidence", "accuracy"))
        marks.append(Line(row["name"], x, y, colours[row["name"]], [0.0] * len(x)))
    diagonal = Line("", [100 / setting["ways"], 100], [100 / setting["ways"], 100], None)
    names = [row["name"] for row in setting["rows"]]
    errors = Bars("", names, [100 * row["ece"] for row in setting["rows"]], [colours[name] for name in names])
    fitted = {row["fitted"] for row in setting["rows"]}
    how = {
        (True,): "with temperatures fitted on validation tasks",
        (False,): "with temperature 1, as there were no validation tasks to fit a temperature on",
    }.get(tuple(fitted), "with temperatures fitted on validation tasks for some of the methods")
    caption = (
        f"Curves: the share of correct predictions by their predicted probability, {how}. On the diagonal, the "
        f"probabilities are exact. Bins with fewer than {LEAST_QUERIES} queries are left out. Bars: the expected "
        "calibration error over 15 bins; smaller is better."
    )
    panels = [
        Panel("predicted probability, %", "correct, %", [*marks, diagonal]),
        Panel("expected calibration error, %", "", [errors]),
    ]
    return _chart(setting, "reliability", "Reliability of the probabilities", caption, panels)


def _confused(setting: Setting, colours: Mapping[str, int]) -> Chart:
    row = best_row(setting)
    worst = row["confused"][:MOST_PAIRS]
    labels = [f"{pair['true']} → {pair['predicted']}" for pair in worst]
    bars = Bars("", labels, [100 * pair["wrong"] / pair["queries"] for pair in worst], colours[row["name"]])
    caption = (
        f"{row['name']}: the share of queries of the first class that were classified as the second, in tasks that "
        "have both classes."
    )
    panel = Panel("classified as the other, %", "", [bars])
    return _chart(setting, "confused", "Most confused classes", caption, [panel])

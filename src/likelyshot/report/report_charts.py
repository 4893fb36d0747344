"""The charts of one setting of a report: accuracy, differences, time, imbalance, reliability, confused classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from likelyshot.report.charts import COLOURS, Bars, Chart, Heat, Intervals, Line, Panel, Points

MOST_PAIRS = 12  # of confused classes
LEAST_QUERIES = 20  # in a bin of the reliability diagram

Setting = Mapping[str, Any]
MethodRow = Mapping[str, Any]


def setting_charts(setting: Setting) -> list[Chart]:
    """Describe all charts of a setting that its results allow."""
    charts = [_accuracy(setting)]
    if len(setting["rows"]) > 1:
        charts += [_differences(setting), _time(setting)]
    if setting["rows"][0]["by_share"]:
        charts.append(_imbalance(setting))
    charts.append(_reliability(setting))
    if best_row(setting)["confused"]:
        charts.append(_confused(setting))
    return charts


def best_row(setting: Setting) -> MethodRow:
    """Give the row of the method that wins."""
    return next(row for row in setting["rows"] if row["name"] == setting["winner"]["best"])


def drawn_rows(setting: Setting) -> list[MethodRow]:
    """Choose the rows that get a line: the references and then the best, as many as there are colours."""
    first = [row for row in setting["rows"] if row["name"] in setting["references"]]
    others = [row for row in setting["rows"] if row["name"] not in setting["references"]]
    names = [row["name"] for row in (*first, *others)[: len(COLOURS)]]
    return [row for row in setting["rows"] if row["name"] in names]


def _chart(setting: Setting, kind: str, title: str, caption: str, panels: Sequence[Panel]) -> Chart:
    return Chart(f"{kind}-{setting['name']}", title, caption, panels)


def _accuracy(setting: Setting) -> Chart:
    rows, found = setting["rows"], setting["winner"]
    front = {found["best"], *found["tied"]}
    names, half = [row["name"] for row in rows], [100 * row["ci95"] for row in rows]
    marks = [
        Intervals(
            words, names, [100 * row["mean"] if (row["name"] in front) is ahead else None for row in rows], half, c
        )
        for words, ahead, c in (("best, or not significantly behind", True, 2), ("the others", False, 0))
    ]
    caption = (
        "Mean accuracy with its 95 % interval over the tasks. Intervals that overlap do not mean a tie: methods are "
        "compared by their paired differences."
    )
    kept = [mark for mark in marks if any(value is not None for value in mark.values)]
    return _chart(setting, "accuracy", "Accuracy", caption, [Panel("accuracy, %", "", kept)])


def _differences(setting: Setting) -> Chart:
    panels = []
    for reference, gaps in setting["differences"].items():
        kept = {name: gap for name, gap in gaps.items() if gap is not None}
        if kept:
            values, half = ([100 * gap[key] for gap in kept.values()] for key in ("mean", "ci95"))
            zero = Line("", [0, 0], [-0.6, len(kept) - 0.4], None)
            panels.append(Panel(f"minus {reference}, points", "", [Intervals("", list(kept), values, half), zero]))
    caption = (
        "Paired differences of accuracy over the tasks that both have, with 95 % intervals: one that leaves out zero "
        "is significant, before any correction for the number of comparisons."
    )
    return _chart(setting, "differences", "Paired differences", caption, panels)


def _time(setting: Setting) -> Chart:
    rows = sorted(setting["rows"], key=lambda row: (row["ms"], row["mean"]))
    front, behind = ([row for row in rows if row["front"] is there] for there in (True, False))
    written = _legible(rows, setting["references"])
    steps = [100 * row["mean"] for row in front for _ in range(2)][:-1]
    marks: list[Line | Points] = [Line("", [row["ms"] for row in front for _ in range(2)][1:], steps, None)]
    for words, kept, below in (("best for their time", front, False), ("the others", behind, True)):
        if kept:
            names = [row["name"] for row in kept]
            x, y, half = (
                [scale * row[key] for row in kept] for key, scale in (("ms", 1), ("mean", 100), ("ci95", 100))
            )
            marks.append(
                Points(words, x, y, half, names, [name in written for name in names], 0 if below else 1, below)
            )
    caption = (
        "Accuracy against wall time per task, on a logarithmic scale. No method is at once faster and better than "
        f"those on the line: {', '.join(row['name'] for row in front)}."
    )
    panel = Panel("milliseconds per task", "accuracy, %", marks, log_x=True)
    return _chart(setting, "time", "Accuracy against time", caption, [panel])


def _legible(rows: Sequence[MethodRow], references: Sequence[str]) -> set[str]:
    """Choose labels that lie over no other label and no point: of the front first, then of references, then the best.

    Labels are to the left of their points, above those on the front and below the others; sizes are those of a figure
    for a paper, where 60 letters and 16 lines fill the axes.
    """
    times, means = [math.log10(row["ms"]) for row in rows], [row["mean"] for row in rows]
    wide, high = max(max(times) - min(times), 0.5) * 1.4, (max(means) - min(means) or 1) * 1.3
    points = {row["name"]: (time / wide, row["mean"] / high) for row, time in zip(rows, times, strict=True)}
    kept: dict[str, tuple[float, float, float, float]] = {}
    for row in sorted(rows, key=lambda row: (not row["front"], row["name"] not in references, -row["mean"])):
        x, y = points[row["name"]]
        left, low = x - (1 + min(len(row["name"]), 40)) / 60, y if row["front"] else y - 1 / 16
        box = (left, low, x - 0.005, low + 1 / 16)
        others = [(*at, *at) for name, at in points.items() if name != row["name"]]
        if not any(_overlap(box, other) for other in (*others, *kept.values())):
            kept[row["name"]] = box
    return set(kept)


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Say whether two boxes (left, low, right, high) have a point in common.

    >>> _overlap((0, 0, 2, 2), (1, 1, 3, 3)), _overlap((0, 0, 1, 1), (2, 0, 3, 1))
    (True, False)
    """
    return all(one[i] <= other[i + 2] and other[i] <= one[i + 2] for i in (0, 1))


def _imbalance(setting: Setting) -> Chart:
    rows, drawn = setting["rows"], drawn_rows(setting)
    lines = []
    for colour, row in enumerate(drawn):
        bins = [found for found in row["by_share"] if found is not None]
        x, y, half = ([100 * found[key] for found in bins] for key in ("share", "mean", "ci95"))
        lines.append(Line(row["name"], x, y, colour, half))
    panels = [Panel("share of the largest class, %", "accuracy, %", lines)]
    if len(rows) > len(drawn):
        longest = max(rows, key=lambda row: int(row["tasks"]))["by_share"]
        columns = [f"{100 * found['share']:.0f}" if found else "" for found in longest]
        table = [[100 * found["mean"] if found else None for found in row["by_share"]] for row in rows]
        heat = Heat("accuracy, %", [row["name"] for row in rows], columns, table)
        panels.append(Panel("share of the largest class, %", "", [heat]))
    caption = (
        "Accuracy by the share that the largest class has of the queries of a task, in groups of about as many tasks, "
        "with 95 % intervals" + (f"; lines for {len(drawn)} methods, the map for all." if len(panels) > 1 else ".")
    )
    return _chart(setting, "imbalance", "Accuracy against imbalance", caption, panels)


def _reliability(setting: Setting) -> Chart:
    marks = []
    for colour, row in enumerate(drawn_rows(setting)):
        bins = [found for found in row["reliability"] if found["queries"] >= LEAST_QUERIES]
        x, y = ([100 * found[key] for found in bins] for key in ("confidence", "accuracy"))
        marks.append(Line(row["name"], x, y, colour, [0.0] * len(x)))
    diagonal = Line("", [100 / setting["ways"], 100], [100 / setting["ways"], 100], None)
    errors = Bars("", [row["name"] for row in setting["rows"]], [100 * row["ece"] for row in setting["rows"]], 3)
    fitted = {row["fitted"] for row in setting["rows"]}
    how = {
        (True,): "with temperatures fitted on validation tasks",
        (False,): "as the scores are (temperature 1): nothing was there to fit a temperature on",
    }.get(tuple(fitted), "with temperatures fitted on validation tasks where there were any")
    caption = (
        f"Curves: how often a decision is right, by the probability that it was given, {how}; on the diagonal, "
        f"probabilities are true. Bins with fewer than {LEAST_QUERIES} queries are left out. Bars: the expected "
        "calibration error over 15 bins, smaller is better."
    )
    panels = [
        Panel("probability given, %", "right, %", [*marks, diagonal]),
        Panel("expected calibration error, %", "", [errors]),
    ]
    return _chart(setting, "reliability", "Reliability of the probabilities", caption, panels)


def _confused(setting: Setting) -> Chart:
    row = best_row(setting)
    worst = row["confused"][:MOST_PAIRS]
    labels = [f"{pair['true']} → {pair['predicted']}" for pair in worst]
    bars = Bars("", labels, [100 * pair["wrong"] / pair["queries"] for pair in worst], 1)
    caption = (
        f"{row['name']}: of the queries of the first class, in tasks that have both, the share that was taken for the "
        "second."
    )
    return _chart(
        setting, "confused", "Classes that are confused most", caption, [Panel("taken for the other, %", "", [bars])]
    )

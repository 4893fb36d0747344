"""The tables of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from likelyshot.data.results import with_interval
from likelyshot.methods import METHODS
from likelyshot.methods.binding import facts_of
from likelyshot.report.html import TextTable
from likelyshot.report.report_charts import MOST_PAIRS, Setting, best_row

LONGEST_VALUE = 300  # letters of a parameter


def methods_table(setting: Setting) -> TextTable:
    """Lay out the methods of a setting, best first."""
    references = setting["references"] if len(setting["rows"]) > 1 else []
    head = ["method", "accuracy, %", *(f"minus {name}" for name in references)]
    decimals = 3 if min(row["ms"] for row in setting["rows"]) < 0.1 else 2
    rows = []
    for row in setting["rows"]:
        gaps = [_gap(setting["differences"][name].get(row["name"]), row["name"] == name) for name in references]
        shares = [f"{100 * row[key]:.2f}" for key in ("balanced_accuracy", "macro_f1", "ece")]
        rows.append([row["name"], percent(row), *gaps, *shares, f"{row['ms']:,.{decimals}f}", f"{row['tasks']:,}"])
    caption = "Means with 95 % intervals" + (
        ", and paired differences in points. * stays significant after Holm's correction." if references else "."
    )
    ends = ["balanced accuracy, %", "macro-F1, %", "calibration error, %", "ms per task", "tasks"]
    return TextTable(caption, [*head, *ends], rows)


def _gap(gap: Mapping[str, Any] | None, is_reference: bool) -> str:
    if gap is None:
        return "reference" if is_reference else "other tasks"
    text = with_interval(gap["mean"], gap["ci95"], "+").replace("-", "−")
    return f"* {text}" if gap["holm"] < 0.05 else text  # before it, so that the digits stay below each other


def percent(row: Mapping[str, Any]) -> str:
    """Write a mean with its interval, in percent."""
    return with_interval(row["mean"], row["ci95"])


def confused_table(setting: Setting) -> TextTable:
    """Lay out the pairs of classes that the best method confuses most."""
    row = best_row(setting)
    rows = [
        [
            pair["true"],
            pair["predicted"],
            f"{pair['wrong']:,} of {pair['queries']:,}",
            f"{100 * pair['wrong'] / pair['queries']:.1f} %",
        ]
        for pair in row["confused"][:MOST_PAIRS]
    ]
    caption = f"The classes that {row['name']} confuses most."
    return TextTable(caption, ["true class", "classified as", "queries", "share"], rows)


def published_table(setting: Setting) -> TextTable:
    """Put what the paper reports for this protocol beside our figures: method by method, never in one column."""
    printed = setting["published"]["rows"]
    columns = list(dict.fromkeys((row["data"], row["network"]) for row in printed))
    theirs = {(row["data"], row["network"], row["method"]): row["percent"] for row in printed}
    known = [facts_of(method) for method in METHODS.values()]
    published = {facts.title: facts.published or facts.title for facts in known}
    ours = {published.get(row["name"], row["name"]): percent(row) for row in setting["rows"]}
    titles = {published.get(row["name"], row["name"]): row["name"] for row in setting["rows"]}
    both = [name for name in ours if any(row["method"] == name for row in printed)]
    only = [name for name in dict.fromkeys(row["method"] for row in printed) if name not in ours]
    rows = [
        [
            name if titles.get(name, name) == name else f"{titles[name]}, published as {name}",
            ours.get(name, "–"),
            *(theirs.get((data, network, name), "–") for data, network in columns),
        ]
        for name in (*both, *only)
    ]
    caption = (
        f"Published results, {setting['published']['where']}: the same protocol on other data sets and networks. Only "
        f"the order of the methods can be compared with ours, on {setting['short']}. Accuracy in %."
    )
    return TextTable(caption, ["method", "ours", *(f"published: {data}, {network}" for data, network in columns)], rows)


def overview_table(settings: Sequence[Setting]) -> TextTable:
    """Lay out the accuracy of every method in every setting."""
    names = dict.fromkeys(row["name"] for setting in settings for row in setting["rows"])
    cells = [
        {
            row["name"]: ("best: " if row["name"] == setting["winner"]["best"] else "") + percent(row)
            for row in setting["rows"]
        }
        for setting in settings
    ]
    rows = [[name, *(cell.get(name, "–") for cell in cells)] for name in names]
    caption = "Accuracy in % with its 95 % interval, for every method and setting."
    return TextTable(caption, ["method", *(setting["title"] for setting in settings)], rows)


def configuration_tables(settings: Sequence[Setting]) -> list[TextTable]:
    """Lay out the tasks, the features and the parameters of all settings."""
    return [_tasks_table(settings), _features_table(settings), _parameters_table(settings)]


def _tasks_table(settings: Sequence[Setting]) -> TextTable:
    rows = [
        [
            setting["title"],
            f"{setting['seed']}",
            f"{setting['tasks']:,}",
            setting["tasks_digest"][:16],
            ", ".join(str(one.get("digest", ""))[:16] for one in setting["features"]),
        ]
        for setting in settings
    ]
    caption = "The tasks of every setting. Equal digests mean equal tasks and equal features."
    return TextTable(caption, ["setting", "seed", "tasks", "digest of the tasks", "digest of the features"], rows)


def _features_table(settings: Sequence[Setting]) -> TextTable:
    used = {str(one.get("digest", "")): one for setting in settings for one in setting["features"]}
    rows = [
        [digest[:16], ", ".join(f"{key}: {_value(value)}" for key, value in one.items() if key != "digest")]
        for digest, one in used.items()
    ]
    return TextTable("The features that the tasks were drawn from.", ["digest of the features", "features"], rows)


def _parameters_table(settings: Sequence[Setting]) -> TextTable:
    """List the resolved parameters, once for settings that share them."""
    where: dict[tuple[str, str, str, str], list[str]] = {}
    for setting in settings:
        for row in setting["rows"]:
            params = ", ".join(f"{key}={_value(value)}" for key, value in row["params"].items()) or "none"
            where.setdefault((row["name"], row["source"], params, row["device"]), []).append(setting["title"])
    rows = [[*row, "all" if len(names) == len(settings) else "; ".join(names)] for row, names in where.items()]
    headings = ["method", "features", "parameters", "device", "settings"]
    return TextTable("Methods with their features and all their parameters.", headings, rows)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}… (in full in the JSON of the run)"

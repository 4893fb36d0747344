"""From what `compare_results` found to a page, and to figures for a paper."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods import METHODS, facts_of
from likelyshot.report.charts import Chart
from likelyshot.report.figures import write_figures
from likelyshot.report.html import Page, Section, TextTable, write_page
from likelyshot.report.report_charts import MOST_PAIRS, Setting, best_row, setting_charts
from likelyshot.report.sweep_chart import sweep_chart

LONGEST_VALUE = 300  # letters of a parameter
MOST_NAMED = 6  # methods in a sentence
NOT_CORRECTED = (
    "Intervals are at 95 % and not corrected for the number of comparisons; in the tables, * marks differences that "
    "stay significant (5 %) after Holm's correction for all comparisons with the same reference in the same setting."
)

Comparison = Mapping[str, Any]


def write_report_page(path: str | Path, data: Comparison, *, command: str) -> Path:
    """Write the page about results: `data` from `compare_results`, `command` as it was typed."""
    return write_page(path, report_page(data, command=command))


def write_report_figures(folder: str | Path, data: Comparison) -> list[Path]:
    """Write every figure of the page as SVG, PDF and PNG into a folder."""
    charts = [chart for setting in data["settings"] for chart in setting_charts(setting)]
    return write_figures(folder, [*charts, *_sweep_charts(data)])


def report_page(data: Comparison, *, command: str) -> Page:
    """Arrange what `compare_results` found as a page: summary, every setting, sweeps, configuration."""
    settings = data["settings"]
    sections = [_section(setting) for setting in settings]
    if len(settings) > 1:
        sections.insert(0, Section("Every method in every setting", [], [_overview(settings)]))
    sweeps = _sweep_charts(data)
    if sweeps:
        sections.append(Section("Parameters", ["Accuracy over the parameters of a method, as swept."], sweeps))
    if settings:
        tables = [_tasks_table(settings), _features_table(settings), _methods_table(settings)]
        sections.append(Section("Configuration", [], tables))
    commands = [shlex.join(["likelyshot", *run["command"]]) for run in data["made_by"] if run["command"]]
    lines = "\n".join(dict.fromkeys([*commands, command]))
    return Page(_title(data), report_summary(data), sections, _versions(data), lines)


def report_summary(data: Comparison) -> list[str]:
    """Say who wins each setting, by how much, and whether that is significant."""
    said = [f"{setting['title']}: {_verdict(setting)}" for setting in data["settings"]]
    if any(len(setting["rows"]) > 1 for setting in data["settings"]):
        said.append(NOT_CORRECTED)
    for swept in data["sweeps"]:
        best = _sweep(swept).best()
        where = ", ".join(f"{key} = {value}" for key, value in best.items())
        said.append(f"{swept['method']} over {' and '.join(swept['grid'])}: best at {where}, averaged over the shots.")
    return said


def _verdict(setting: Setting) -> str:
    found, best = setting["winner"], best_row(setting)
    reached = f"{best['name']} ({_percent(best)} %)"
    if found["runner_up"] is None:
        return f"only {reached} was evaluated, over {best['tasks']:,} tasks."
    gap, second = found["difference"], found["runner_up"]
    if gap is None:
        return f"{reached} has the best mean, but {second} was evaluated on other tasks: no paired difference exists."
    lead = f"{100 * abs(gap['mean']):.2f} ± {100 * gap['ci95']:.2f} points"
    over = f"over {gap['tasks']:,} tasks"
    if gap["tasks"] < 2:
        return f"{reached} has the best mean, {second} the next; one task says nothing about significance."
    if gap["significant"] and not found["tied"]:
        others = f" Not compared, being on other tasks: {', '.join(found['unpaired'])}." if found["unpaired"] else ""
        return f"{reached} wins, {lead} ahead of {second} {over}, which is significant.{others}"
    if gap["significant"]:
        but = _names(found["tied"], "not significantly behind")
        return f"no clear winner: {reached} is {lead} ahead of {second} {over}, which is significant, but {but}"
    more = f" {_names(found['tied'][1:], 'not significantly behind either')}" if len(found["tied"]) > 1 else ""
    return f"a tie: {reached} and {second} differ by {lead} {over}, which is not significant.{more}"


def _names(names: Sequence[str], what: str) -> str:
    """Name methods in a sentence, not too many.

    >>> _names(["a", "b"], "tied")
    'a and b are tied.'
    """
    if len(names) > MOST_NAMED:
        return f"{len(names)} others are {what}."
    *others, last = names
    return f"{', '.join(others)} and {last} are {what}." if others else f"{last} is {what}."


def _section(setting: Setting) -> Section:
    charts = setting_charts(setting)
    verdict = _verdict(setting)
    text = [verdict[0].upper() + verdict[1:] if verdict.startswith(("a tie", "no clear", "only")) else verdict]
    if setting["winner"]["unpaired"]:
        names = ", ".join(setting["winner"]["unpaired"])
        text.append(f"Evaluated on other tasks than {setting['winner']['best']}, so that nothing is paired: {names}.")
    machines = {
        (row["device"], row["environment"].get("system"), row["environment"].get("cores")) for row in setting["rows"]
    }
    if len(machines) > 1:
        text.append("Times were measured on different devices or machines: compare them with care.")
    parts: list[Chart | TextTable] = [charts[0], _table(setting), *charts[1:]]
    if best_row(setting)["confused"]:
        parts.append(_confused_table(setting))
    if setting["published"]:
        parts.append(_published_table(setting))
    return Section(setting["title"], text, parts, choice="Setting")


def _table(setting: Setting) -> TextTable:
    references = setting["references"] if len(setting["rows"]) > 1 else []
    head = ["method", "accuracy, %", *(f"minus {name}" for name in references)]
    rows = []
    for row in setting["rows"]:
        gaps = [_gap(setting["differences"][name].get(row["name"]), row["name"] == name) for name in references]
        figures = [f"{100 * row[key]:.2f}" for key in ("balanced_accuracy", "macro_f1", "ece")]
        rows.append([row["name"], _percent(row), *gaps, *figures, f"{row['ms']:.3g}", f"{row['tasks']:,}"])
    caption = "Means with 95 % intervals, and paired differences in points." + (
        " * stays significant after Holm's correction." if references else ""
    )
    ends = ["balanced accuracy, %", "macro-F1, %", "calibration error, %", "ms per task", "tasks"]
    return TextTable(caption, [*head, *ends], rows)


def _gap(gap: Mapping[str, Any] | None, itself: bool) -> str:
    if gap is None:
        return "reference" if itself else "other tasks"
    text = f"{100 * gap['mean']:+.2f} ± {100 * gap['ci95']:.2f}".replace("-", "−")
    return f"{text} *" if gap["holm"] < 0.05 else text


def _percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['mean']:.2f} ± {100 * row['ci95']:.2f}"


def _confused_table(setting: Setting) -> TextTable:
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
    return TextTable(
        f"The classes that {row['name']} confuses most.", ["true class", "taken for", "queries", "share"], rows
    )


def _published_table(setting: Setting) -> TextTable:
    """Put what the paper printed for this protocol beside our figures: method by method, never in one column."""
    printed = setting["published"]["rows"]
    columns = list(dict.fromkeys((row["data"], row["network"]) for row in printed))
    theirs = {(row["data"], row["network"], row["method"]): row["percent"] for row in printed}
    facts = {name: facts_of(method) for name, method in METHODS.items()}
    called = {name: known.published or known.title for name, known in facts.items()}
    ours = {called.get(row["name"], row["name"]): _percent(row) for row in setting["rows"]}
    both = [name for name in ours if any(row["method"] == name for row in printed)]
    only = [name for name in dict.fromkeys(row["method"] for row in printed) if name not in ours]
    rows = [
        [name, ours.get(name, "–"), *(theirs.get((data, network, name), "–") for data, network in columns)]
        for name in (*both, *only)
    ]
    caption = (
        f"Published, {setting['published']['where']}: the same protocol on other data sets and networks, so that only "
        f"the order of methods can be compared with ours, of {setting['source']}. Accuracy in %."
    )
    return TextTable(caption, ["method", "ours", *(f"published: {data}, {network}" for data, network in columns)], rows)


def _overview(settings: Sequence[Setting]) -> TextTable:
    names = dict.fromkeys(row["name"] for setting in settings for row in setting["rows"])
    cells = [{row["name"]: _percent(row) for row in setting["rows"]} for setting in settings]
    best = [setting["winner"]["best"] for setting in settings]
    rows = [
        [
            name,
            *(
                f"{cell.get(name, '–')}{' (best)' if name == top else ''}"
                for cell, top in zip(cells, best, strict=True)
            ),
        ]
        for name in names
    ]
    caption = "Accuracy in % with its 95 % interval, for every method and setting."
    return TextTable(caption, ["method", *(setting["title"] for setting in settings)], rows)


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
    caption = "The tasks of every setting. Equal digests mean equal tasks, and equal features."
    return TextTable(caption, ["setting", "seed", "tasks", "digest of the tasks", "digest of the features"], rows)


def _features_table(settings: Sequence[Setting]) -> TextTable:
    found = {str(one.get("digest", "")): one for setting in settings for one in setting["features"]}
    rows = [
        [digest[:16], ", ".join(f"{key}: {_value(value)}" for key, value in one.items() if key != "digest")]
        for digest, one in found.items()
    ]
    return TextTable("What the tasks were drawn from.", ["digest of the features", "features"], rows)


def _methods_table(settings: Sequence[Setting]) -> TextTable:
    """List the resolved parameters, once for settings that share them."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for setting in settings:
        for row in setting["rows"]:
            params = ", ".join(f"{key}={_value(value)}" for key, value in row["params"].items()) or "none"
            found.setdefault((row["name"], row["source"], params, row["device"]), []).append(setting["title"])
    rows = [[*row, "all" if len(titles) == len(settings) else "; ".join(titles)] for row, titles in found.items()]
    headings = ["method", "features", "parameters", "device", "settings"]
    return TextTable("Methods with their features and all their parameters.", headings, rows)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}… (in full in the JSON of the run)"


def _versions(data: Comparison) -> dict[str, str]:
    """Tell every version that the results were made with."""
    environments = [run["environment"] for run in data["made_by"]]
    environments += [row["environment"] for setting in data["settings"] for row in setting["rows"]]
    keys = dict.fromkeys(key for environment in environments for key in environment)
    values = {key: sorted({str(found[key]) for found in environments if key in found}) for key in keys}
    return {
        key: " to ".join([found[0], found[-1]][: len(found)]) if key == "date" else ", ".join(found)
        for key, found in values.items()
    }


def _title(data: Comparison) -> str:
    sources = list(dict.fromkeys(setting["source"] for setting in data["settings"]))
    if not sources:
        return "Sweeps of " + ", ".join(dict.fromkeys(swept["method"] for swept in data["sweeps"]))
    return f"Results on {sources[0]}" if len(sources) == 1 else f"Results on {len(sources)} sets of features"


def _sweep_charts(data: Comparison) -> list[Chart]:
    return [sweep_chart(_sweep(swept), f"sweep-{number}") for number, swept in enumerate(data["sweeps"], 1)]


def _sweep(swept: Mapping[str, Any]) -> Sweep:
    return Sweep(swept["method"], swept["grid"], swept["rows"], swept["config"])

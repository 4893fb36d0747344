"""The page of `likelyshot report`, and its figures for a paper."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from likelyshot.data.results import with_interval
from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods.binding import titles
from likelyshot.report.charts import Chart
from likelyshot.report.figures import write_figures
from likelyshot.report.html import Page, Section, TextTable, write_page
from likelyshot.report.report_charts import Setting, best_row, method_colours, setting_charts
from likelyshot.report.report_tables import (
    configuration_tables,
    confused_table,
    methods_table,
    overview_table,
    percent,
    published_table,
)
from likelyshot.report.sweep_chart import best_point, sweep_chart

MOST_NAMED = 6  # methods in a sentence
NOT_CORRECTED = (
    "Intervals are at 95 % and not corrected for the number of comparisons. In the tables, * marks differences that "
    "stay significant (5 %) after Holm's correction for all comparisons with the same reference in the same setting."
)

Comparison = Mapping[str, Any]


def write_report_page(path: str | Path, data: Comparison, *, command: str) -> Path:
    """Write the page about results as one HTML file that works offline.

    Args:
        path: The HTML file.
        data: From `compare_results`.
        command: The command line, for the end of the page.
    """
    return write_page(path, report_page(data, command=command))


def write_report_figures(folder: str | Path, data: Comparison) -> list[Path]:
    """Write every figure of the page to a folder, as SVG, PDF and PNG."""
    colours = method_colours(data["settings"])
    charts = [chart for setting in data["settings"] for chart in setting_charts(setting, colours)]
    return write_figures(folder, [*charts, *_sweep_charts(data)])


def report_page(data: Comparison, *, command: str) -> Page:
    """Arrange what `compare_results` found as a page: summary, every setting, sweeps, configuration."""
    settings = data["settings"]
    colours = method_colours(settings)
    sections = [_section(setting, colours) for setting in settings]
    if len(settings) > 1:
        sections.insert(0, Section("Every method in every setting", [], [overview_table(settings)]))
    sweeps = _sweep_charts(data)
    if sweeps:
        sections.append(Section("Sweeps", ["Accuracy over a grid of the parameters of a method."], sweeps))
    if settings:
        sections.append(Section("Configuration", [], configuration_tables(settings), folded=True))
    commands = [shlex.join(["likelyshot", *run["command"]]) for run in data["made_by"] if run["command"]]
    lines = "\n".join(dict.fromkeys([*commands, command]))
    return Page(_title(data), report_summary(data), sections, _versions(data), lines)


def report_summary(data: Comparison) -> list[str]:
    """Say what was mixed, who wins each setting, by how much, and whether that is significant."""
    sentences = _mixed(data)
    sources = list(dict.fromkeys(setting["source"] for setting in data["settings"]))
    if len(sources) == 1 and sources[0] not in _title(data):
        sentences.append(f"Features: {sources[0]}.")
    sentences += [f"{setting['title']}: {_verdict(setting)}" for setting in data["settings"]]
    if any(len(setting["rows"]) > 1 for setting in data["settings"]):
        sentences.append(NOT_CORRECTED)
    for swept in data["sweeps"]:
        best = best_point(_sweep(swept))
        method = titles().get(swept["method"], swept["method"])
        sentences.append(f"{method} over {' and '.join(swept['grid'])}: best at {best}, averaged over the shots.")
    return sentences


def _mixed(data: Comparison) -> list[str]:
    """Say in what the settings and versions differ, if they do."""
    settings, sentences = data["settings"], []
    values = {
        "features": [(tuple(str(one.get("digest")) for one in s["features"]), s["short"]) for s in settings],
        "ways": [(s["ways"], f"{s['ways']}") for s in settings],
        "shots": [(s["shots"], f"{s['shots']}") for s in settings],
        "queries": [(s["queries"], s["queries"]) for s in settings],
        "seed": [(s["seed"], f"{s['seed']}") for s in settings],
    }
    differing = [
        f"{name} ({'; '.join(dict.fromkeys(words for _, words in pairs))})"
        for name, pairs in values.items()
        if len({key for key, _ in pairs}) > 1
    ]
    if differing:
        sentences.append(
            f"These results are of {len(settings)} settings, which differ in {' and '.join(differing)}. Methods are "
            "compared within a setting only."
        )
    versions = {str(row["environment"].get("likelyshot", "unknown")) for s in settings for row in s["rows"]}
    if len(versions) > 1:
        sentences.append(f"They were made by different versions of likelyshot: {', '.join(sorted(versions))}.")
    return sentences


def _verdict(setting: Setting) -> str:
    winner, best = setting["winner"], best_row(setting)
    reached = f"{best['name']} ({percent(best)} %)"
    if winner["runner_up"] is None:
        return f"only {reached} was evaluated, over {best['tasks']:,} tasks."
    gap, second = winner["difference"], winner["runner_up"]
    if gap is None:
        return f"{reached} has the best mean, but {second} was evaluated on other tasks: no paired difference exists."
    lead = f"{with_interval(abs(gap['mean']), gap['ci95'])} points"
    over = f"over {gap['tasks']:,} tasks"
    if gap["tasks"] < 2:
        return f"{reached} has the best mean, {second} the next; one task says nothing about significance."
    if gap["significant"] and not winner["tied"]:
        others = f" Not compared, because evaluated on other tasks: {'; '.join(winner['unpaired'])}."
        return f"{reached} wins, {lead} ahead of {second} {over}, which is significant." + (
            others if winner["unpaired"] else ""
        )
    if gap["significant"]:
        but = _names(winner["tied"], "not significantly behind")
        return f"no clear winner: {reached} is {lead} ahead of {second} {over}, which is significant, but {but}"
    more = f" {_names(winner['tied'][1:], 'not significantly behind either')}" if len(winner["tied"]) > 1 else ""
    return f"a tie: {reached} and {second} differ by {lead} {over}, which is not significant.{more}"


def _names(names: Sequence[str], what: str) -> str:
    """Name methods in a sentence, if they are not too many; names may contain commas.

    >>> _names(["A", "B, transductive"], "tied")
    'A and B, transductive are tied.'
    """
    if len(names) > MOST_NAMED:
        return f"{len(names)} others are {what}."
    *others, last = names
    return f"{'; '.join(others)} and {last} are {what}." if others else f"{last} is {what}."


def _section(setting: Setting, colours: Mapping[str, int]) -> Section:
    charts = setting_charts(setting, colours)
    verdict = _verdict(setting)
    text = [verdict[0].upper() + verdict[1:] if verdict.startswith(("a tie", "no clear", "only")) else verdict]
    if setting["winner"]["unpaired"]:
        names = "; ".join(setting["winner"]["unpaired"])
        text.append(f"Evaluated on other tasks than {setting['winner']['best']}, so not paired with it: {names}.")
    machines = {f"{row['device']} {_machine(row['environment'])}" for row in setting["rows"]}
    if len(machines) > 1:
        text.append("Times were measured on different devices or machines: compare them with care.")
    parts: list[Chart | TextTable] = [charts[0], methods_table(setting), *charts[1:]]
    if best_row(setting)["confused"]:
        parts.append(confused_table(setting))
    if setting["published"]:
        parts.append(published_table(setting))
    return Section(setting["title"], text, parts, choice="Setting")


def _machine(environment: Mapping[str, Any]) -> str:
    return f"{environment.get('system')} {environment.get('cores')}"


def _versions(data: Comparison) -> dict[str, str]:
    """List every version that the results were made with."""
    environments = [run["environment"] for run in data["made_by"]]
    environments += [row["environment"] for setting in data["settings"] for row in setting["rows"]]
    keys = dict.fromkeys(key for environment in environments for key in environment)
    values = {key: sorted({str(one[key]) for one in environments if key in one}) for key in keys}
    return {key: _dates(texts) if key == "date" else ", ".join(texts) for key, texts in values.items()}


def _dates(texts: Sequence[str]) -> str:
    """Write the first and the last of sorted moments.

    >>> _dates(["2026-11-19T21:46:24+00:00", "2026-11-19T21:47:31+00:00"])
    '2026-11-19 21:46:24 UTC to 2026-11-19 21:47:31 UTC'
    """
    ends = [texts[0], texts[-1]][: len(texts)]
    return " to ".join(text.replace("T", " ").replace("+00:00", " UTC") for text in ends)


def _title(data: Comparison) -> str:
    sources = list(dict.fromkeys(setting["source"] for setting in data["settings"]))
    if not sources:
        return "Sweeps of " + "; ".join(dict.fromkeys(swept["method"] for swept in data["sweeps"]))
    if len(sources) > 1:
        return f"Results on {len(sources)} sets of features"
    files = {str(one.get("file")) for one in data["settings"][0]["features"]}
    return f"Results on {sources[0]}" if len(files) <= 1 else f"Results on the features of {len(files)} networks"


def _sweep_charts(data: Comparison) -> list[Chart]:
    return [sweep_chart(_sweep(swept), f"sweep-{number}") for number, swept in enumerate(data["sweeps"], 1)]


def _sweep(swept: Mapping[str, Any]) -> Sweep:
    return Sweep(swept["method"], swept["grid"], swept["rows"], swept["config"])

"""Results compared setting by setting: the winner, differences, times, calibration, and confused classes.

A setting is what results must share to be comparable: features, ways, shots, queries and seed.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from likelyshot.data.results import Result
from likelyshot.data.tasks import Balanced, Dirichlet, plan_from
from likelyshot.errors import InputError
from likelyshot.evaluation import published
from likelyshot.evaluation.run import source_name
from likelyshot.evaluation.sweep import Sweep
from likelyshot.methods.binding import titles
from likelyshot.report.comparison import accuracy_by_share, differences, pareto, share_edges, winner

REFERENCES = ("mll", "mll_transductive")
#: Tables of the paper by their protocol, 5-way with 1 or 5 shots: their numbers, decimals and rows.
PUBLISHED = {
    Balanced(15): ("Table I", 2, published.INDUCTIVE),
    Dirichlet(75, 2.0): ("Tables IV and V", 1, published.IMBALANCED),
}


def compare_results(
    results: Sequence[Result], sweeps: Sequence[Sweep] = (), made_by: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Compare the results that have the same features, ways, shots, queries and seed, as plain data for JSON.

    Methods have the names of the tables. All shares are fractions.

    Args:
        results: Results in any order. Those of one command over several networks count as of the same features.
        sweeps: Sweeps, which are passed on as they are.
        made_by: The command and the environment of each run, from `load_runs`.

    >>> import torch
    >>> from likelyshot import Features, evaluate, sample_tasks
    >>> from likelyshot.methods import METHODS
    >>> vectors = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
    >>> features = Features.from_arrays(vectors, [f"class {i % 3}" for i in range(60)])
    >>> tasks = sample_tasks(features.labels, n_tasks=20, ways=3, shots=1, query=Balanced(5), seed=0)
    >>> data = compare_results([evaluate(METHODS[name], features, tasks) for name in ("mll", "cosine")])
    >>> data["settings"][0]["protocol"], data["settings"][0]["references"]
    ('3-way 1-shot, balanced, 5 per class', ['MLL'])
    """
    if not results and not sweeps:
        raise InputError("expected at least one result or sweep, got none: evaluate a method first")
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_key(result), []).append(result)
    settings = [_setting(groups[key]) for key in sorted(groups)]
    for setting, title, name in zip(settings, _titles(settings), _file_names(settings), strict=True):
        setting |= {"title": title, "name": name}
    swept = [{"method": s.method, "grid": dict(s.grid), "rows": list(s.rows), "config": dict(s.config)} for s in sweeps]
    return {"settings": settings, "sweeps": swept, "made_by": [dict(run) for run in made_by]}


def _key(result: Result) -> tuple[Any, ...]:
    config = result.config
    digests = tuple(map(str, config.get("networks") or [one.get("digest", "") for one in config["features"]]))
    query = json.dumps(config["query"], sort_keys=True)
    return (
        digests,
        config["query"]["plan"],
        query,
        config["ways"],
        config["shots"],
        config["seed"],
        bool(config.get("overlap", False)),
    )


def _setting(results: Sequence[Result]) -> dict[str, Any]:
    """Compare the results of one setting, best first."""
    distinct = _distinct(results)
    named = {name: distinct[name] for name in sorted(distinct, key=lambda name: -distinct[name].mean)}
    longest = max(named.values(), key=lambda result: len(result.accuracy))
    edges = share_edges(longest.largest_share)
    rows = [{**_row(name, result), "by_share": accuracy_by_share(result, edges)} for name, result in named.items()]
    for row, on_front in zip(rows, pareto([row["ms"] for row in rows], [row["mean"] for row in rows]), strict=True):
        row["front"] = on_front
    references = _references(named)
    config = longest.config
    used = {str(one.get("digest", "")): dict(one) for result in named.values() for one in result.config["features"]}
    features = [used[digest] for digest in _key(longest)[0] if digest in used]  # in the order of the networks
    queries = plan_from(config["query"]).describe() + (
        ", queries may repeat the support" if config.get("overlap") else ""
    )
    return {
        "features": features,
        "source": source_name(features),
        "short": source_name(features, short=True),
        "queries": queries,
        "protocol": f"{config['ways']}-way {config['shots']}-shot, {queries}",
        **{key: config[key] for key in ("ways", "shots", "query", "seed", "tasks_digest")},
        "tasks": len(longest.accuracy),
        "rows": rows,
        "winner": winner(named),
        "references": references,
        "differences": {reference: differences(named, reference) for reference in references},
        "published": _published(config),
    }


def _row(name: str, result: Result) -> dict[str, Any]:
    bins = zip(*(result.reliability[key] for key in ("count", "confidence", "correct")), strict=True)
    return {
        "name": name,
        "method": result.method,
        "params": dict(result.config["params"]),
        "source": source_name(result.config["features"]),
        "tasks": len(result.accuracy),
        "device": str(result.config.get("device", "cpu")),
        "environment": dict(result.environment),
        "mean": result.mean,
        "ci95": result.ci95,
        "balanced_accuracy": float(result.balanced_accuracy.mean()),
        "macro_f1": float(result.macro_f1.mean()),
        "ms": max(1000 * result.seconds / len(result.accuracy), 1e-6),  # for a logarithmic scale
        "ece": result.ece,
        "temperature": result.reliability["temperature"],
        "fitted": result.reliability["fitted"],
        "reliability": [
            {"queries": int(count), "confidence": confidence / count, "accuracy": correct / count}
            for count, confidence, correct in bins
            if count
        ],
        "confused": [dict(pair) for pair in result.confused],
    }


def _distinct(results: Sequence[Result]) -> dict[str, Result]:
    """Give every result its own name. Equal results count once; names get differing parameters, or a number, added."""
    known = titles()
    alike: dict[str, list[Result]] = {}
    for result in results:
        row = str(result.config.get("row", result.method))
        others = alike.setdefault(known.get(row, row), [])
        if not any(_same(result, other) for other in others):
            others.append(result)
    named: dict[str, Result] = {}
    for name, group in alike.items():
        params = [result.config["params"] for result in group]
        keys = dict.fromkeys(key for one in params for key in one)
        differing = [key for key in keys if any(one.get(key) != params[0].get(key) for one in params)]
        for result, one in zip(group, params, strict=True):
            words = ", ".join(f"{key}={one.get(key)}" for key in differing)[:80]
            named[_free(f"{name} ({words})" if words else name, named, " #")] = result
    return named


def _same(one: Result, other: Result) -> bool:
    return one.config["params"] == other.config["params"] and np.array_equal(one.accuracy, other.accuracy)


def _free(name: str, taken: Mapping[str, Any] | Sequence[str], mark: str) -> str:
    """Add a number to a name that is taken.

    >>> _free("a", ["a", "a-2"], "-")
    'a-3'
    """
    numbered = (f"{name}{mark}{number}" for number in itertools.count(2))
    return next(text for text in itertools.chain([name], numbered) if text not in taken)


def _references(named: Mapping[str, Result]) -> list[str]:
    """Choose what the others are compared with: the best of either MLL, or else the best method."""
    best = [next((name for name, result in named.items() if result.method == method), None) for method in REFERENCES]
    return [name for name in best if name is not None] or [next(iter(named))]


def _published(config: Mapping[str, Any]) -> dict[str, Any]:
    """Look up what the paper reports for this protocol, on other data sets and networks."""
    table = PUBLISHED.get(plan_from(config["query"]))
    if table is None or config["ways"] != 5 or config["shots"] not in (1, 5):
        return {}
    where, digits, printed = table
    rows = [
        {"data": row.data, "network": row.network, "method": row.method, "percent": f"{percent:.{digits}f}"}
        for row in printed
        for percent in [row.one_shot if config["shots"] == 1 else row.five_shot]
    ]
    return {"where": f"{where} of {published.SOURCE}", "rows": rows}


def _titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name settings by their protocol, and by features and seed if these differ."""
    sources, seeds = ({setting[key] for setting in settings} for key in ("source", "seed"))
    titles: list[str] = []
    for setting in settings:
        title = f"{setting['short']}: {setting['protocol']}" if len(sources) > 1 else setting["protocol"]
        title += f", seed {setting['seed']}" if len(seeds) > 1 else ""
        titles.append(_free(title, titles, " #"))
    return titles


def _file_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names: list[str] = []
    for setting in settings:
        query = "-".join(
            f"{value:g}" if isinstance(value, float) else f"{value}" for value in setting["query"].values()
        )
        words = f"{setting['ways']}way-{setting['shots']}shot-{query}".lower()
        names.append(_free(re.sub("[^a-z0-9]+", "-", words), names, "-"))
    return names

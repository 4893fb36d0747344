"""From what `explore` found to a page, and to figures for a paper."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.report.charts import Bars, Chart, Heat, Line, Panel, Steps
from likelyshot.report.figures import write_figures
from likelyshot.report.html import Histograms, Page, Section, TextTable, write_page

PAPER_AGREEMENT = 0.73  # Hess & Ditzler: all three metrics agree, their three networks on miniImageNet's validation
MOST_FEATURES = 3  # panels of the static figure of histograms

Exploration = Mapping[str, Any]


def write_explore_page(path: str | Path, data: Exploration, *, command: str) -> Path:
    """Write the page about features: `data` from `explore`, `command` as it was typed."""
    return write_page(path, explore_page(data, command=command))


def write_explore_figures(folder: str | Path, data: Exploration) -> list[Path]:
    """Write every figure of the page as SVG, PDF and PNG into a folder."""
    charts = [feature_chart(data), *_family_charts(data), _between_chart(data), *_score_charts(data)]
    return write_figures(folder, charts)


def explore_page(data: Exploration, *, command: str) -> Page:
    """Arrange what `explore` found as a page: summary, four sections, settings."""
    about, families, between, scores = (data[name] for name in ("about", "families", "between", "scores"))
    chosen = {key: data[key] for key in ("classes", "features", "features_of", "histograms", "rates")}
    feature, classes = _striking(data)[0]
    histograms = Histograms(
        "histograms",
        "Bars: the histogram of a feature over the images of a class, by the paper's eq. (1). Lines: the exponential "
        "density λ exp(−λz) with λ = 1 / mean, by eq. (2).",
        {**chosen, "start": {"feature": feature, "classes": classes}},
    )
    sections = [
        Section(
            "One feature, class by class",
            ["The paper's Figures 2 and 3, for these features: choose a feature and the classes to compare."],
            [histograms],
        ),
        Section(
            "Is the exponential the right family?",
            [
                f"Fitted to {families['fits']:,} pairs of a class and a feature; {families['left_out']:,} were left "
                f"out. {families['rule']}"
            ],
            _family_charts(data),
        ),
        Section(
            "How much λ differs between classes", [_between_words(between), between["test"]], [_between_chart(data)]
        ),
        Section(
            "Scores within and between classes",
            [
                f"The paper's Figure 4, over {scores['tasks']:,} tasks of {scores['ways']} classes with "
                f"{scores['shots']} labelled image{'s' if scores['shots'] > 1 else ''} each: the scores of queries "
                "for their own class and for the others."
            ],
            [*_score_charts(data), _score_table(scores)],
        ),
    ]
    facts = {key: value for key, value in about.items() if key not in ("title", "normalised", "settings")}
    settings = {key: _words(value) for key, value in {**facts, **about["settings"]}.items()}
    return Page(about["title"], explore_summary(data), sections, settings, command)


def explore_summary(data: Exploration) -> list[str]:
    """Say in five sentences what was found."""
    about, families, scores = data["about"], data["families"], data["scores"]
    source = " of ".join(text for text in (about["encoder"], about["dataset"]) if text)
    where = f"{about['file']}, split {about['split']}" if about["split"] else about["file"]
    shares = dict(zip(families["names"], families["best_by_likelihood"], strict=True))
    best = max(shares, key=lambda name: shares[name])
    exponential = f"the exponential in {_percent(shares['exponential'])}" if best != "exponential" else "more than any"
    metrics = scores["per_metric"]
    ranked = sorted(metrics, key=lambda name: -metrics[name]["auc_within_query"])
    return [
        f"{about['images']:,} images of {about['classes']:,} classes, {about['dim']:,} features each"
        f"{' (L2-normalised)' if about['normalised'] else ''}, from {where}{f' ({source})' if source else ''}.",
        f"{_percent(data['zeros']['share'])} of the values are exactly zero.",
        f"By likelihood the {best} fits best in {_percent(shares[best])} of the pairs of a class and a feature, "
        f"{exponential}; in the median pair the exponential is {families['behind']['median']:.2g} nats per image "
        f"behind the best, and {families['behind']['median_zero_inflated']:.2g} with the zeros set apart.",
        _between_words(data["between"]),
        "Own class before another, for the same query: "
        + ", ".join(f"{name} {_percent(metrics[name]['auc_within_query'])}" for name in ranked)
        + f". All three metrics decide the same for {_percent(scores['agreement']['all'])} of the queries (the paper, "
        f"for its own three networks on miniImageNet: {PAPER_AGREEMENT * 100:.0f} %).",
    ]


def feature_chart(data: Exploration) -> Chart:
    """Draw the features that differ most between classes: histogram by eq. (1), exponential fit by eq. (2)."""
    count, fitted = _unpack(data)
    packed = data["histograms"]
    panels = []
    for feature, classes in _striking(data):
        width = packed["width"][feature]
        edges = np.arange(packed["bins"] + 1) * width
        curve = np.linspace(0, edges[-1], 121)
        marks: list[Steps | Line] = []
        for colour, label in enumerate(classes):
            rate = float(fitted[label, feature])
            heights = count[label, feature] / ((packed["images"][label] * width) or 1)
            name = f"{data['classes'][label]}: λ = {rate:.3g}"
            marks.append(Steps("", edges.tolist(), heights.tolist(), colour))
            marks.append(Line(name, curve.tolist(), (rate * np.exp(-rate * curve)).tolist(), colour))
        panels.append(Panel(f"value of feature {data['features'][feature]}", "density", marks))
    caption = "Histograms by eq. (1) and exponential fits λ exp(−λz) by eq. (2) of features that differ by class."
    return Chart("features", "Features by class", caption, panels)


def _striking(data: Exploration) -> list[tuple[int, list[int]]]:
    """Find features that show how classes differ, each with classes of a low, the middle and a high rate.

    Their rates differ two- to eightfold, for with more one class hides the others, and of these features they have the
    fewest values near zero.
    """
    counts, rates = _unpack(data)
    order = np.argsort(rates, 0, kind="stable")
    last = len(order) - 1
    chosen = order[list(dict.fromkeys((last // 10, (last + 1) // 2, last - last // 10)))]  # (up to 3, features)
    low, high = (np.take_along_axis(rates, chosen[[end]], 0)[0] for end in (0, -1))
    apart = (2 * low <= high) & (high <= 8 * low) & (low > 0)
    best = np.argsort(counts[:, :, 0].sum(0) - 1e9 * apart, kind="stable")
    return [(int(i), chosen[:, i].tolist()) for i in best[:MOST_FEATURES]]


def _unpack(data: Exploration) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read the counts (classes, features, bins) and the rates (classes, features)."""
    packed, shape = data["histograms"], (len(data["classes"]), len(data["features"]))
    kind = np.dtype(packed["dtype"]).newbyteorder("<")
    counts = np.frombuffer(base64.b64decode(packed["counts"]), kind).reshape(*shape, packed["bins"])
    return counts, np.frombuffer(base64.b64decode(data["rates"]), "<f4").reshape(shape)


def _family_charts(data: Exploration) -> list[Chart]:
    families, zeros = data["families"], data["zeros"]
    names, behind = families["names"], families["behind"]
    top = max(behind["counts"], default=1)
    return [
        Chart(
            "families",
            "Which family fits best",
            "The share of pairs of a class and a feature that each family fits best, by likelihood and by the "
            "Kolmogorov-Smirnov distance, and the mean of that distance: smaller is better.",
            [
                Panel(
                    "share of pairs, %",
                    "",
                    [
                        Bars("best by likelihood", names, _percents(families["best_by_likelihood"]), 0),
                        Bars("best by KS distance", names, _percents(families["best_by_ks"]), 1),
                    ],
                ),
                Panel("mean KS distance", "", [Bars("", names, families["mean_ks"], 2)]),
            ],
        ),
        Chart(
            "behind",
            "How far the exponential is behind, and how many values are zero",
            f"Left: the log-likelihood per image that the exponential loses to the best family, median "
            f"{behind['median']:.2g} nats; the last bar holds all beyond. Right: the share of exact zeros of every "
            f"feature, {_percent(zeros['share'])} over all.",
            [
                Panel(
                    "nats per image behind the best family",
                    "pairs of class and feature",
                    [
                        Steps("pairs", behind["edges"], behind["counts"], 0),
                        Line(f"median {behind['median']:.2g}", [behind["median"]] * 2, [0, top], 1),
                    ],
                ),
                Panel(
                    "share of exact zeros, %",
                    "features",
                    [Steps("", _percents(zeros["edges"]), zeros["counts"], 2)],
                ),
            ],
        ),
    ]


def _between_chart(data: Exploration) -> Chart:
    between = data["between"]
    heat = Heat("log₁₀ λ", between["classes"], [f"{index}" for index in between["features"]], between["log10_rate"])
    return Chart(
        "rates",
        "λ by class and feature",
        f"The fitted rate, as log₁₀ λ, of {len(between['features'])} features (across) in "
        f"{len(between['classes'])} classes (down): brighter is a larger rate, hence smaller values.",
        [Panel("feature", "", [heat])],
    )


def _between_words(between: Exploration) -> str:
    return (
        f"The rate λ differs between classes in {_percent(between['p_below_0.01'])} of the features (p < 0.01 after "
        f"Holm's correction); in the median feature the largest class mean is {between['median_ratio']:.3g} times the "
        "smallest."
    )


def _score_charts(data: Exploration) -> list[Chart]:
    scores = data["scores"]
    metrics, agreement = scores["metrics"], scores["agreement"]
    panels = []
    for name in metrics:
        found = scores["per_metric"][name]
        marks: list[Steps | Line] = []
        for colour, (kind, words) in enumerate((("intra", "own class"), ("cross", "other classes"))):
            fit = _gaussian(found["edges"], found[f"{kind}_mean"], found[f"{kind}_std"])
            marks += [Steps(words, found["edges"], found[kind], colour), Line("", *fit, colour)]
        title = f"{name}: AUC {found['auc']:.3f}, d′ {found['d_prime']:.2f}"
        panels.append(Panel(f"{name} score", "density", marks, title))
    pairs = {pair.replace("-", " and "): share for pair, share in agreement["pairs"].items()}
    ours = {"all three": agreement["all"], **pairs}
    correlations = [
        Panel("", "", [Heat("correlation", metrics, metrics, scores[f"correlation_{kind}"], True, (-1, 1))], words)
        for kind, words in (("intra", "Scores for the own class"), ("cross", "Scores for other classes"))
    ]
    return [
        Chart(
            "scores",
            "Scores within and between classes",
            "Densities of the scores of queries for their own class and for other classes, with Gaussian fits (lines): "
            "the less they overlap, the better a metric separates.",
            panels,
        ),
        Chart(
            "correlations",
            "Correlation of the three metrics",
            "Correlations between the scores of the metrics: what is far below 1 leaves something to combine.",
            correlations,
        ),
        Chart(
            "agreement",
            "How often the metrics decide the same",
            f"The share of queries on which metrics decide the same class; the paper reports "
            f"{PAPER_AGREEMENT * 100:.0f} % for all three, of its own networks on miniImageNet.",
            [
                Panel(
                    "share of queries, %",
                    "",
                    [
                        Bars("these features", list(ours), _percents(list(ours.values())), 0),
                        Line(
                            "the paper's networks, all three", [100 * PAPER_AGREEMENT] * 2, [-0.5, len(ours) - 0.5], 1
                        ),
                    ],
                )
            ],
        ),
    ]


def _score_table(scores: Exploration) -> TextTable:
    rows = [
        [
            name,
            f"{found['intra_mean']:.4g} ± {found['intra_std']:.3g}",
            f"{found['cross_mean']:.4g} ± {found['cross_std']:.3g}",
            f"{found['d_prime']:.2f}",
            f"{found['auc']:.3f}",
            f"{found['auc_within_query']:.3f}",
            _percent(scores["accuracy"][name]),
        ]
        for name, found in scores["per_metric"].items()
    ]
    caption = (
        "Scores as mean ± standard deviation, and how well they separate: d′, their distance in standard deviations; "
        "AUC, the chance that the score of a query for its own class is above that of any query for another class; "
        "AUC within, the same for one query, which is what a decision rests on."
    )
    return TextTable(caption, ["metric", "own class", "other classes", "d′", "AUC", "AUC within", "accuracy"], rows)


def _gaussian(edges: Sequence[float], mean: float, std: float) -> tuple[list[float], list[float]]:
    """Compute the normal density at 121 places over a histogram.

    >>> x, y = _gaussian([-1.0, 1.0], 0.0, 1.0)
    >>> x[60], round(y[60], 4)
    (0.0, 0.3989)
    """
    x = np.linspace(edges[0], edges[-1], 121)
    std = max(std, 1e-3 * (edges[-1] - edges[0]), 1e-100)  # a line where all scores are the same
    y = np.exp(-(((x - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))
    return x.tolist(), y.tolist()


def _percents(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _percent(share: float) -> str:
    """Write a share as a percentage that is 0 or 100 only if it is.

    >>> _percent(0.7312), _percent(1.0), _percent(0.99999)
    ('73.1 %', '100 %', '> 99.9 %')
    """
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if not 0.001 <= share <= 0.999:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.1f} %"


def _words(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"

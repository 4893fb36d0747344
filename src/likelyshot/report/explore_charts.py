"""The charts of what `explore` found: histograms, families, rates, scores."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.methods.binding import titles
from likelyshot.report.charts import Bars, Chart, Heat, Line, Panel, Steps

PAPER_AGREEMENT = 0.73  # Hess & Ditzler: all three metrics agree, their three networks on miniImageNet's validation
MOST_FEATURES = 3  # panels of the figure of histograms

Exploration = Mapping[str, Any]


def feature_chart(data: Exploration) -> Chart:
    """Describe features that differ between classes: histograms by eq. (1), exponential fits by eq. (2)."""
    count, fitted = _unpack(data)
    packed = data["histograms"]
    panels = []
    for feature, classes in striking(data):
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


def striking(data: Exploration) -> list[tuple[int, list[int]]]:
    """Find features that show how classes differ, each with classes of a low, a middle and a high rate.

    Their rates differ two- to eightfold, since beyond that one class hides the others. Among these features they have
    the fewest values near zero.
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
    """Decode the counts (classes, features, bins) and the rates (classes, features)."""
    packed, shape = data["histograms"], (len(data["classes"]), len(data["features"]))
    kind = np.dtype(packed["dtype"]).newbyteorder("<")
    counts = np.frombuffer(base64.b64decode(packed["counts"]), kind).reshape(*shape, packed["bins"])
    return counts, np.frombuffer(base64.b64decode(data["rates"]), "<f4").reshape(shape)


def family_charts(data: Exploration) -> list[Chart]:
    """Describe which family fits best, how far the exponential is behind, and how many values are zero."""
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
            f"Left: how far the exponential's log-likelihood per image is below that of the best family, median "
            f"{behind['median']:.2g} nats; the last bar includes everything beyond. Right: the share of exact "
            f"zeros of every feature; {percent(zeros['share'])} over all features.",
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


def rates_chart(data: Exploration) -> Chart:
    """Describe the rates of classes and features as a heat map."""
    between = data["between"]
    values = [value for row in between["log10_rate"] for value in row if value is not None]
    low, high = np.percentile(values, [2, 98]).tolist() if values else (0.0, 1.0)
    span = (low, high) if high > low else None  # so that a few outliers do not take all the colours
    columns = [f"{index}" for index in between["features"]]
    heat = Heat("log₁₀ λ", between["classes"], columns, between["log10_rate"], span=span)
    return Chart(
        "rates",
        "λ by class and feature",
        f"The fitted rate, as log₁₀ λ, of {len(between['features'])} features (across) in "
        f"{len(between['classes'])} classes (down): brighter is a larger rate, that is, smaller values. "
        "The lowest and the highest 2 % share the colours at the ends.",
        [Panel("feature", "", [heat])],
    )


def score_charts(data: Exploration) -> list[Chart]:
    """Describe the scores of the metrics: their densities, correlations and agreement."""
    scores = data["scores"]
    agreement, known = scores["agreement"], titles()
    metrics = [known[name] for name in scores["metrics"]]
    panels = []
    for name, metric in scores["per_metric"].items():
        marks: list[Steps | Line] = []
        for colour, (kind, words) in enumerate((("intra", "own class"), ("cross", "other classes"))):
            fit = _gaussian(metric["edges"], metric[f"{kind}_mean"], metric[f"{kind}_std"])
            marks += [Steps(words, metric["edges"], metric[kind], colour), Line("", *fit, colour)]
        title = f"{known[name]}: AUC {metric['auc']:.3f}, d′ {metric['d_prime']:.2f}"
        panels.append(Panel(f"{known[name]} score", "density", marks, title))
    pairs = {" and ".join(known[name] for name in pair.split("-")): value for pair, value in agreement["pairs"].items()}
    ours = {"all three": agreement["all"], **pairs}
    correlations = [
        Panel("", "", [Heat("correlation", metrics, metrics, scores[f"correlation_{kind}"], True, (-1, 1))], words)
        for kind, words in (("intra", "Scores for the own class"), ("cross", "Scores for other classes"))
    ]
    return [
        Chart(
            "scores",
            "Densities of the scores",
            "Densities of the scores of queries for their own class and for other classes, with Gaussian fits (lines): "
            "the less they overlap, the better a metric separates the classes.",
            panels,
        ),
        Chart(
            "correlations",
            "Correlation of the three metrics",
            "Correlations between the scores of the metrics: far below 1, combining them can help.",
            correlations,
        ),
        Chart(
            "agreement",
            "How often the metrics agree",
            f"The share of queries for which metrics predict the same class. The paper reports "
            f"{PAPER_AGREEMENT * 100:.0f} % for all three, with its own networks on miniImageNet.",
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


def percent(share: float) -> str:
    """Write a share as a percentage that is 0 or 100 only if it is.

    >>> percent(0.7312), percent(1.0), percent(0.99999)
    ('73.1 %', '100 %', '> 99.9 %')
    """
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if not 0.001 <= share <= 0.999:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{100 * share:.1f} %"

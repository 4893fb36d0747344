"""The page of `likelyshot explore`, and its figures for a paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from likelyshot.data.images import ImageError, small_jpeg
from likelyshot.machine import ordered_map
from likelyshot.methods.binding import titles
from likelyshot.report.explore_charts import (
    PAPER_AGREEMENT,
    Exploration,
    family_charts,
    feature_chart,
    percent,
    rates_chart,
    score_charts,
    striking,
)
from likelyshot.report.figures import write_figures
from likelyshot.report.html import Histograms, ImageMap, Page, Section, TextTable, write_page

FEW_PICTURES = 400  # images whose pictures may be larger
MAP_BYTES = 6_000_000  # of pictures on a page


def write_explore_page(
    path: str | Path, data: Exploration, *, command: str, pictures: Sequence[Path | None] | None = None
) -> Path:
    """Write the page about features as one HTML file that works offline.

    Args:
        path: The HTML file.
        data: From `explore` or `explore_map`.
        command: The command line, for the end of the page.
        pictures: The image file of every point of the map, or None where there is none.
    """
    return write_page(path, explore_page(data, command=command, pictures=pictures))


def write_explore_figures(folder: str | Path, data: Exploration) -> list[Path]:
    """Write every figure of the page to a folder, as SVG, PDF and PNG."""
    charts = [feature_chart(data), *family_charts(data), rates_chart(data), *score_charts(data)]
    return write_figures(folder, charts)


def explore_page(data: Exploration, *, command: str, pictures: Sequence[Path | None] | None = None) -> Page:
    """Arrange what `explore` found as a page: summary, map, four sections, settings; or the map alone."""
    mapped = _map_section(data, pictures)
    settings = _settings(data["about"])
    if "families" not in data:
        return Page(f"Map of {data['about']['title']}", explore_summary(data), [mapped], settings, command)
    about, families, between, scores = (data[name] for name in ("about", "families", "between", "scores"))
    chosen = {key: data[key] for key in ("classes", "features", "features_of", "histograms", "rates")}
    feature, classes = striking(data)[0]
    histograms = Histograms(
        "histograms",
        "Bars: the histogram of a feature over the images of a class, by the paper's eq. (1). Lines: the exponential "
        "density λ exp(−λz) with λ = 1 / mean, by eq. (2).",
        {**chosen, "start": {"feature": feature, "classes": classes}},
    )
    sections = [
        mapped,
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
            family_charts(data),
            folded=not families["fits"],
        ),
        Section("How much λ differs between classes", [_between_words(between), between["test"]], [rates_chart(data)]),
        Section(
            "Scores within and between classes",
            [
                f"The paper's Figure 4, over {scores['tasks']:,} tasks of {scores['ways']} classes with "
                f"{scores['shots']} labelled image{'s' if scores['shots'] > 1 else ''} each: the scores of queries "
                "for their own class and for the others."
            ],
            [*score_charts(data), _score_table(scores)],
        ),
    ]
    return Page(f"Features of {about['title']}", explore_summary(data), sections, settings, command)


def _settings(about: Exploration) -> dict[str, str]:
    facts = {key: value for key, value in about.items() if key not in ("title", "normalised", "settings")}
    facts = {"features" if key == "dim" else key: value for key, value in facts.items()}
    written = {key.replace("_", " "): _words(value) for key, value in {**facts, **about["settings"]}.items()}
    return {key: words for key, words in written.items() if words}


def _map_section(data: Exploration, pictures: Sequence[Path | None] | None) -> Section:
    """Show the map, with as many small pictures as fit into a page."""
    layout, total = data["map"], data["about"]["images"]
    count = len(layout["names"])
    files = pictures or [None] * count
    side = 128 if count <= FEW_PICTURES else 80
    uris = list(ordered_map(lambda pair: _picture(*pair, side), zip(files, layout["names"], strict=True)))
    room = MAP_BYTES
    for place, uri in enumerate(uris):
        room -= len(uri)
        uris[place] = uri if room >= 0 else ""
    some = "all of them" if count == total else f"{count:,} of {total:,}, evenly spaced"
    several, wrong = len(layout["classes"]) > 1, "A point among those of another class may have a wrong label. "
    hint = "Point at one, tap it, or go through them with the arrow keys, to see "
    text = (
        f"Every point is an image ({some}); images that the encoder finds similar are near each other. {hint}"
        f"{'its picture and name' if any(uris) else 'its name'}. {wrong if several else ''}"
        "Only near neighbours mean something: neither the axes nor far distances do."
    )
    colours = "; one colour per class, which repeat if there are many" if several else ""
    caption = f"t-SNE of the vectors, each of unit length{colours}."
    return Section("Map of the images", [text], [ImageMap("map", caption, {**layout, "pictures": uris})])


def _picture(path: Path | None, name: str, side: int) -> str:
    if path is None:
        return ""
    try:
        packed, _, _ = small_jpeg(path, name, side, 70)
    except ImageError:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(packed).decode()}"


def explore_summary(data: Exploration) -> list[str]:
    """Summarise what was found in five sentences, or in one if there is only a map."""
    about = data["about"]
    dataset = about["dataset"] if about["dataset"] != about["file"] else ""
    source = ", ".join(text for text in (about["encoder"], dataset and f"images of {dataset}") if text)
    where = f"{about['file']}, split {about['split']}" if about["split"] else about["file"]
    count = f" of {about['classes']:,} classes" if about["classes"] > 1 else ""
    first = (
        f"{about['images']:,} images{count}, {about['dim']:,} features each"
        f"{' (L2-normalised)' if about['normalised'] else ''}, from {where}{f' ({source})' if source else ''}."
        f"{f' Left out: {lost}.' if (lost := about['left_out']) else ''}"
    )
    if "families" not in data:
        return [first]
    families, scores = data["families"], data["scores"]
    shares = dict(zip(families["names"], families["best_by_likelihood"], strict=True))
    best = max(shares, key=lambda name: shares[name])
    exponential = f"the exponential in {percent(shares['exponential'])}" if best != "exponential" else "more than any"
    metrics, known = scores["per_metric"], titles()
    ranked = sorted(metrics, key=lambda name: -metrics[name]["auc_within_query"])
    fitted = (
        f"By likelihood the {best} fits best in {percent(shares[best])} of the pairs of a class and a feature, "
        f"{exponential}; in the median pair the exponential is {families['behind']['median']:.2g} nats per image "
        f"behind the best, and {families['behind']['median_zero_inflated']:.2g} if zeros are modelled separately."
    )
    if not families["fits"]:
        fitted = "There are too few images per class to tell which family fits best."
    return [
        first,
        f"{percent(data['zeros']['share'])} of the values are exactly zero.",
        fitted,
        _between_words(data["between"]),
        "How often a query scores higher for its own class than for another: "
        + ", ".join(f"{known[name]} {percent(metrics[name]['auc_within_query'])}" for name in ranked)
        + f". All three metrics predict the same class for {percent(scores['agreement']['all'])} of the queries "
        f"(the paper, for its own three networks on miniImageNet: {PAPER_AGREEMENT * 100:.0f} %).",
    ]


def _between_words(between: Exploration) -> str:
    return (
        f"The rate λ differs between classes in {percent(between['p_below_0.01'])} of the features (p < 0.01 after "
        f"Holm's correction); in the median feature the largest class mean is {between['median_ratio']:.3g} times the "
        "smallest."
    )


def _score_table(scores: Exploration) -> TextTable:
    rows = [
        [
            titles()[name],
            f"{metric['intra_mean']:.4g} ± {metric['intra_std']:.3g}".replace("-", "−"),
            f"{metric['cross_mean']:.4g} ± {metric['cross_std']:.3g}".replace("-", "−"),
            f"{metric['d_prime']:.2f}",
            f"{metric['auc']:.3f}",
            f"{metric['auc_within_query']:.3f}",
            percent(scores["accuracy"][name]),
        ]
        for name, metric in scores["per_metric"].items()
    ]
    caption = (
        "Scores as mean ± standard deviation, and how well they separate: d′, their distance in standard deviations; "
        "AUC, the probability that the score of a query for its own class is above that of any query for another "
        "class; AUC within, the same for the scores of one query, which decide its class."
    )
    return TextTable(caption, ["metric", "own class", "other classes", "d′", "AUC", "AUC within", "accuracy"], rows)


def _words(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}"

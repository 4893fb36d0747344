"""A page that shows what a pile was taken for: one HTML file, which needs and reaches nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import write_whole
from likelyshot.data.images import ImageError, read_image
from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.machine import Progress
from likelyshot.own_data.answers import Answers, encodable

SIDE = 160  # pixels of the longer side of a thumbnail
QUALITY = 75  # of its JPEG: noise then takes 14 kB, a photograph about 5
MOST = 2000  # cards on a page, which thus stays below 40 MB
TEXT = 400  # characters of a text that are shown


class _Section(NamedTuple):
    """The items of one class, or those rejected, and which of them are shown, in order."""

    title: str
    place: int | None  # of the class; None for the rejected
    total: int
    shown: NDArray[np.intp]


def write_gallery(
    path: str | Path,
    items: Sequence[Item],
    answers: Answers,
    *,
    per_class: int = 60,
    command: str = "",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Path:
    """Write a page with the estimated class proportions and thumbnails, or texts, of every predicted class.

    Of each class at most `per_class` are shown, the most and the least certain, and 2,000 in all; the page says so.
    The rejected stand apart. `notes` are sentences for the top, `command` is what was typed; `progress` is told of
    every thumbnail. Names are shown as they are, never read as markup.
    """
    return write_whole(path, render(items, answers, per_class, command, notes, progress))


def render(
    items: Sequence[Item],
    answers: Answers,
    per_class: int = 60,
    command: str = "",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> str:
    """Make the HTML of `write_gallery`."""
    if len(items) != len(answers):
        raise InputError(f"expected an item for every answer, but got {len(items)} for {len(answers)}: match them")
    if per_class < 1:
        raise InputError(f"expected at least one picture a class, but got {per_class}: raise it")
    style, script = ((files(__name__) / f"gallery.{kind}").read_text("utf-8") for kind in ("css", "js"))
    policy = "; ".join(
        (
            *("default-src 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"),
            *(f"style-src {_hash(style)}", f"script-src {_hash(script)}"),
        )
    )
    shares = answers.shares()
    order = np.argsort(-shares, kind="stable").tolist()
    sections = _sections(answers, order, per_class)
    cards = _cards(items, answers, [row for section in sections for row in section.shown.tolist()], progress)
    listed = "".join(f"<li>{_text(note)}</li>\n" for note in notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Gallery of predictions</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>Gallery of predictions</h1>
<p>{_summary(answers, sections)}</p>
{f'<ul class="notes">{listed}</ul>' if listed else ""}
{_proportions(answers.classes, shares, order, sections)}
<div class="order" role="group" aria-label="Order of the pictures" hidden>
<button type="button" value="most" aria-pressed="true">Most certain first</button>
<button type="button" value="least" aria-pressed="false">Least certain first</button>
</div>
{"".join(_section(section, shares, cards) for section in sections)}
</main>
<footer>{f"<pre>{_text(command)}</pre>" if command else ""}Made by likelyshot.</footer>
<script>{script}</script>
</body>
</html>
"""


def _hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return html.escape(encodable(text))


def _sections(answers: Answers, order: Sequence[int], per_class: int) -> list[_Section]:
    """Classes that were predicted, the largest share first, then what was rejected; each with what is shown of it."""
    reject = np.asarray(answers.reject, dtype=bool)
    counts = np.bincount(answers.best[~reject], minlength=len(answers.classes))
    filled = [place for place in order if counts[place]]
    per_class = min(per_class, max(1, MOST // (len(filled) + 1)))
    left = MOST - per_class * bool(reject.any())
    probability = answers.probability
    sections = []
    for place in filled:
        rows = np.flatnonzero((answers.best == place) & ~reject)
        shown = _ends(rows, probability[rows], min(per_class, left))
        left -= len(shown)
        sections.append(_Section(answers.classes[place], place, len(rows), shown))
    if reject.any():
        rows = np.flatnonzero(reject)
        sections.append(_Section("Rejected", None, len(rows), _ends(rows, answers.novelty[rows], per_class)))
    return sections


def _ends(rows: NDArray[np.intp], keys: NDArray[Any], most: int) -> NDArray[np.intp]:
    """The rows by falling key, without the middle if there are more than `most`."""
    rows = rows[np.argsort(-keys, kind="stable")]
    return rows if len(rows) <= most else np.concatenate([rows[: most - most // 2], rows[len(rows) - most // 2 :]])


def _summary(answers: Answers, sections: Sequence[_Section]) -> str:
    rejected = int(np.sum(answers.reject))
    shown = sum(len(section.shown) for section in sections)
    which = "all are shown" if shown == len(answers) else f"{shown:,} are shown, the most and the least certain of each"
    return (
        f"{len(answers):,} items in {len(answers.classes):,} classes, of which {rejected:,} are rejected, as they "
        f"resemble no class; {which}."
    )


def _proportions(
    classes: Sequence[str], shares: NDArray[np.float64], order: Sequence[int], sections: Sequence[_Section]
) -> str:
    widest = max(float(shares.max()), 1e-12)
    counts = {section.place: section.total for section in sections}
    rows = []
    for place in order:
        name = f"<bdi>{_text(classes[place])}</bdi>"
        link = f'<a href="#c{place}">{name}</a>' if place in counts else name
        bar = f'<rect width="{100 * shares[place] / widest:.2f}" height="10"/>'
        rows.append(
            f'<tr><th scope="row">{link}</th><td class="bar"><svg viewBox="0 0 100 10" preserveAspectRatio="none" '
            f'aria-hidden="true">{bar}</svg></td><td class="number">{shares[place]:.1%}</td>'
            f'<td class="number">{counts.get(place, 0):,}</td></tr>\n'
        )
    rejected = f'<p><a href="#rejected">Rejected: {counts[None]:,}</a></p>\n' if None in counts else ""
    return (
        '<h2>Estimated proportions</h2>\n<table>\n<thead><tr><th scope="col">Class</th><th scope="col"></th>'
        '<th scope="col" class="number">Share</th><th scope="col" class="number">Items</th></tr></thead>\n'
        f"<tbody>\n{''.join(rows)}</tbody>\n</table>\n{rejected}"
        '<p class="quiet">A share is the mean probability of the class over all items that are not rejected; items are '
        "those for which it is the most probable.</p>"
    )


def _section(section: _Section, shares: NDArray[np.float64], cards: dict[int, str]) -> str:
    half = len(section.shown) // 2
    ends = ("strangest", "least strange") if section.place is None else ("most certain", "least certain")
    shown = f"{len(section.shown) - half:,} {ends[0]} and the {half:,} {ends[1]}" if half else f"{ends[0]}"
    partly = f"<p class='quiet'>Shown: the {shown}.</p>\n" if 0 < len(section.shown) < section.total else ""
    if not len(section.shown):
        partly = f"<p class='quiet'>None is shown, as the page shows {MOST:,} at most.</p>\n"
    if section.place is None:
        head = f'<section id="rejected">\n<h2>Rejected <small>{section.total:,}, the strangest first</small></h2>\n'
    else:
        facts = f"{section.total:,} items, estimated share {shares[section.place]:.1%}"
        name = f"<bdi>{_text(section.title)}</bdi>"
        head = f'<section id="c{section.place}">\n<h2>{name} <small>{facts}</small></h2>\n'
    turns = "" if section.place is None else " turns"
    held = "".join(cards[row] for row in section.shown.tolist())
    texts = " texts" if 'class="text"' in held[:200] else ""
    return f'{head}{partly}<ul class="cards{turns}{texts}">\n{held}</ul>\n</section>\n'


def _cards(items: Sequence[Item], answers: Answers, rows: Sequence[int], progress: Progress | None) -> dict[int, str]:
    """The card of each of these rows, made in threads, since decoding images releases the interpreter."""
    cards = {}
    with ThreadPoolExecutor() as pool:
        for row, body in zip(rows, pool.map(lambda row: _body(items[row]), rows), strict=True):
            cards[row] = f'<li class="card">{body}{_caption(answers, row)}</li>\n'
            if progress is not None:
                progress(1)
    return cards


def _caption(answers: Answers, row: int) -> str:
    values = answers.probabilities[row]
    order = np.argsort(-values, kind="stable")[:2].tolist()
    words = [f"{values[place]:.1%} <bdi>{_text(answers.classes[place])}</bdi>" for place in order]
    if answers.reject[row]:
        words = [f"novelty {answers.novelty[row]:.3g}", words[0]]
    else:
        words[0] = f"<strong>{values[order[0]]:.1%}</strong>"  # of the class whose section this is
    name = answers.names[row]
    last = f'<span class="name" title="{_text(name)}"><bdi>{_text(Path(name).name or name)}</bdi></span>'
    return f'{last}<span class="sure">{", ".join(words)}</span>'


def _body(item: Item) -> str:
    if item.text is not None:
        cut = item.text[:TEXT] + ("…" if len(item.text) > TEXT else "")
        return f'<p class="text" dir="auto">{_text(cut)}</p>'
    if item.path is None:
        return '<div class="none">no picture: only its embedding is known</div>'
    try:
        image = read_image(item.path, item.name, side=SIDE // 2)
    except ImageError as error:
        return f'<div class="none">{_text(error.kind)}</div>'
    image.thumbnail((SIDE, SIDE))
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=QUALITY, optimize=True)
    data = base64.b64encode(packed.getvalue()).decode()
    size = f'width="{image.width}" height="{image.height}"'
    return f'<img src="data:image/jpeg;base64,{data}" {size} alt="" loading="lazy" decoding="async">'

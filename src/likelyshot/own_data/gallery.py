"""A page that shows what each item was classified as: one HTML file with thumbnails or texts."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import write_whole
from likelyshot.data.images import ImageError, read_image
from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.machine import Progress, ordered_map
from likelyshot.own_data.answers import Answers
from likelyshot.report.html import render

SIDE = 160  # pixels of the longer side of a thumbnail
QUALITY = 75  # of its JPEG: noise then takes 14 kB, a photograph about 5
PER_CLASS = 60  # items that are shown of a class
MOST = 2000  # items on a page, which thus stays below 40 MB
TEXT = 400  # characters of a text that are shown


class Picture(NamedTuple):
    """A thumbnail: JPEG in base64, and its size in pixels."""

    data: str
    width: int
    height: int


class Card(NamedTuple):
    """One item on the page: its text, its picture, or the problem that there is neither; and what it is taken for."""

    name: str
    file_name: str
    certainty: str  # probability of the class of the group, or novelty if it is rejected
    other: tuple[str, str] | None  # probability and name of the next class
    text: str | None
    picture: Picture | None
    problem: str


class _Group(NamedTuple):
    """The items of one class, or those rejected, and the rows of those that are shown, in order."""

    place: int | None  # of the class; None for the rejected
    total: int
    rows: list[int]


def write_gallery(
    path: str | Path,
    items: Sequence[Item],
    answers: Answers,
    *,
    command: str = "",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Path:
    """Write a page with the estimated class proportions and thumbnails, or texts, of every predicted class.

    At most 60 items are shown of each class, the most and the least certain, and 2,000 in all; the page says so. Those
    rejected are shown apart. Names are shown as they are, never read as markup.

    Args:
        path: The HTML file.
        items: What was classified, one for each answer.
        answers: The probabilities of the items.
        command: The command line, for the end of the page.
        notes: Sentences for the top of the page.
        progress: Called after each thumbnail.
    """
    return write_whole(path, gallery_html(items, answers, command=command, notes=notes, progress=progress))


def gallery_html(
    items: Sequence[Item],
    answers: Answers,
    *,
    command: str = "",
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> str:
    """Make the HTML of `write_gallery`, whose arguments these are."""
    if len(items) != len(answers):
        raise InputError(f"expected one item for every answer, got {len(items)} items and {len(answers)} answers")
    shares = answers.shares()
    order = np.argsort(-shares, kind="stable").tolist()
    groups = _groups(answers, order)
    counts = {group.place: group.total for group in groups}
    cards = _cards(items, answers, [row for group in groups for row in group.rows], progress)
    return render(
        "gallery",
        scripts=["gallery.js"],
        title="Gallery of predictions",
        summary=[_summary(answers, groups), *notes],
        settings={},
        command=command,
        shares=[
            {
                "place": place,
                "name": answers.classes[place],
                "share": _percent(shares[place]),
                "width": f"{100 * shares[place] / max(float(shares.max()), 1e-12):.2f}",
                "count": counts.get(place, 0),
            }
            for place in order
        ],
        rejected=counts.get(None, 0),
        groups=[_shown(group, answers.classes, shares, cards) for group in groups],
    )


def _groups(answers: Answers, order: Sequence[int]) -> list[_Group]:
    """List the classes that were predicted, the largest share first, then the rejected; each with what is shown."""
    reject = np.asarray(answers.reject, dtype=bool)
    counts = np.bincount(answers.best[~reject], minlength=len(answers.classes))
    filled = [place for place in order if counts[place]]
    per_class = min(PER_CLASS, max(1, MOST // (len(filled) + 1)))
    left = MOST - per_class * bool(reject.any())
    probability = answers.probability
    groups = []
    for place in filled:
        rows = np.flatnonzero((answers.best == place) & ~reject)
        shown = _ends(rows, probability[rows], min(per_class, left))
        left -= len(shown)
        groups.append(_Group(place, len(rows), shown))
    if reject.any():
        rows = np.flatnonzero(reject)
        groups.append(_Group(None, len(rows), _ends(rows, answers.novelty[rows], per_class)))
    return groups


def _ends(rows: NDArray[np.intp], keys: NDArray[Any], most: int) -> list[int]:
    """Sort rows by falling key, and leave out the middle if there are more than `most`."""
    ordered: list[int] = rows[np.argsort(-keys, kind="stable")].tolist()
    return ordered if len(ordered) <= most else ordered[: most - most // 2] + ordered[len(ordered) - most // 2 :]


def _summary(answers: Answers, groups: Sequence[_Group]) -> str:
    rejected, shown = int(np.sum(answers.reject)), sum(len(group.rows) for group in groups)
    which = "All are shown" if shown == len(answers) else f"{shown:,} are shown: the most and the least certain of each"
    return (
        f"{_count(len(answers), 'item')} in {_count(len(answers.classes), 'class', 'classes')}; {rejected:,} "
        f"{'is' if rejected == 1 else 'are'} rejected as belonging to no class. {which}."
    )


def _shown(
    group: _Group, classes: Sequence[str], shares: NDArray[np.float64], cards: dict[int, Card]
) -> dict[str, Any]:
    """Describe a group for the template."""
    half = len(group.rows) // 2
    first, last = ("strangest", "least strange") if group.place is None else ("most certain", "least certain")
    shown = ""
    if not group.rows:
        shown = f"None is shown, because the page shows at most {MOST:,} items."
    elif len(group.rows) < group.total:
        shown = f"Shown: the {len(group.rows) - half:,} {first}" + (f" and the {half:,} {last}." if half else ".")
    found = {"shown": shown, "cards": [cards[row] for row in group.rows]}
    if group.place is None:
        facts = f"{_count(group.total, 'item')}, the strangest first"
        return found | {"id": "rejected", "title": "Rejected", "facts": facts, "turns": False}
    facts = f"{_count(group.total, 'item')}, estimated share {_percent(shares[group.place])}"
    return found | {"id": f"c{group.place}", "title": classes[group.place], "facts": facts, "turns": True}


def _cards(items: Sequence[Item], answers: Answers, rows: Sequence[int], progress: Progress | None) -> dict[int, Card]:
    """Make the cards of these rows, in threads, since decoding images releases the interpreter."""
    cards = {}
    for row, card in zip(rows, ordered_map(lambda row: _card(items[row], answers, row), rows), strict=True):
        cards[row] = card
        if progress is not None:
            progress(1)
    return cards


def _card(item: Item, answers: Answers, row: int) -> Card:
    values = answers.probabilities[row]
    best = np.argsort(-values, kind="stable")[:2].tolist()
    likely = [(_percent(values[place]), answers.classes[place]) for place in best]
    if answers.reject[row]:
        likely.insert(0, (f"novelty {answers.novelty[row]:.3g}", ""))
    certainty, other = likely[0][0], likely[1] if len(likely) > 1 else None
    text = picture = None
    problem = "no picture, only an embedding"
    if item.text is not None:
        text = item.text[:TEXT] + ("…" if len(item.text) > TEXT else "")
    elif item.path is not None:
        try:
            picture = _thumbnail(item.path, item.name)
        except ImageError as error:
            problem = error.kind
    name = answers.names[row]
    return Card(name, Path(name).name or name, certainty, other, text, picture, problem)


def _thumbnail(path: Path, name: str) -> Picture:
    image = read_image(path, name, side=SIDE // 2)
    image.thumbnail((SIDE, SIDE))
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=QUALITY, optimize=True)
    return Picture(base64.b64encode(packed.getvalue()).decode(), image.width, image.height)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def _count(number: int, one: str, more: str = "") -> str:
    """Write a number of things.

    >>> _count(1, "item"), _count(2000, "class", "classes")
    ('1 item', '2,000 classes')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"

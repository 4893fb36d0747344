"""A page that shows what each item was classified as: one HTML file with pictures or texts."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import write_whole
from likelyshot.data.images import ImageError, small_jpeg
from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.machine import Progress, ordered_map
from likelyshot.own_data.answers import Answers
from likelyshot.report.html import render

SIDE, FINE_SIDE = 160, 320  # pixels of the longer side of a picture; the finer ones on small pages
FINE = 400  # pictures up to which a page has the finer ones
QUALITY = 75  # of its JPEG: noise then takes 14 kB, a photograph about 5
PER_CLASS = 60  # items that are shown of a class
MOST = 2000  # items on a page, which thus stays below 40 MB
UNSURE, DOUBTFUL = 24, 0.9  # how many of the least certain answers come first, and below which probability
EXAMPLES = 8  # labelled examples at the head of a class
LEAST = 0.005  # smaller probabilities are not worth a word
TEXT = 400  # characters of a text that are shown
WHOLE = 20_000  # characters up to which a page has the whole text, which a correction needs
SUPPORT = ("--support", "-s")


class Picture(NamedTuple):
    """A picture: JPEG in base64, and its size in pixels."""

    data: str
    width: int
    height: int


class Card(NamedTuple):
    """One item on the page: its text, its picture, or the problem that there is neither."""

    name: str
    file_name: str
    text: str | None
    picture: Picture | None
    problem: str
    correct: str = ""  # what a correction names it by: path, text, or nothing if it cannot be corrected
    whole: str = ""  # its whole text, if that is longer than the text shown


class _Group(NamedTuple):
    """The items of one class, those rejected or the least certain ones, and the rows of those shown, in order."""

    kind: str  # class, rejected or unsure
    place: int  # of the class, otherwise -1
    total: int
    rows: list[int]


def write_gallery(
    path: str | Path,
    items: Sequence[Item],
    answers: Answers,
    *,
    labelled: Sequence[Item] = (),
    per_class: int = PER_CLASS,
    command: str = "",
    head: Sequence[str] = (),
    notes: Sequence[str] = (),
    correctable: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Write a page with the estimated class proportions and pictures, or texts, of every predicted class.

    What needs a look comes first: items that are rejected, and the least certain answers of the whole pile. At most 60
    items are shown of each class, the most and the least certain, and 2,000 in all; the page says so. Names are shown
    as they are, never read as markup.

    Args:
        path: The HTML file.
        items: What was classified, one for each answer.
        answers: The probabilities of the items.
        labelled: The labelled examples, a few of which are shown at the head of their class.
        per_class: How many items are shown of a class. More than 60 make a larger page, of up to 10,000 items.
        command: The command line, for the end of the page.
        head: Sentences for the top of the page.
        notes: Further sentences, which the reader can unfold.
        correctable: Whether the reader can name the right class of a picture or a text, and save that as a table.
        progress: Called after each picture.
    """
    page = gallery_html(
        items,
        answers,
        labelled=labelled,
        per_class=per_class,
        command=command,
        head=head,
        notes=notes,
        correctable=correctable,
        progress=progress,
    )
    return write_whole(path, page)


def gallery_html(
    items: Sequence[Item],
    answers: Answers,
    *,
    labelled: Sequence[Item] = (),
    per_class: int | None = None,
    command: str = "",
    head: Sequence[str] = (),
    notes: Sequence[str] = (),
    correctable: bool = True,
    progress: Progress | None = None,
) -> str:
    """Make the HTML of `write_gallery`, whose arguments these are."""
    if len(items) != len(answers):
        raise InputError(f"expected one item for every answer, got {len(items)} items and {len(answers)} answers")
    per_class = PER_CLASS if per_class is None else per_class
    if per_class < 1:
        raise InputError(f"expected 1 item per class or more, but got {per_class}: try {PER_CLASS}")
    shares = answers.shares()
    order = np.argsort(-shares, kind="stable").tolist()
    groups = _groups(answers, order, per_class)
    counts = {group.place: group.total for group in groups if group.kind == "class"}
    rejected = next((group.total for group in groups if group.kind == "rejected"), 0)
    rows = list(dict.fromkeys(row for group in groups for row in group.rows))
    side = FINE_SIDE if len(rows) <= FINE else SIDE
    cards = dict(zip(rows, _cards([items[row] for row in rows], side, progress), strict=True))
    examples = _examples(labelled, answers.classes)
    heads = {name: list(_cards(some, SIDE, None)) for name, some in examples.items()}
    stranger = np.searchsorted(np.sort(answers.novelty), answers.novelty) / max(1, len(answers))
    shown = [_shown(group, answers, shares, cards, stranger) for group in groups]
    for group in shown:
        group["examples"] = heads.get(group["title"], []) if group["kind"] == "class" else []
    return render(
        "gallery",
        scripts=["corrections.js", "gallery.js"],
        correctable=correctable,
        label_command=label_command(command),
        again_command=again_command(command),
        title="Gallery of predictions",
        summary=[_summary(answers, groups), *_more(groups, per_class, command), *head],
        notes=notes,
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
        rejected=rejected,
        groups=shown,
    )


def label_command(command: str) -> str:
    """Give the command that opens the labelling page for what a command has classified.

    >>> label_command("likelyshot classify --support few/ -q 'my pile/' -o out.csv")
    "likelyshot label 'my pile/' --support few/"
    >>> label_command("")
    'likelyshot label PILE --support LABELLED'
    """
    words = _words(command)
    options = {word: value for word, value in pairwise(words) if word in (*SUPPORT, "--query", "-q")}
    support, query = (options.get(long, options.get(short)) for long, short in (SUPPORT, ("--query", "-q")))
    if query is None:
        return "likelyshot label PILE --support LABELLED"
    return shlex.join(["likelyshot", "label", query, *(["--support", support] if support else [])])


def again_command(command: str) -> str:
    """Give the command that classifies again with the corrections among the labelled examples.

    >>> again_command("likelyshot classify --support few/ -q 'my pile/' -o out.csv")
    "likelyshot classify --support few/ corrections.csv -q 'my pile/' -o out.csv"
    >>> again_command("likelyshot predict model.safetensors pile/")
    'likelyshot classify --support LABELLED corrections.csv --query PILE'
    """
    words = _words(command)
    places = [place for place, word in enumerate(words) if word in SUPPORT]
    if not places:
        return "likelyshot classify --support LABELLED corrections.csv --query PILE"
    end = next((at for at in range(places[-1] + 1, len(words)) if words[at].startswith("-")), len(words))
    added = [] if "corrections.csv" in words[:end] else ["corrections.csv"]
    return shlex.join([*words[:end], *added, *words[end:]])


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]


def _groups(answers: Answers, order: Sequence[int], per_class: int) -> list[_Group]:
    """List what needs a look, then the classes that were predicted, the largest first; each with what is shown."""
    reject = np.asarray(answers.reject, dtype=bool)
    counts = np.bincount(answers.best[~reject], minlength=len(answers.classes))
    filled = [place for place in order if counts[place]]
    most = MOST if per_class <= PER_CLASS else 5 * MOST
    per_class = min(per_class, max(1, most // (len(filled) + 1)))
    left = most - per_class * bool(reject.any())
    probability = answers.probability
    groups = []
    if reject.any():
        rows = np.flatnonzero(reject)
        groups.append(_Group("rejected", -1, len(rows), _ends(rows, answers.novelty[rows], per_class)))
    classes = []
    for place in filled:
        rows = np.flatnonzero((answers.best == place) & ~reject)
        chosen = _ends(rows, probability[rows], min(per_class, left))
        left -= len(chosen)
        classes.append(_Group("class", place, len(rows), chosen))
    doubtful = np.flatnonzero(~reject & (probability < DOUBTFUL))
    unsure = doubtful[np.argsort(probability[doubtful], kind="stable")][: min(UNSURE, left)].tolist()
    if unsure and len(filled) > 1:
        groups.append(_Group("unsure", -1, len(doubtful), unsure))
    return groups + classes


def _examples(labelled: Sequence[Item], classes: Sequence[str]) -> dict[str, list[Item]]:
    """Choose the first labelled examples of every class, as many as there is room for on the page."""
    most = min(EXAMPLES, MOST // (2 * max(1, len(classes))))
    chosen: dict[str, list[Item]] = {name: [] for name in classes}
    for item in labelled:
        some = chosen.get(str(item.label))
        if some is not None and len(some) < most and (item.path is not None or item.text is not None):
            some.append(item)
    return chosen


def _ends(rows: NDArray[np.intp], keys: NDArray[Any], most: int) -> list[int]:
    """Sort rows by falling key, and leave out the middle if there are more than `most`."""
    ordered: list[int] = rows[np.argsort(-keys, kind="stable")].tolist()
    return ordered if len(ordered) <= most else ordered[: most - most // 2] + ordered[len(ordered) - most // 2 :]


def _summary(answers: Answers, groups: Sequence[_Group]) -> str:
    rejected = int(np.sum(answers.reject))
    shown = sum(len(group.rows) for group in groups if group.kind != "unsure")
    which = "All are shown" if shown == len(answers) else f"{shown:,} are shown: the most and the least certain of each"
    some = f"{rejected:,} {'is' if rejected == 1 else 'are'}" if rejected else "none is"
    return (
        f"{_count(len(answers), 'item')} in {_count(len(answers.classes), 'class', 'classes')}; {some} rejected as "
        f"belonging to no class. {which}."
    )


def _more(groups: Sequence[_Group], per_class: int, command: str) -> list[str]:
    """Say how to see more of each class, if a command made the page and can show more."""
    cut = [group.total for group in groups if group.kind != "unsure" and len(group.rows) < group.total]
    wanted = max(PER_CLASS + 1, min(max(cut, default=0), 5 * MOST))
    if not command or not cut or per_class >= wanted:
        return []
    return [f"To see more of each class, add --gallery-per-class {wanted} to the command."]


def _shown(
    group: _Group,
    answers: Answers,
    shares: NDArray[np.float64],
    cards: dict[int, Card],
    stranger: NDArray[np.float64],
) -> dict[str, Any]:
    """Describe a group for the template; `stranger` has the share of the pile that an item is stranger than."""
    half = len(group.rows) // 2
    first, last = ("strangest", "least strange") if group.kind == "rejected" else ("most certain", "least certain")
    shown = ""
    if not group.rows:
        shown = "None is shown, because the page is full."
    elif len(group.rows) < group.total and group.kind != "unsure":
        shown = f"Shown: the {len(group.rows) - half:,} {first}" + (f" and the {half:,} {last}." if half else ".")
    section = {
        "kind": group.kind,
        "shown": shown,
        "cards": [
            (cards[row], _certainty(group.kind, answers, row, float(stranger[row])), answers.classes[answers.best[row]])
            for row in group.rows
        ],
    }
    if group.kind == "rejected":
        look = (
            "looks like none of the classes"
            if group.total == 1
            else "look like none of the classes, the strangest first"
        )
        facts = f"{_count(group.total, 'item')} that {look}"
        return section | {"id": "rejected", "title": "Rejected", "facts": facts}
    if group.kind == "unsure":
        all_shown = len(group.rows) == group.total
        which = "the least certain first" if all_shown else f"of which the {len(group.rows)} least certain are shown"
        facts = f"{_count(group.total, 'answer')} below {_percent(DOUBTFUL, 0)}, {which}"
        return section | {"id": "unsure", "title": "Least certain", "facts": facts}
    facts = f"{_count(group.total, 'item')}, estimated share {_percent(shares[group.place])}"
    return section | {"id": f"c{group.place}", "title": answers.classes[group.place], "facts": facts}


def _certainty(kind: str, answers: Answers, row: int, stranger: float) -> str:
    """Say how probable the class is, and which is next, in words for this kind of group."""
    values = answers.probabilities[row]
    best, *rest = np.argsort(-values, kind="stable")[:2].tolist()
    if kind == "rejected":
        strange = f"stranger than {in_words(int(100 * stranger) / 100)} of the pile; " if stranger >= 0.01 else ""
        return f"{strange}most like {answers.classes[best]}"
    name = "this class" if kind == "class" else answers.classes[best]
    other = rest and values[rest[0]] >= LEAST and f"; next: {answers.classes[rest[0]]} {_percent(values[rest[0]], 0)}"
    return f"{in_words(float(values[best]))} {name}{other or ''}"


def _cards(items: Sequence[Item], side: int, progress: Progress | None) -> Iterator[Card]:
    """Make cards, in threads, since decoding images releases the interpreter."""
    for card in ordered_map(lambda item: _card(item, side), items):
        yield card
        if progress is not None:
            progress(1)


def _card(item: Item, side: int) -> Card:
    name = Path(item.name).name or item.name
    if item.text is not None:
        cut = len(item.text) > TEXT
        text = item.text[:TEXT] + ("…" if cut else "")
        correct = "text" if len(item.text) <= WHOLE else ""
        return Card(item.name, name, text, None, "", correct, item.text if cut and correct else "")
    problem = "no picture, only an embedding"
    if item.path is not None:
        try:
            return Card(item.name, name, None, thumbnail(item.path, item.name, side), "", "path")
        except ImageError as error:
            problem = error.kind
    return Card(item.name, name, None, None, problem)


def thumbnail(path: Path, name: str, side: int) -> Picture:
    """Read an image and make a small JPEG of it, whose longer side has at most `side` pixels."""
    packed, width, height = small_jpeg(path, name, side, QUALITY)
    return Picture(base64.b64encode(packed).decode(), width, height)


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def in_words(value: float) -> str:
    """Write a probability in percent; one that counts as doubtful never reads as one that does not.

    >>> [in_words(value).replace("\N{NO-BREAK SPACE}", " ") for value in (0.894, 0.896, 0.89999, 0.9, 0.9997)]
    ['89 %', '89.6 %', '89.9 %', '90 %', 'over 99 %']
    """
    if value >= 1 - LEAST:
        return f"over {_percent(0.99, 0)}"
    if value < DOUBTFUL <= round(value, 2):
        return _percent(min(value, DOUBTFUL - 0.001))
    return _percent(value, 0)


def _count(number: int, one: str, more: str = "") -> str:
    """Write a number of things.

    >>> _count(1, "item"), _count(2000, "class", "classes")
    ('1 item', '2,000 classes')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"

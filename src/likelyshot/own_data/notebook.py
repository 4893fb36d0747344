"""A small table of answers for notebooks, with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from likelyshot.data.images import ImageError
from likelyshot.data.items import Item
from likelyshot.own_data.answers import Answers, encodable
from likelyshot.own_data.gallery import in_words, thumbnail

MOST = 20  # rows that are shown
SIDE = 64  # pixels of the longer side of a picture
TEXT = 120  # characters of a text


def answers_html(title: str, answers: Answers, items: Sequence[Item] | None = None) -> str:
    """Make a table of the first answers as HTML, every name escaped.

    Args:
        title: A sentence above the table.
        answers: The answers.
        items: What was classified, whose pictures or texts are shown.
    """
    rows = []
    for place, (row, _) in enumerate(zip(answers.rows(), range(MOST), strict=False)):
        shown = "" if items is None else f"<td>{_content(items[place])}</td>"
        cells = (row.path, row.predicted, in_words(row.probability), row.runner_up, "rejected" if row.reject else "")
        rows.append(f"<tr>{shown}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    names = ("path", "predicted", "probability", "next", "")
    head = ("<th></th>" if items is not None else "") + "".join(f"<th>{name}</th>" for name in names)
    more = f"<p>The first {MOST} of {len(answers):,} are shown.</p>" if len(answers) > MOST else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<p>{escape(title)}</p><div style="overflow-x: auto">{table}</div>{more}'


def _content(item: Item) -> str:
    if item.text is not None:
        return escape(encodable(item.text[:TEXT] + ("…" if len(item.text) > TEXT else "")))
    if item.path is None:
        return ""
    try:
        picture = thumbnail(item.path, item.name, SIDE)
    except ImageError as error:
        return escape(error.kind)
    size = f'width="{picture.width}" height="{picture.height}"'
    return f'<img src="data:image/jpeg;base64,{picture.data}" {size} alt="">'

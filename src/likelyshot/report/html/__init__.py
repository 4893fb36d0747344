"""One self-contained HTML page of text, tables and charts, that works offline and runs nothing but its own script."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from likelyshot.data.files import write_whole
from likelyshot.report.charts import COLOURS, COLOURS_ON_DARK, Chart, TextTable


@dataclass(frozen=True)
class Histograms:
    """A chart of histograms whose feature and classes the reader chooses; page/histograms.js draws it.

    `data` has the entries classes, features, features_of, histograms and rates of `explore`, and `start`: the
    positions of the feature and of the classes to begin with.
    """

    name: str
    caption: str
    data: Mapping[str, Any]
    kind: str = field(default="histograms", init=False)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and what they speak of.

    Sections with a `choice` are alike: where there are many of them, the reader chooses one from a list of that name.
    """

    title: str
    text: Sequence[str]
    parts: Sequence[Chart | TextTable | Histograms]
    choice: str = ""


@dataclass(frozen=True)
class Page:
    """All that a page shows; every text is shown as it is, never read as markup."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    settings: Mapping[str, str]
    command: str


def write_page(path: str | Path, page: Page) -> Path:
    """Write a page as one HTML file, whole or not at all."""
    return write_whole(path, render_page(page))


def render_page(page: Page) -> str:
    r"""Make the HTML of a page: plotly, script, style and data inside, all else forbidden by its own policy.

    The data are JSON in which no character can end a script; page.js puts the texts in place by textContent. Plotly
    comes compressed, and runs because the policy knows the hash of its text.

    >>> html = render_page(Page("</script><script>alert(1)", [], [], {}, "likelyshot explore"))
    >>> "<script>alert" in html, "\\u003cscript\\u003ealert" in html
    (False, True)
    """
    here = files(__package__)
    script = "".join((here / name).read_text("utf-8") for name in ("histograms.js", "page.js"))
    style = (here / "page.css").read_text("utf-8")
    plotly = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src {_hash(script.encode())} {_hash(plotly)}; "
        "style-src 'unsafe-inline'; "  # plotly sets style attributes, and adds the style sheet of its maps
        "img-src data: blob:"  # plotly's download of a chart as an image
    )
    data = {**asdict(page), "colours": {"light": COLOURS, "dark": COLOURS_ON_DARK}}
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>likelyshot</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page draws its charts and tables by JavaScript, which is switched off.</p></noscript>
<main id="page"></main>
<footer>Made by likelyshot. Charts by plotly.js (MIT licence, Plotly, Inc.).</footer>
<script type="application/json" id="data">{in_script(data)}</script>
<script type="text/plain" id="plotly">{base64.b64encode(gzip.compress(plotly, mtime=0)).decode()}</script>
<script>{script}</script>
</body>
</html>
"""


def in_script(data: Any) -> str:
    r"""Write JSON that can stand inside a script element: nothing in it can end the element or a line.

    >>> in_script({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(code: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"

"""Self-contained HTML pages that work offline and run nothing but their own script: one template, one policy."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from likelyshot.data.files import write_whole
from likelyshot.report.charts import COLOURS, COLOURS_ON_DARK, DASHES, SYMBOLS, Chart

#: What a table shows as a number: with its interval, a unit or a count, and a mark before it.
NUMBER = re.compile(r"(best: |\* )?[-−+]?\d[\d,.]*( ± [\d,.]+| %| of \d[\d,]*)?")


@dataclass(frozen=True)
class TextTable:
    """Cells as text, with a heading for every column; the first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str = field(default="table", init=False)

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, perhaps with a mark or a word between them: they are aligned to the right.

        >>> TextTable("", ["", "points", "name"], [["a", "* +1.0", "x"], ["b", "reference", "1st"]]).numeric
        [False, True, False]
        """
        columns = [[row[place] for row in self.rows] for place in range(len(self.head))]
        return [place > 0 and any(map(NUMBER.fullmatch, cells)) for place, cells in enumerate(columns)]


@dataclass(frozen=True)
class Histograms:
    """A chart of histograms whose feature and classes the reader chooses; histograms.js draws it.

    `data` has the entries classes, features, features_of, histograms and rates of `explore`, and `start`: the
    positions of the feature and of the classes that are shown first.
    """

    name: str
    caption: str
    data: Mapping[str, Any]
    kind: str = field(default="histograms", init=False)


@dataclass(frozen=True)
class ImageMap:
    """A map of images in the plane, the picture of each shown when it is pointed at; map.js draws it.

    `data` has, for every image, x, y, the label, the name and the picture as a data URI, or "" without one; and the
    names of the classes.
    """

    name: str
    caption: str
    data: Mapping[str, Any]
    kind: str = field(default="map", init=False)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and the charts and tables that they describe.

    Sections with a `choice` are alike: if there are several, the reader chooses one from a list of that name.
    Every section can be folded, and one that is `folded` opens when it is asked for.
    """

    title: str
    text: Sequence[str]
    parts: Sequence[Chart | TextTable | Histograms | ImageMap]
    choice: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """All that a page of charts shows; every text is shown as it is, never read as markup."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    settings: Mapping[str, str]
    command: str


def write_page(path: str | Path, page: Page) -> Path:
    """Write a page of charts as one HTML file, whole or not at all."""
    return write_whole(path, render_page(page))


def render_page(page: Page) -> str:
    r"""Make the HTML of a page of charts. Plotly comes compressed: the policy admits it by the hash of its text.

    >>> html = render_page(Page("</script><script>alert(1)", [], [], {}, "likelyshot explore"))
    >>> "<script>alert" in html, "&lt;script&gt;alert" in html
    (False, True)
    """
    plotly, packed = _plotly()
    return render(
        "charts",
        scripts=("histograms.js", "map.js", "charts.js"),
        plotly=plotly,
        packed_plotly=packed,
        look={"light": COLOURS, "dark": COLOURS_ON_DARK, "dashes": list(DASHES), "symbols": list(SYMBOLS)},
        **{name: getattr(page, name) for name in ("title", "summary", "sections", "settings", "command")},
    )


def render(template: str, *, scripts: Sequence[str], plotly: bytes = b"", **content: Any) -> str:
    """Make the HTML of a page whose policy admits its own style and scripts, and nothing from anywhere else.

    Jinja escapes every text of `content`, in attributes and in JSON too. Bytes of file names that are not UTF-8 are
    shown as escapes.

    Args:
        template: The name of a template here that extends base.html; its style sheet has the same name.
        scripts: The files here that make up the script of the page.
        plotly: The text of plotly, if the page draws by it.
        content: What the template shows: at least title, summary, settings and command.
    """
    style, script = (
        "".join((files(__package__) / name).read_text("utf-8") for name in names)
        for names in (("base.css", f"{template}.css"), scripts)
    )
    policy = {
        **dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'"),
        "script-src": " ".join(_hash(code) for code in (script.encode(), plotly) if code),
        # plotly sets style attributes, adds the style sheet of its maps, and saves a chart as an image by a blob
        "style-src": "'unsafe-inline'" if plotly else _hash(style.encode()),
        "img-src": "data: blob:" if plotly else "data:",
    }
    policy_text = "; ".join(f"{rule} {sources}" for rule, sources in policy.items())
    page = (
        _templates().get_template(f"{template}.html").render(policy=policy_text, style=style, script=script, **content)
    )
    return page.encode("utf-8", "backslashreplace").decode()


@cache
def _plotly() -> tuple[bytes, str]:
    """Read the text of plotly, and compress it for a page."""
    text = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return text, base64.b64encode(gzip.compress(text, mtime=0)).decode()


@cache
def _templates() -> Environment:
    loader = PackageLoader(__package__, "")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":"), "default": asdict}
    return templates


def _hash(code: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"

"""What is embedded and classified, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Item:
    """One thing to embed and classify: an image file or a text."""

    name: str  # as shown and written: a path as the user would type it, or the row of a table
    label: str | None = None
    path: Path | None = None
    text: str | None = None


@dataclass(frozen=True)
class Problem:
    """What was left out, and why."""

    name: str
    kind: str  # a few words, counted in summaries: "truncated image", "not an image", "empty file", "too large", ...
    detail: str = ""

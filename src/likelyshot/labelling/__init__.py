"""Labelling a pile in the browser: rounds of a few clicks, with a classification in between."""

from likelyshot.labelling.selection import Suggestion, next_to_label
from likelyshot.labelling.session import Labelling, label

__all__ = ["Labelling", "Suggestion", "label", "next_to_label"]

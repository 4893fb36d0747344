"""The one exception that a user can cause, and words for its messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from typing import Any


class InputError(ValueError):
    """Input that cannot be used: the message says what was expected, what was given, and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and list all of them.

    >>> nearest("mlll", ["mll", "cosine"])
    "did you mean 'mll'? Known: cosine, mll"
    >>> nearest("MLL", ["mll", "cosine"])
    "did you mean 'mll'? Known: cosine, mll"
    """
    names = sorted(known)
    written = {each.lower(): each for each in names}
    close = difflib.get_close_matches(str(name).lower(), written, n=1)
    hint = f"did you mean {written[close[0]]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names)}"


def few(names: Iterable[str]) -> str:
    """Quote the first three names, and show if there are more.

    >>> few(["a", "b", "c", "d"])
    "'a', 'b', 'c', ..."
    """
    quoted = [repr(name) for name in names]
    return ", ".join(quoted[:3] + ["..."] * (len(quoted) > 3))


def shown(value: Any) -> str:
    """Show a value in a message; a number of a thousand digits is cut short, and so is a long list."""
    try:
        text = str(value) if isinstance(value, Real) else repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        text = "a very large number"
    return text if len(text) <= 80 else f"{text[:77]}..."

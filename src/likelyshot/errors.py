"""The one exception that a user can cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used: the message says what was expected, what came, and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and which there are.

    >>> nearest("mlll", ["mll", "cosine"])
    "did you mean 'mll'? Known: cosine, mll"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names)}"

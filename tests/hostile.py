"""Documents that differ from a valid one in a single place, for tests of readers."""

from __future__ import annotations

import json

MARK = "the place of the change"
REPLACEMENTS = (
    *(
        "null",
        "true",
        '"x"',
        '""',
        '"\\u0000"',
        "-1",
        "0",
        "2",
        "0.5",
        "1e308",
        "9" * 30,
        "[]",
        "[null]",
        "{}",
        '{"x": 1}',
    ),
    *("1e400", "NaN", "-Infinity", "9" * 5000),
)


def variants(document):
    """Yield where the change is and the changed document as bytes, for every field and the first item of every list."""
    document = json.loads(json.dumps(document))
    for place in list(_places(document)):
        parent, last = document, place[-1]
        for key in place[:-1]:
            parent = parent[key]
        value, whole = parent[last], list(parent.items()) if isinstance(parent, dict) else parent[:]
        parent[last] = MARK
        text = json.dumps(document)
        deep = ("[" * 100_000,) if len(place) == 1 else ()
        for replacement in REPLACEMENTS + deep:
            yield f"{place} = {replacement[:20]}", text.replace(json.dumps(MARK), replacement).encode()
        del parent[last]
        yield f"without {place}", json.dumps(document).encode()
        parent.clear()
        parent.update(whole) if isinstance(parent, dict) else parent.extend(whole)
        assert parent[last] == value


def _places(value, before=()):
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, below in items:
        yield (*before, key)
        yield from _places(below, (*before, key))

"""Tables from files (TOML, JSON) read as typed structs: a wrong key, type or size is an error in plain words."""

from __future__ import annotations

import re
import reprlib
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from likelyshot.errors import InputError, nearest

T = TypeVar("T")

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}
BOUNDS = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below"}


def convert(kind: type[T], table: Any, where: str) -> T:
    """Convert a table to a msgspec struct, or raise InputError.

    Args:
        kind: A subclass of msgspec.Struct.
        table: Nested dictionaries and lists, as tomllib and json give them.
        where: What the table is, for the error: "the recipe".

    >>> class Point(msgspec.Struct, forbid_unknown_fields=True):
    ...     height: float = 0.0
    >>> convert(Point, {"height": 2}, "the map")
    Point(height=2.0)
    >>> convert(Point, {"heigth": 2}, "the map")
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown key 'heigth' in the map: did you mean 'height'? Known: height
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InputError(_sentence(str(error), kind, table, where)) from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply: remove the inner tables and lists") from None


def _sentence(message: str, kind: Any, table: Any, where: str) -> str:
    """Say in plain words what msgspec says, with the value that was given."""
    place = re.search(r" - at `\$((?:\.\w+|\[\d+\])*)(?:\[\.\.\.\])*`$", message)
    problem = message[: place.start()] if place else message
    steps = re.findall(r"\.(\w+)|\[(\d+)\]", place[1] if place else "")
    name = ".".join(key for key, _ in steps if key)
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        known = _field(kind, steps).__struct_fields__
        key = f"{name}.{unknown[1]}" if name else unknown[1]
        return f"unknown key {key[:80]!r} in {where}: {nearest(unknown[1][:80], known)}"
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        key = ".".join(filter(None, (name, missing[1])))
        return f"the key {key!r} is missing in {where}: it is incomplete, or of another kind"
    value = table
    for key, index in steps:
        value = value[int(index)] if index else value[key]
    got = reprlib.repr(value)  # short, also of what is long or deep
    if problem.startswith("Invalid enum value"):
        options = [str(option) for option in get_args(_field(kind, steps))]
        return f"{name} in {where} has the unknown value {got}: {nearest(str(value)[:80], options)}"
    if expected := re.match(r"Expected `([\w| ]+)`(?: (>=|>|<=|<) (\S+))?( of length \d+)?", problem):
        bound = f" {BOUNDS[expected[2]]} {expected[3].removesuffix('.0')}" if expected[2] else ""
        word = " or ".join(WORDS.get(each, each) for each in expected[1].split(" | "))
        return f"expected {word}{bound}{expected[4] or ''} for {name} in {where}, got {got}: change it"
    return f"{name} in {where} has a wrong value, {got} ({problem}): change it"


def _field(kind: Any, steps: list[tuple[str, str]]) -> Any:
    for key, _ in steps:
        kind = get_type_hints(kind)[key] if key else kind
    return kind

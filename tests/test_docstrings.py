"""The docstring of everything in the reference says what each parameter means."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import likelyshot
from likelyshot import functional
from likelyshot.methods import METHODS

API = Path(__file__).parent.parent / "docs" / "api"

#: What every method takes: a line `Shapes: ...` says enough of these.
SHARED = {"support", "labels", "query", "n_ways"}


def in_section(docstring: str) -> set[str]:
    """Collect the names that `Args:`, or a section `Parameters` of NumPy's style, explains."""
    google = re.search(r"^Args:\n((?: .*\n?|\n(?= ))+)", docstring, re.MULTILINE)
    numpy = re.search(r"^Parameters\n-+\n((?:.*\n)*?)(?=.+\n---|>>>|\Z)", docstring + "\n", re.MULTILINE)
    heads = re.findall(r"^    ([\w*]+): \S", google[1], re.MULTILINE) if google else []
    heads += re.findall(r"^([\w*, ]+) : \S", numpy[1], re.MULTILINE) if numpy else []
    return {name.strip("* ") for head in heads for name in head.split(",")}


def in_shapes(docstring: str) -> set[str]:
    """Collect the names of tensors that `Shapes:` explains."""
    shapes = re.search(r"Shapes: ((?:.+\n?)+)", docstring)
    return SHARED | set(re.findall(r"(\w+) \(", shapes[1])) if shapes else set()


def wrong(function, docstring: str) -> list[str]:
    """List the parameters that are not explained, and the names that are explained but are no parameters."""
    parameters = set(inspect.signature(function).parameters) - {"self"}
    section = in_section(inspect.cleandoc(docstring))
    missing = parameters - section - in_shapes(docstring)
    return sorted([f"{name} is missing" for name in missing] + [f"{name} is unknown" for name in section - parameters])


def functions_of(public):
    """Go through a function, or a class and its public methods."""
    yield public
    for name, member in inspect.getmembers(public, inspect.isroutine) if inspect.isclass(public) else ():
        if not name.startswith("_") and str(getattr(member, "__module__", "")).startswith("likelyshot"):
            yield member


def reference():
    """Go through what the reference documents."""
    yield from (getattr(likelyshot, name) for name in likelyshot.__all__ if name != "InputError")  # it takes a text
    yield from METHODS.values()
    text = "\n".join(page.read_text() for page in API.glob("*.md"))
    for module, name in re.findall(r"^\.\. auto(?:class|function):: (likelyshot[\w.]*)\.(\w+)$", text, re.MULTILINE):
        yield getattr(importlib.import_module(module), name)
    for name in {module.name for module in pkgutil.iter_modules(functional.__path__)} - set(functional.ALIASES):
        module = importlib.import_module(f"likelyshot.functional.{name}")
        own = [one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__]
        yield from (one for one in own if callable(one) and not one.__name__.startswith("_"))


FUNCTIONS = {function.__qualname__: function for public in reference() for function in functions_of(public)}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_parameter_is_explained(name):
    assert wrong(FUNCTIONS[name], FUNCTIONS[name].__doc__ or "") == []


def test_parameters_that_are_missing_or_unknown_are_found():
    def function(x, y, *z, w): ...

    explained = (
        "Do it.\n\n    Shapes: x (n, d) -> (n,).\n\n    Args:\n        y: A number.\n            With v: more.\n"
    )
    assert wrong(function, explained + "        *z: Numbers.\n        w: Weight.\n") == []
    assert wrong(function, explained + "        u: Weight.\n") == ["u is unknown", "w is missing", "z is missing"]

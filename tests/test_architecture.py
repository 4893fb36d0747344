"""Imports point down only, and adding a method is one file, one dict entry, one docs line."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import likelyshot
from likelyshot import functional
from likelyshot.methods import METHODS

ROOT = Path(likelyshot.__file__).parent
DOCS = Path(__file__).parent.parent / "docs"

#: The rooms of the package: a module may import from its own room and from those before it.
ROOMS = [
    "errors",
    "machine",
    "workers",
    "functional",
    "data",
    "methods",
    "encoders",
    "heads",
    "evaluation",
    "confidence",
    "estimators",
    "report",
    "own_data",
    "labelling",
    "training",
    "cli",
    "__main__",
]


def room(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("likelyshot"):
            names = (
                [f"likelyshot.{alias.name}" for alias in node.names] if node.module == "likelyshot" else [node.module]
            )
            yield from (name for name in names if name != "likelyshot.__version__")


def test_imports_point_down():
    for path in sorted(ROOT.rglob("*.py")):
        if path == ROOT / "__init__.py":
            continue
        mine = "likelyshot." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for other in imports(path):
            assert ROOMS.index(room(other)) <= ROOMS.index(room(mine)), f"{mine} imports {other}"


def test_older_modules_give_the_same_functions_and_nothing_here_imports_them():
    aliases = {f"likelyshot.functional.{name}" for name in functional.ALIASES}
    for alias in aliases:
        module = importlib.import_module(alias)
        assert all(getattr(module, name).__module__ not in aliases for name in module.__all__)
    assert not aliases & {other for path in ROOT.rglob("*.py") for other in imports(path)}


def test_every_name_at_the_top_is_a_room():
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert names - {"__init__"} == set(ROOMS)


def test_import_is_light():
    heavy = ["torch", "numpy", "sklearn", "matplotlib", "pyarrow", "typer"]
    script = f"import sys, likelyshot; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_public_names_are_there():
    for name in likelyshot.__all__:
        assert getattr(likelyshot, name) is not None
    with pytest.raises(AttributeError, match="no attribute"):
        likelyshot.nothing  # noqa: B018


def test_a_method_is_one_file_one_entry_and_one_docs_line():
    listed = (DOCS / "methods.md").read_text()
    for name, function in METHODS.items():
        assert function.__name__ == name
        assert function.__module__ == f"likelyshot.methods.{name}"
        assert "Paper: " in function.__doc__
        assert "Shapes: " in function.__doc__
        assert sum(line.startswith(f"| `{name}` ") for line in listed.splitlines()) == 1, f"{name} in docs/methods.md"
    source = (ROOT / "methods" / "__init__.py").read_text()
    assert all(source.count(f"    {name}: Facts(") == 1 for name in METHODS)
    files = {path.stem for path in (ROOT / "methods").glob("*.py")} - {
        "__init__",
        "calibration",
        "binding",
        "facts",
    }
    assert files == set(METHODS)


def test_no_two_classes_or_dicts_of_one_name_mean_different_things():
    places: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict | ast.DictComp):
                names = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (name.id for name in names if isinstance(name, ast.Name)):
                    places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert several.pop("Block")  # of several networks: what each of them repeats
    assert several == {}


def test_a_command_parses_calls_and_prints_in_less_than_60_lines():
    helpers = {"__init__", "own_data", "shared", "tables"}
    for path in sorted(ROOT.glob("cli/*.py")):
        if path.stem not in helpers:
            functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
            docstring, *body = next(node.body for node in functions if node.name == path.stem)
            assert body[-1].end_lineno - docstring.end_lineno < 60, path.stem

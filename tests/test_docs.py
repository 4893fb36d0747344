"""What README and docs print exists: code compiles, its imports resolve, commands parse, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import typer.main

import likelyshot
from likelyshot.cli import app, spread

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*GUIDES, *sorted((ROOT / "docs").glob("results/*.md")), *sorted((ROOT / "docs").glob("decisions/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = typer.main.get_command(app)


def blocks(path, *languages):
    """Give the fenced blocks of a page in one of these languages, with their lines."""
    text = path.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match[1] in languages:
            yield f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 2}", match[2]


PYTHON = [pytest.param(code, id=where) for path in PAGES for where, code in blocks(path, "python")]
PYTHON += [pytest.param(path.read_text(), id=f"examples/{path.name}") for path in sorted(ROOT.glob("examples/*.py"))]


@pytest.mark.parametrize("code", PYTHON)
def test_python_compiles_and_its_imports_resolve(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "likelyshot":
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("start", ["from likelyshot import FewShotClassifier", "from likelyshot import Dirichlet"])
def test_python_of_the_readme_runs_as_printed(start, tmp_path, monkeypatch, capsys):
    (code,) = [code for _, code in blocks(ROOT / "README.md", "python") if code.startswith(start)]
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6).repeat(60)
    vectors = torch.rand(6, 8, generator=generator)[labels] * torch.rand(360, 8, generator=generator)
    likelyshot.Features.from_arrays(vectors, labels).save("F.safetensors")
    given = {"X_support": vectors[:18].numpy(), "y_support": labels[:18].numpy(), "X": vectors, "X_pile": vectors}
    exec(compile(code, "README.md", "exec"), given)  # our own page
    printed = capsys.readouterr().out
    assert "over 10000 tasks" in printed if "print(" in code else len(given["clf"].classes_) == 6


def command_lines():
    """Give every command of likelyshot that a page prints, and whether it is whole: in a block, not inline."""
    for path in PAGES:
        printed = []
        for where, block in blocks(path, "", "sh", "bash", "shell", "console"):
            lines = block.replace("\\\n", " ").splitlines()
            printed += [(where, line.strip().removeprefix("$ "), True) for line in lines]
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        inline = re.findall(r"(?<!`)`(likelyshot [^`]+)`(?!`)", text)
        printed += [(str(path.relative_to(ROOT)), " ".join(line.split()), False) for line in inline]
        for where, line, whole in printed:
            if match := re.search(r"(?:^|\| |-m )(likelyshot [a-z].*)", line):
                yield pytest.param(match[1], whole, id=f"{where} {match[1]}")


def parse(line, whole=True):
    """Parse a command as a shell would, up to a pipe, and run nothing; raise an error of its usage."""
    words = spread(shlex.split(line, comments=True)[1:])
    end = next((place for place, word in enumerate(words) if word in ("|", ">", "&&", ";", "...")), len(words))
    context = COMMANDS.make_context("likelyshot", words[:end])
    name, command, rest = COMMANDS.resolve_command(context, words[:end])
    try:
        command.make_context(name, rest, parent=context)
    except Exception as error:  # of typer's own click, or of click, by its version
        if whole or type(error).__name__ != "MissingParameter":
            raise


@pytest.mark.parametrize(("line", "whole"), list(command_lines()))
def test_commands_parse(line, whole):
    parse(line, whole)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("likelyshot swep", "swep"),
        ("likelyshot sweep --gird lambda_max=1,2", "--gird"),
        ("likelyshot sweep --ways x", "integer"),
        ("likelyshot fit", "support"),
    ],
)
def test_the_test_of_commands_can_fail(line, complaint):
    with pytest.raises(Exception, match=complaint):
        parse(line)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (path.parent / target).exists()] == []


def test_extras_that_pages_install_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for path in PAGES for name in re.findall(r"likelyshot\[([\w,]+)\]", path.read_text(encoding="utf-8"))}
    assert {name for names in named for name in names.split(",")} <= set(extras)


def test_the_citation_names_this_version():
    assert f"\nversion: {likelyshot.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_ci_runs_the_versions_that_the_package_names():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [version for line in classifiers if re.fullmatch(r"\d\.\d+", version := line.split(" :: ")[-1])]
    matrix = re.search(r"python-version: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    assert named == re.findall(r'"([\d.]+)"', matrix[1])


def test_every_licence_of_the_expression_has_its_text():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [path.stem for path in ROOT.glob("LICENSES/*.txt")]
    assert sorted(project["license"].split(" AND ")) == sorted(["MIT", *texts])
    packaged = (ROOT / "src/likelyshot/data/packaged").glob("*.safetensors")
    terms = "".join(path.read_text() for path in ROOT.glob("LICENSES/*.txt"))
    assert [path.name for path in packaged if f"likelyshot/data/packaged/{path.name}" not in terms] == []


def test_the_contents_of_the_site_name_every_guide():
    contents = (ROOT / "docs/index.md").read_text().splitlines()
    assert [path.stem for path in ROOT.glob("docs/*.md") if path.stem not in {*contents, "index"}] == []


def test_the_reference_names_everything_public():
    reference = "\n".join(path.read_text() for path in ROOT.glob("docs/api/*.md"))
    documented = set(re.findall(r"\.\. auto(?:class|function|exception):: (\w+)$", reference, re.MULTILINE))
    assert documented == {*likelyshot.__all__}

"""What README and docs name exists: imports resolve, commands in sentences parse, links lead somewhere.

tests/test_printed_blocks.py runs what they print in blocks.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys

import pytest

import likelyshot
from printed import FENCE, PAGES, ROOT, blocks, parse

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYTHON = [
    pytest.param(code, id=where) for path in PAGES for where, language, code in blocks(path) if language == "python"
]
PYTHON += [pytest.param(path.read_text(), id=f"examples/{path.name}") for path in sorted(ROOT.glob("examples/*.py"))]


@pytest.mark.parametrize("code", PYTHON)
def test_python_compiles_and_its_imports_resolve(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "likelyshot":
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def commands_in_sentences():
    for path in PAGES:
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for line in re.findall(r"(?<!`)`(likelyshot [a-z][^`]*)`(?!`)", text):
            yield pytest.param(" ".join(line.split()), id=f"{path.relative_to(ROOT)} {line}")


@pytest.mark.parametrize("line", list(commands_in_sentences()))
def test_commands_in_sentences_parse(line):
    words = shlex.split(line)[1:]
    parse(words[: words.index("...")] if "..." in words else words, whole=False)


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
        parse(shlex.split(line)[1:])


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
    packaged = [p for p in (ROOT / "src/likelyshot/data/packaged").iterdir() if p.suffix in (".safetensors", ".onnx")]
    terms = "".join(path.read_text() for path in ROOT.glob("LICENSES/*.txt"))
    assert [path.name for path in packaged if f"likelyshot/data/packaged/{path.name}" not in terms] == []


def test_the_contents_of_the_site_name_every_guide():
    contents = (ROOT / "docs/index.md").read_text().splitlines()
    assert [path.stem for path in ROOT.glob("docs/*.md") if path.stem not in {*contents, "index"}] == []


def test_the_reference_names_everything_public():
    reference = "\n".join(path.read_text() for path in ROOT.glob("docs/api/*.md"))
    documented = set(re.findall(r"\.\. auto(?:class|function|exception):: (\w+)$", reference, re.MULTILINE))
    assert documented == {*likelyshot.__all__}

"""The documentation site: the Markdown of docs/, the README, the docstrings and the examples. Built by `make docs`."""

from __future__ import annotations

import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import jinja2
import typer.main
from sphinx.application import Sphinx

import likelyshot
from likelyshot import functional
from likelyshot.cli import app as commands
from likelyshot.methods import METHODS

ROOT = Path(__file__).parent.parent

project = "likelyshot"
author = "The likelyshot developers"
copyright = f"2026 {author}"
version = release = likelyshot.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py"]
default_role = "code"  # docstrings write `name`, as Markdown does
smartquotes = False
python_maximum_signature_line_length = 88
html_theme = "furo"
html_title = f"likelyshot {release}"
html_copy_source = html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_exclude = ".linenos, .gp, .go"

# Markdown: pages link to each other, and to headings, as they do where the repository is read.
myst_heading_anchors = 3

# Docstrings. Names of other libraries have no page here: the site is built offline, without their inventories.
autoclass_content = "class"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Labels", "Method", "Plan", "Progress")}
autodoc_preserve_defaults = True
autosummary_generate = False
nitpick_ignore_regex = [("py:.*", r"(?!likelyshot).*"), ("py:class", r"likelyshot\..*")]

# The examples run, and their pictures are kept. Nothing here knows an address of the project.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "image_scrapers": ("matplotlib",),
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
    "copyfile_regex": r".*\.rst",
}


def root_page(name: str) -> str:
    """Give a page of the root of the repository, its links rewritten to hold in docs/."""

    def rewrite(match: re.Match[str]) -> str:
        target = match[1]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        if target in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            return f"](/{target.lower().replace('readme', 'index')})"
        return f"](/{target.removeprefix('docs/')})" if target.startswith("docs/") else f"](path:/../{target})"

    return re.sub(r"\]\(([^)\s]+)\)", rewrite, (ROOT / name).read_text(encoding="utf-8"))


def command_reference() -> str:
    """Give the help of every command as Markdown: what it does, its arguments and its options."""
    group = typer.main.get_command(commands)
    lines = []
    for name, command in sorted(group.commands.items()):
        context = command.make_context(name, [], resilient_parsing=True)
        lines += [
            f"## likelyshot {name}",
            "",
            inspect.cleandoc(command.help or ""),
            "",
            "| option | meaning |",
            "|---|---|",
        ]
        for parameter in command.get_params(context):
            if record := parameter.get_help_record(context):
                lines.append("| `{}` | {} |".format(*(" ".join(cell.split()).replace("|", "\\|") for cell in record)))
        lines.append("")
    return "\n".join(lines)


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill in what a page takes from elsewhere: a page of the root, the methods, the commands."""
    if docname == "decisions/README":  # a list of links where the repository is read; a part of the contents here
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"
    if docname in ("index", "contributing", "changelog") or docname.startswith("api/"):
        modules = {module.name for module in pkgutil.iter_modules(functional.__path__)}
        names = sorted(modules - set(functional.ALIASES))
        known = {"root_page": root_page, "command_reference": command_reference}
        page = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(source[0])
        source[0] = page.render(methods=METHODS, functional=names, **known)
        for path in ROOT.glob("*.md"):
            app.env.note_dependency(str(path))


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to every estimator, and fields without words of their own."""
    added = re.fullmatch(r"(set|get)_\w+_(request|routing)", name)
    return True if added or str(getattr(obj, "__doc__", "")).startswith("Alias for field") else None


def short_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Write `...` for a default that a dataclass makes, since `<factory>` is not Python; shorten names of types."""
    arrays = r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[[^]]*\]\]"
    aliases = r"TypeAliasForwardRef\('(\w+)'\)"
    short = [re.sub(aliases, r"\1", re.sub(arrays, "~numpy.ndarray", text or "")) for text in (signature, returns)]
    return (short[0].replace("<factory>", "..."), short[1] or None) if signature else None


def plain_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Write what reStructuredText would read otherwise: `Name: words` of an attribute, `name_` in a type, `Paper:`."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(": ", " – ")
    lines[:] = [re.sub(r"(?<=\w)_(?=[,)])", r"\\_", line) if re.match(r"\w+ : ", line) else line for line in lines]
    lines[:] = [part for line in lines for part in (["", line] if re.match("(Paper|Shapes): ", line) else [line])]


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("source-read", fill_in)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)  # before napoleon

"""The blocks of code that README and docs print, and a shell that runs them cheaply.

Bash runs a block as it is printed. The programs that it calls (likelyshot, python, pip, make, torchrun) are answered by
this process, so that no block pays for another start of Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import typer.main

from likelyshot.cli import app, spread

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [*GUIDES, *sorted((ROOT / "docs").glob("results/*.md")), *sorted((ROOT / "docs").glob("decisions/*.md"))]
EXTRAS = {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]}
COMMANDS = typer.main.get_command(app)
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What a program is called as: its words, the folder it runs in, and what is piped into it.
Program = Callable[[list[str], Path, str], int]

#: Sends its name, its folder and its words to the test, and exits as that says. A last word - means: read stdin.
CLIENT = """#!/bin/bash
[[ "${@: -1}" == - ]] && cat > "$PRINTED_STDIN"
printf '%s\\0' "$(($# + 2))" "${0##*/}" "$PWD" "$@" >&"$PRINTED_ASK"
read -r code <&"$PRINTED_ANSWER"
exit "$code"
"""


class Block(NamedTuple):
    """A fenced block of a page."""

    where: str  # the page and the line of its first line
    language: str
    code: str


def blocks(path: Path) -> list[Block]:
    """Give the fenced blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 2}", match[1], match[2])
        for match in FENCE.finditer(text)
    ]


def parse(words: Sequence[str], whole: bool = True) -> None:
    """Parse the words of a command of likelyshot, and run nothing; raise an error of its usage.

    Args:
        words: Those after likelyshot.
        whole: Whether nothing may be missing.
    """
    words = spread(words)
    context = COMMANDS.make_context("likelyshot", [*words])
    name, command, rest = COMMANDS.resolve_command(context, [*words])
    try:
        command.make_context(name, rest, parent=context)
    except Exception as error:  # of typer's own click, or of click, by its version
        if whole or type(error).__name__ != "MissingParameter":
            raise


class Shell:
    """Bash, with programs that are functions of this process."""

    def __init__(self, folder: Path, programs: Mapping[str, Program]) -> None:
        self.folder, self.programs = folder, programs
        self._bin, self._stdin = folder.parent / "bin", folder.parent / "stdin"
        self._bin.mkdir()
        for name in programs:
            (self._bin / name).write_text(CLIENT)
            (self._bin / name).chmod(0o755)

    def run(self, code: str, variables: str = "") -> int:
        """Run a block; give its exit code. The first command that fails ends it.

        Args:
            code: The block.
            variables: Lines to run before it, such as the assignments of the blocks before.
        """
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        environment = {
            **os.environ,
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "PRINTED_STDIN": str(self._stdin),
            "PRINTED_ASK": str(ask),
            "PRINTED_ANSWER": str(answer),
        }
        bash = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"{variables}\n{code}"],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(ask, answer),
        )
        os.close(ask)
        os.close(answer)
        try:
            for name, folder, *words in _requests(asked):
                piped = self._stdin.read_text() if words[-1:] == ["-"] else ""
                os.write(answered, b"%d\n" % self.programs[name](words, Path(folder), piped))
        finally:
            os.close(asked)
            os.close(answered)  # whoever still waits for an answer ends
            code_of_bash = bash.wait(10)
        return code_of_bash


def _requests(pipe: int) -> Iterator[Sequence[str]]:
    """Give the words of every request, until nobody can send another."""
    rest = b""
    while piece := os.read(pipe, 65536):
        *words, rest = (rest + piece).split(b"\0")
        while words and len(words) > int(words[0]):
            count = int(words[0])
            yield [word.decode() for word in words[1 : count + 1]]
            words = words[count + 1 :]
        rest = b"\0".join([*words, rest])

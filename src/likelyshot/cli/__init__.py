"""The command line: every command parses, calls and prints."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from likelyshot import __version__
from likelyshot.cli.classify import classify
from likelyshot.cli.evaluate import evaluate
from likelyshot.cli.explore import explore
from likelyshot.cli.extract import extract
from likelyshot.cli.fit import fit
from likelyshot.cli.label import label
from likelyshot.cli.list_methods import list_methods
from likelyshot.cli.merge import merge
from likelyshot.cli.predict import predict
from likelyshot.cli.report import report
from likelyshot.cli.reproduce import reproduce
from likelyshot.cli.shared import SUFFIXES, brief, printable
from likelyshot.cli.sweep import sweep
from likelyshot.cli.train import train
from likelyshot.errors import InputError

HELP = "Label a pile of images, texts or vectors, given a few labelled examples of each class."
EPILOG = """Start with: likelyshot classify --demo

Your own images: likelyshot classify --support labelled/ --query pile/ --gallery gallery.html

Which method? Leave --method out, and classify chooses by the size of the pile. Transductive methods, such as
likelihood_mixture and mll_transductive, learn from the whole pile; they help most with one or two labels per class.
likelihood, mll and logistic classify every item on its own. See likelyshot list.
"""

#: What typer raises for wrong usage; some versions of it have their own copy of click.
UsageError: Any = typer.BadParameter.__base__
#: How several files are given to commands that take one path; a shell makes many of a pattern without quotes.
QUOTED = " To give several files, name their folder, or put quotes around the pattern: 'pile/*.jpg'."
SEVERAL_FILES = {
    **dict.fromkeys(("classify", "predict", "label"), QUOTED),
    **dict.fromkeys(("explore", "extract"), " To give several files, name their folder."),
}
#: Characters of a word, and of an error about usage, that are shown.
LONGEST, MOST = 80, 240


def with_plain_values(parameters: list[Any]) -> list[Any]:
    """Show no type for flags in the help, and plain words for lists."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif getattr(parameter, "multiple", False) and parameter.metavar is None:
            parameter.metavar = "VALUE ..."
    return parameters


@contextlib.contextmanager
def short_errors(several: str = "") -> Iterator[None]:
    """Shorten what an error about usage repeats of the arguments, and say how several files are given."""
    try:
        yield
    except UsageError as error:
        words = [word if len(word) <= LONGEST else f"{word[: LONGEST - 3]}..." for word in error.message.split(" ")]
        text = printable(" ".join(words))
        extra = several if "unexpected extra argument" in text else ""
        error.message = f"{text if len(text) <= MOST else f'{text[: MOST - 3]}...'}{extra}"
        raise


class Command(TyperCommand):
    """A command with help in plain words, and short errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        with short_errors(SEVERAL_FILES.get(self.name or "", "")):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters."""
        return with_plain_values(super().get_params(ctx))


class Commands(TyperGroup):
    """All commands, with help in plain words, and short errors."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments before the command."""
        with short_errors():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command."""
        with short_errors():
            return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the parameters."""
        return with_plain_values(super().get_params(ctx))


app = typer.Typer(
    cls=Commands,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    rich_markup_mode="markdown",
)

#: Options that take several values, as in `--method mll cosine`, or repeated.
SEVERAL = ("--method", "-m", "--shots", "--param", "-p", "--grid", "--set", "--export")
#: Options whose values are paths, and the commands that have no other paths to confuse them with.
PATHS, ALONE = ("--support", "-s"), ("classify", "fit")
#: What may follow --ray.
ADDRESS = re.compile(r"auto|local|(ray://)?[^/\\\s=]+:[^/\\\s=]*")


def main() -> None:
    """Run the command line. Exit codes: 0 for success, 2 for wrong input, 1 for a bug."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be in the encoding of the terminal
    try:
        app(spread(sys.argv[1:]))
    except InputError as error:
        typer.echo(f"likelyshot: {brief(str(error))}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.stdout = None  # what is left in its buffer cannot be written either
            typer.echo(f"likelyshot: cannot write all of the output ({error.strerror}): free some space", err=True)
        elif isinstance(error.filename, (str, bytes)):  # a name that is too long, or a folder of somebody else
            place = brief(os.fsdecode(error.filename))
            typer.echo(f"likelyshot: cannot use the path {place} ({error.strerror}): choose another one", err=True)
        else:
            raise
        sys.exit(2)


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeat the flag before every further value of an option that takes several values.

    A path ends the list, unless the option takes paths. Numbers of shots may have commas between them.

    >>> spread(["evaluate", "F", "--method", "mll", "cosine", "--shots", "1", "5", "--json"])
    ['evaluate', 'F', '--method', 'mll', '--method', 'cosine', '--shots', '1', '--shots', '5', '--json']
    >>> spread(["evaluate", "F", "--shots", "1,5"])
    ['evaluate', 'F', '--shots', '1', '--shots', '5']
    >>> spread(["classify", "-s", "labelled/", "corrections.csv", "-q", "pile/"])
    ['classify', '-s', 'labelled/', '-s', 'corrections.csv', '-q', 'pile/']
    >>> spread([])
    []
    """
    spread_out: list[str] = []
    option, has_value = "", False
    if len(arguments) > 1 and arguments[0] in ALONE and not arguments[1].startswith("-"):
        query = ["--query", *(arguments[2:3] or ["PILE"])] if arguments[0] == "classify" else []
        right = shlex.join(["likelyshot", arguments[0], "--support", arguments[1], *query])
        raise InputError(f"expected labelled examples after --support, got {arguments[1]!r} without it: {right}")
    several = (*SEVERAL, *PATHS) if arguments and arguments[0] in ALONE else SEVERAL
    for argument in _with_address(arguments):
        if argument.startswith("-") and not argument[1:].isdigit():
            option, has_value = (argument, False) if argument in several else ("", False)
        elif option and has_value and (option in PATHS or not _is_path(argument)):
            spread_out.append(option)
        elif option and has_value:
            option = ""
        else:
            has_value = True
        first, *more = argument.split(",") if option == "--shots" else [argument]
        spread_out += [first, *(word for value in more for word in (option, value))]
    return spread_out


def _with_address(arguments: Sequence[str]) -> list[str]:
    """Add an address after a bare --ray: a cluster on this machine.

    >>> _with_address(["classify", "--ray", "-s", "few"]), _with_address(["sweep", "--ray", "head:6379"])
    (['classify', '--ray', 'local', '-s', 'few'], ['sweep', '--ray', 'head:6379'])
    >>> _with_address(["classify", "--ray", "head"]), _with_address(["sweep", "--ray", "features"])
    (['classify', '--ray', 'head'], ['sweep', '--ray', 'local', 'features'])
    """
    result: list[str] = []
    alone = bool(arguments) and arguments[0] in ALONE
    for place, argument in enumerate(arguments):
        following = "".join(arguments[place + 1 : place + 2])
        result.append(argument)
        is_address = bool(ADDRESS.fullmatch(following)) or (alone and following[:1] not in ("", "-"))
        if argument == "--ray" and not is_address:
            result.append("local")
    return result


def _is_path(argument: str) -> bool:
    """Tell a features file, which need not exist, from a method, a number or NAME=VALUE."""
    path = Path(argument)
    if re.match(r"\w\w+:", argument):  # a method with the checkpoint of its head; a drive has one letter
        return False
    looks = "=" not in argument and (path.suffix.lower() in SUFFIXES or len(path.parts) > 1)
    return looks or path.is_file()


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Label a pile of images, texts or vectors, given a few labelled examples of each class."""
    if show:
        typer.echo(f"likelyshot {__version__}")
        raise typer.Exit


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Your own data": (classify, fit, predict, label),
    "Experiments": (reproduce, evaluate, sweep, report, explore),
    "Networks": (train, extract),
    "Large piles": (merge,),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.command("list", cls=Command, rich_help_panel="Experiments")(list_methods)

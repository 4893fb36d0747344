"""What commands share: their options, the screen with its bar, and figures with their intervals."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.data.results import Difference
    from likelyshot.data.tasks import Balanced, Dirichlet
    from likelyshot.workers import Part

#: Called with a number of steps; returns what to call as steps are done, and what to call with the name of the stage.
Start = Callable[[int], tuple[Callable[[int], None], Callable[[str], None]]]


class Plan(str, Enum):
    """How the queries of a task are drawn."""

    dirichlet = "dirichlet"
    balanced = "balanced"


#: How queries are drawn unless the user says it.
ALPHA, TOTAL, PER_CLASS = 2.0, 75, 15
#: Seconds between two statements of the speed.
EVERY = 0.25
#: How the names of features files end.
SUFFIXES = (".safetensors", ".npz", ".npy", ".csv", ".tsv", ".parquet", ".pkl", ".pickle", ".plk", ".pt", ".pth")
KINDS = "Features file: .safetensors, .npz, .npy, .csv, .tsv, .parquet, .pkl or .pt"
NetworksArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        help=f"{KINDS}. Or three files, made by networks trained with euclidean, cosine and mll. Default: the packaged "
        "features.",
        show_default=False,
    ),
]
MethodOption = Annotated[
    list[str], typer.Option("--method", "-m", help="One or more methods, or 'all'; likelyshot list shows them.")
]
WaysOption = Annotated[int, typer.Option(help="Number of classes per task.")]
ShotsOption = Annotated[
    list[int], typer.Option(help="Number of labelled examples per class; one table for each number.")
]
QueryOption = Annotated[
    Plan, typer.Option("--query", help="How many queries each class has: different numbers (dirichlet) or the same.")
]
AlphaOption = Annotated[float, typer.Option(help="With dirichlet: the lower, the less balanced.")]
TotalOption = Annotated[int, typer.Option(help="With dirichlet: number of queries per task.")]
PerClassOption = Annotated[int, typer.Option(help="With balanced: number of queries per class.")]
TasksOption = Annotated[int, typer.Option("--tasks", "-n", min=1, help="Number of tasks.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed: the same seed gives the same tasks.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps, ...")]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="NAME=VALUE for every method that has it, or METHOD.NAME=VALUE for one."),
]
SplitOption = Annotated[
    str | None, typer.Option(help="Split of the features file to draw tasks from. Default: test, or the only one.")
]
LabelsOption = Annotated[
    Path | None, typer.Option(help="File with the labels, if the features have none: .npy, or text with one per line.")
]
ValOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="Validation features: combined is calibrated and temperatures are fitted on them. Once for each features "
        "file. Default: the split val, unless it is tested.",
    ),
]
BaseOption = Annotated[
    Path | None,
    typer.Option(
        help="Base features, for methods that need their mean or covariance. Default: the split train, unless it is "
        "tested."
    ),
]
CalibrationOption = Annotated[Path | None, typer.Option(help="Calibration that evaluate -o wrote, for combined.")]
NormaliseOption = Annotated[
    bool, typer.Option("--normalise/--no-normalise", help="Scale feature vectors to length one, where methods allow.")
]
RectifyOption = Annotated[
    bool, typer.Option("--rectify", help="Split signed features x into [relu(x), relu(-x)], which are not negative.")
]
OverlapOption = Annotated[
    bool,
    typer.Option("--overlap", help="Let queries repeat labelled examples, to compare with older code that does."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document to stdout; everything else goes to stderr.")
]
PartOption = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="I/N",
        help="Do only part I of N, such as 2/8, or auto in a job array of Slurm or Kubernetes; likelyshot merge merges "
        "all parts.",
        show_default=False,
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Compute on a Ray cluster: HOST:PORT of its head, auto for the one on this machine, or nothing to start "
        "one. Needs likelyshot[ray].",
        show_default=False,
    ),
]


def check_page(output: Path, *, make_folder: bool = True) -> None:
    """Check that a page can be written, and refuse a name that a browser would not open as a page."""
    from likelyshot.data.files import output_file

    output_file(output, make_folder=make_folder)
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"expected the name of a page that ends in .html, but got {output}: rename it")


def check_kept(output: Path | None, *inputs: Path | None) -> None:
    """Refuse an output that is one of the inputs, which it would replace."""
    for path in inputs:
        if output is not None and path is not None and _are_same(output, path):
            raise InputError(f"expected another place for the output than {path}, which is read: choose another -o")


def _are_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there, or its name has a null
        return False


def queries_of(plan: Plan, total: int, alpha: float, per_class: int) -> Dirichlet | Balanced:
    """Say how queries are drawn, and refuse an option that would have no effect."""
    from likelyshot.data.tasks import Balanced, Dirichlet

    if plan is Plan.balanced and (total, alpha) != (TOTAL, ALPHA):
        raise InputError(
            "expected --per-class for balanced queries, but got --total or --alpha: leave these out, or add --query "
            "dirichlet"
        )
    if plan is Plan.dirichlet and per_class != PER_CLASS:
        raise InputError(
            "expected --total for queries by a Dirichlet distribution, but got --per-class: leave it out, or add "
            "--query balanced"
        )
    return Dirichlet(total, alpha) if plan is Plan.dirichlet else Balanced(per_class)


def part_of(text: str | None) -> Part | None:
    """Read what --part says."""
    from likelyshot.workers import Part

    return None if text is None else Part.parse(text)


def say_part(screen: Console, part: Part, counts: tuple[int, int], folder: Path) -> None:
    """Say that a part of an evaluation is done, and what to do when all are."""
    done, earlier = counts
    before = f"; {earlier} were finished before" if earlier else ""
    command = shlex.join(["likelyshot", "merge", str(folder)])
    screen.print(f"Finished {part}: {done} evaluations{before}. When all parts are finished: {command}", soft_wrap=True)


@contextlib.contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Compute what follows on a Ray cluster, if --ray was given."""
    if address is None:
        yield
        return
    from likelyshot.workers import on_ray

    with on_ray(address):
        yield


def on_terminal() -> bool:
    """Return whether a person sees both standard output and standard error, so that bar and words share a screen."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def console(as_json: bool = False) -> Console:
    """Give the console for words: standard output, or standard error when the former carries data to a pipe."""
    plain: dict[str, Any] = {
        "stderr": as_json and not on_terminal(),
        "markup": False,
        "emoji": False,
        "highlight": False,
    }
    screen = Console(**plain)
    return screen if screen.is_terminal else Console(width=120, **plain)


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))


def print_lines(screen: Console, lines: Iterable[str]) -> None:
    """Print lines of data to standard output; on a terminal they go above the bar, by its console."""
    if on_terminal():
        for line in lines:
            screen.out(line, end="", highlight=False)
    else:
        sys.stdout.writelines(lines)


@contextlib.contextmanager
def running(as_json: bool = False) -> Iterator[tuple[Console, Start]]:
    """Show a progress bar while a command works; Ctrl-C ends with a sentence and exit code 130.

    Yields the console for words and a function that starts a bar. On a terminal both write by one console, which puts
    words above the bar; otherwise the bar is on standard error. Only the bar that moved last is shown, and none when
    its work is done.

    Args:
        as_json: Whether standard output carries data, so that words go to standard error.
    """
    screen = console(as_json)
    bar_screen = screen if on_terminal() else Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=bar_screen,
        transient=True,
        disable=not bar_screen.is_terminal,  # else it would write an empty line at the end
        redirect_stdout=False,  # it may be a pipe that carries data
    )

    def start(total: int) -> tuple[Callable[[int], None], Callable[[str], None]]:
        task = bar.add_task("", total=total, visible=False)
        began = updated = time.monotonic()
        steps, stage = 0, ""

        def advance(done: int) -> None:
            nonlocal steps, updated
            check()
            steps, now = steps + done, time.monotonic()
            if now - began > 1 and now - updated > EVERY:
                updated = now
                bar.update(task, description=f"{stage}, {speed(steps / (now - began))}")
            bar.advance(task, done)
            _show_only(bar, task)

        def describe(text: str) -> None:
            nonlocal stage
            stage = text
            bar.update(task, description=stage)
            _show_only(bar, task)

        return advance, describe

    try:
        with _interruptible() as check, bar:
            yield screen, start
    except KeyboardInterrupt:
        typer.echo("likelyshot: stopped; all files that were written are complete", err=True)
        sys.exit(130)


def speed(steps: float) -> str:
    """Say how many steps a second are done, and by how many workers of a cluster, if there is one.

    >>> speed(0.25), speed(1234.5)
    ('0.2/s', '1,234/s')
    """
    from likelyshot.machine import cluster

    joined = cluster()
    workers = "" if joined is None else f" on {joined.workers} workers"
    return f"{steps:,.{0 if steps >= 10 else 1}f}/s{workers}"


def _show_only(bar: Progress, visible: TaskID) -> None:
    """Hide every task but one, and that one too when it is finished."""
    wrong = [task for task in bar.tasks if task.visible != (task.id == visible and not task.finished)]
    for task in wrong:
        bar.update(task.id, visible=not task.visible)
    if wrong:
        bar.refresh()


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt if Ctrl-C was pressed and had no effect.

    Python drops an exception that is raised while it finalises an object, some modules drop one while they are
    imported, and Ctrl-C can fall into that moment.
    """
    pressed = threading.Event()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    def stop(number: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield check  # ignored, as by nohup, or already taken care of
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield check
    except Exception:  # such as a module whose import was interrupted, and which lacks half of its names
        check()
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def difference(gap: Difference | None) -> Text:
    """Write a paired difference, coloured when its interval does not contain zero."""
    if gap is None:
        return Text("reference", style="dim")
    return Text(str(gap), style=("green" if gap.mean > 0 else "red") if gap.significant else "")


def printable(text: str) -> str:
    """Write characters that a terminal would act upon as their codes.

    >>> printable("cat\\x1b[2J")
    'cat\\\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def brief(text: str) -> str:
    """Shorten words of more than 300 characters, such as paths and names, and write each line so that it is printable.

    >>> len(brief("cannot read " + "a" * 100_000))
    215
    """
    short = re.sub(r"\S{300,}", lambda word: f"{word[0][:100]}...{word[0][-100:]}", text)
    return "\n".join(printable(line) for line in short.split("\n"))

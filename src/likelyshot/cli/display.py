"""What commands print while they run and afterwards."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from likelyshot.data.results import Difference

Start = Callable[[int], tuple[Callable[[int], None], Callable[[str], None]]]


def console(as_json: bool = False) -> Console:
    """Give the console for tables: standard output, or standard error when that carries JSON."""
    plain: dict[str, Any] = {"stderr": as_json, "markup": False, "emoji": False, "highlight": False}
    screen = Console(**plain)
    return screen if screen.is_terminal else Console(width=120, **plain)


def print_json(document: Any) -> None:
    """Print one JSON document to standard output."""
    typer.echo(json.dumps(document, indent=1, allow_nan=False))


def percent(mean: float, ci95: float) -> str:
    """Write a fraction with its interval in percent.

    >>> percent(0.8412, 0.0021)
    '84.12 ± 0.21'
    """
    return f"{100 * mean:.2f} ± {100 * ci95:.2f}"


def difference(gap: Difference | None) -> Text:
    """Write a paired difference, coloured when its interval does not contain zero."""
    if gap is None:
        return Text("reference", style="dim")
    return Text(str(gap), style=("green" if gap.mean > 0 else "red") if gap.significant else "")


@contextlib.contextmanager
def running(as_json: bool) -> Iterator[tuple[Console, Start]]:
    """Show a progress bar on standard error; Ctrl-C ends with a sentence and exit code 130."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

    def start(total: int) -> tuple[Callable[[int], None], Callable[[str], None]]:
        task = bar.add_task("", total=total)

        def advance(done: int) -> None:
            check()
            bar.advance(task, done)

        return advance, lambda stage: bar.update(task, description=stage)

    try:
        with _interruptible() as check, bar:
            yield console(as_json), start
    except KeyboardInterrupt:
        typer.echo("likelyshot: stopped; all files that were written are complete", err=True)
        sys.exit(130)


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt if Ctrl-C was pressed and nothing came of it.

    Python drops an exception that is raised while it finalises an object, and Ctrl-C can fall into that moment.
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
    finally:
        signal.signal(signal.SIGINT, before)

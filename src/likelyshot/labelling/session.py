"""From a pile to its labels in the browser, in one call."""

from __future__ import annotations

import os
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import output_file
from likelyshot.data.items import Item
from likelyshot.encoders.pretrained import Embedder, open_encoder
from likelyshot.errors import InputError
from likelyshot.labelling.desk import Desk
from likelyshot.labelling.exports import export, import_label_studio, read_label_studio
from likelyshot.labelling.journal import Change
from likelyshot.labelling.labels import Labels, check_class, journal_path, none_path
from likelyshot.labelling.things import Things, folder_of, lay_out
from likelyshot.methods.binding import Params
from likelyshot.own_data.class_names import likely_mistakes
from likelyshot.own_data.model import usable_method
from likelyshot.own_data.piles import Pile, read_labelled, read_pile
from likelyshot.own_data.pipeline import DEFAULT_ENCODERS
from likelyshot.own_data.rows import CachePlace, Rows, Stage, gather, repeated, summary

if TYPE_CHECKING:
    from likelyshot.labelling.server import Server

Say = Callable[[str], None]


class Labelling:
    """A pile that is being labelled.

    Args:
        desk: The pile and its labels.
        server: The page, if there is one.
    """

    def __init__(self, desk: Desk, server: Server | None = None) -> None:
        self.desk, self._server = desk, server

    @property
    def address(self) -> str:
        """The address of the page, with its token; empty without a page."""
        return "" if self._server is None else self._server.address

    @property
    def labels(self) -> dict[str, str]:
        """The labels so far, by the names of the items."""
        things, values = self.desk.things, self.desk.labels.values
        named = zip(things.items, things.keys, strict=True)
        return {item.name: values[key].name for item, key in named if key in values and values[key].kind == "label"}

    @property
    def output(self) -> Path:
        """The table of the labels, which is always up to date."""
        return self.desk.labels.output

    def export(self, kind: str) -> str:
        """Write the labels for another tool, beside the table, and say what was written.

        Args:
            kind: "folders", "links", "imagefolder", "label-studio" or "features".
        """
        return export(self.desk, kind)

    def serve(self, browser: bool, say: Say) -> None:
        """Start the page, say where it is, and perhaps open it in the browser.

        Args:
            browser: Whether to open the page in the browser, if there is a screen.
            say: Called with sentences about what happens.
        """
        if self._server is None:
            return
        self._server.start()
        say(f"Labels go to {self.output}, after every click.")
        say(f"Open {self.address} in a browser on this machine; Ctrl-C stops.")
        if browser and _has_screen():
            webbrowser.open(self.address)

    def wait(self) -> None:
        """Wait until Ctrl-C, then stop the page."""
        try:
            while self._server is not None and self._server.alive:
                time.sleep(0.2)
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop the page. The labels are on disk already."""
        if self._server is not None:
            self._server.stop()
        else:
            self.desk.stop()


def label(
    pile: str | Path,
    *,
    classes: Sequence[str] = (),
    support: str | Path | None = None,
    output: str | Path | None = None,
    label_studio: str | Path | None = None,
    label_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    encoder: str | Embedder | None = None,
    method: str | None = None,
    params: Params | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: CachePlace = "user",
    page: bool = True,
    port: int = 0,
    browser: bool = True,
    wait: bool = False,
    stage: Stage | None = None,
    say: Say | None = None,
) -> Labelling:
    """Label a pile in the browser, in rounds of a few clicks; every click is saved at once.

    The page runs on this machine only, in the background unless `wait` is set. Started again with the same output, it
    continues where it stopped.

    Args:
        pile: A folder, a table or a features file, as `classify` takes it.
        classes: Names of classes to begin with; more can be added on the page.
        support: Labelled examples, as `classify` takes them.
        output: The table of labels, .csv. Default: labels.csv in the current folder, or beside the pile if that lies
            elsewhere.
        label_studio: An export of Label Studio (JSON) to import labels from.
        label_column: Column of a table of labelled examples that holds the labels.
        path_column: Column of a table that holds paths of images.
        text_column: Column of a table that holds texts.
        encoder: What embeds images or texts: a name for `open_encoder`, or an encoder.
        method: The method that classifies the pile between the clicks. Default: that of `classify`.
        params: Parameters of the method.
        seed: Seed of all choices.
        device: Where the encoder runs.
        cache: Where vectors are cached: a folder, "user" for the user's cache folder, or None.
        page: Whether to serve a page. Without one, the labels can be read and exported.
        port: Port of the page; 0 for any that is free.
        browser: Whether to open the page in the browser.
        wait: Whether to return only when the page is stopped by Ctrl-C.
        stage: Called with the name and the number of steps of each stage of the work.
        say: Called with sentences about what happens.
    """
    tell: Say = say or (lambda sentence: None)
    server = _server_module() if page else None
    if server is not None and port:
        server.listen(port).close()  # a port in use shows before anything is embedded
    names = [check_class(name) for name in classes]
    if method is not None:
        usable_method(method)  # before anything is embedded
    columns = {"label_column": label_column, "path_column": path_column, "text_column": text_column}
    source = Path(pile)
    read = read_pile(source, **columns)
    table = table_of_labels(source, output)
    examples = None if support is None else read_labelled(support, **columns)
    for sentence in [] if examples is None else likely_mistakes(Counter(map(_class_of, examples.items))):
        tell(sentence)
    imported = None if label_studio is None else read_label_studio(label_studio)
    opened = _encoder(read, examples, encoder, device)
    went_on = journal_path(table).exists()
    things = lay_out(read, source, table, opened, cache=cache, stage=stage)
    if not len(things):
        problems = "; ".join(summary(things.problems))
        raise InputError(f"nothing in the pile can be labelled ({problems}): add other items")
    rows = None
    if examples is not None:
        rows = gather(examples, opened, cache=cache, stage=stage, what="the labelled examples")
        _check_width(rows, things)  # before the table of labels is written
    labels = Labels(table, things.kind, things.columns, things.cells, things.order)
    try:
        outside = None if rows is None else _outside(rows, things, labels)
        for name in dict.fromkeys(map(labels.current_name, names)):
            labels.add_class(f"class at start {labels.version} {name}", name)
        desk = Desk(things, labels, support=outside, method=method, params=params, seed=seed)
    except BaseException:
        labels.close()
        raise
    try:
        if went_on:
            count = sum(value.kind == "label" for value in labels.values.values())
            tell(f"Continuing with {count:,} labels of {labels.output}.")
        if imported is not None:
            tell(import_label_studio(desk, imported))
        for note in desk.problems():
            tell(note)
        running = Labelling(desk, None if server is None else server.Server(desk, port))
    except BaseException:
        desk.stop()
        raise
    if server is not None:
        running.serve(browser, tell)
    if wait:
        running.wait()
    return running


def _encoder(pile: Pile, examples: Pile | None, named: str | Embedder | None, device: str) -> Embedder | None:
    """Open what embeds the pile or the labelled examples, if any of them has to be."""
    unknown = [read for read in (pile, examples) if read is not None and read.vectors is None]
    if not unknown:
        return None
    named = named or DEFAULT_ENCODERS[unknown[0].kind]
    return open_encoder(named, device) if isinstance(named, str) else named


def _class_of(item: Item) -> str:
    """Give the class of a labelled example, as the page names it."""
    return str(item.label).strip()


def _check_width(rows: Rows, things: Things) -> None:
    width, other = things.vectors.shape[1], rows.vectors.shape[1]
    if width != other:
        got = f"{width} numbers, and the labelled examples {other}"
        raise InputError(f"expected vectors of one encoder, but those of the pile have {got}: use one encoder for both")


def _outside(rows: Rows, things: Things, labels: Labels) -> tuple[NDArray[np.float32], list[str]]:
    """Take over the labels of examples that are in the pile too, and give the other examples."""
    vectors = rows.in_memory().astype(np.float32, copy=False)
    names = list(map(_class_of, rows.items))
    by_name = {item.name: row for row, item in enumerate(rows.items)}
    number_of = {item.name: number for number, item in enumerate(things.items)}
    inside = {by_name[one]: number_of[other] for one, other in repeated(rows, things.rows)}
    now = {name: labels.current_name(name) for name in dict.fromkeys(names)}  # renamed on the page, before a restart
    for name in now.values():
        labels.add_class(f"class of support {labels.version} {name}"[:200], name)
    keys = {things.keys[number]: now[names[row]] for row, number in inside.items()}
    changes = [Change(key, "label", name) for key, name in keys.items() if key not in labels.values]
    labels.set(f"support {labels.version}", changes)
    left = [row for row in range(len(names)) if row not in inside]
    return vectors[left], [names[row] for row in left]


def table_of_labels(source: Path, output: str | Path | None) -> Path:
    """Choose the table of labels, and refuse a place that cannot be written.

    Args:
        source: The pile.
        output: The table, if it was given.
    """
    if output is None:
        current = Path.cwd()
        below = Path(os.path.realpath(source)).is_relative_to(os.path.realpath(current))
        output = "labels.csv" if below else folder_of(source) / "labels.csv"
    path = Path(output)
    if path.suffix.lower() != ".csv":
        raise InputError(
            f"expected a table of labels that ends in .csv, but got {path}: give such a name (-o labels.csv)"
        )
    for place in (path, journal_path(path), none_path(path)):
        output_file(place, make_folder=False)
    if path.exists() and not journal_path(path).exists() and path.stat().st_size:
        raise InputError(
            f"{path} exists already, and the labelling page did not write it: choose another -o; to use its labels, "
            "give it as --support"
        )
    if os.path.realpath(path) == os.path.realpath(source):
        raise InputError(f"expected another file for the labels than the pile {source}: choose another -o")
    return path


def _has_screen() -> bool:
    """Return whether there is a screen for a browser; without one, a browser in the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _server_module() -> ModuleType:
    try:
        from likelyshot.labelling import server
    except ImportError as error:
        raise InputError(
            f"the labelling page needs a package that is not installed ({error.name}): pip install 'likelyshot[label]'"
        ) from None
    return server

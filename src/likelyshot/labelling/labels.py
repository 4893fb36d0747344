"""The labels of a pile as a person gives them: with a history without end, always on disk."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from likelyshot.data.files import write_whole
from likelyshot.errors import InputError
from likelyshot.labelling.journal import Change, Entry, Guess, Journal, Kind, Measured

#: Seconds after the last click at which a change of the table is not ours.
EDITED = 5.0
LONGEST_NAME = 200  # characters of the name of a class


class Value(NamedTuple):
    """The last thing that a person said about an item."""

    kind: Kind
    name: str = ""


class _Step(NamedTuple):
    """What one click changed, so that it can be undone and done again."""

    before: tuple[tuple[str, Value | None], ...] = ()
    after: tuple[tuple[str, Value | None], ...] = ()
    classes_before: tuple[str, ...] | None = None  # None if the classes did not change
    classes_after: tuple[str, ...] | None = None
    renamed: tuple[str, str] | None = None  # a class, and its new name


class Labels:
    """How a person has labelled the items of a pile; every click is on disk when its method returns.

    The journal holds every click. `labels.csv` holds the labels as they are now, `labels.none.csv` the items that
    belong to none of the classes. Both are written again after each click, whole or not at all.

    Args:
        output: The table of labels, .csv.
        kind: What the pile holds: image, text or features.
        columns: Names of the columns before `label`.
        cells: Gives the cells before the label of an item, by its key.
        order: Gives the position of an item in the tables, by its key.
    """

    def __init__(
        self,
        output: Path,
        kind: str,
        columns: Sequence[str],
        cells: Callable[[str], Sequence[str]],
        order: Callable[[str], int],
    ) -> None:
        self.output, self.columns, self._cells, self._order = output, tuple(columns), cells, order
        self.lock = threading.RLock()
        self.classes: list[str] = []
        self.values: dict[str, Value] = {}
        self.history: list[Measured] = []
        self.guesses: list[Guess] = []
        self.version = 0  # grows with every click that changes something
        self.problem = ""  # why the tables are not up to date, if they are not
        self._done: list[_Step] = []
        self._undone: list[_Step] = []
        self._seen: set[str] = set()
        self._lines: dict[str, tuple[str, str]] = {}  # the label of an item, and its line in the table
        self._journal = Journal(journal_path(output), kind)
        self.edited = self._keep_edited()  # where a table that somebody changed was put
        for entry in self._journal.entries:
            self._apply(entry)
        self._journal.entries.clear()
        self.write_tables()

    def _keep_edited(self) -> Path | None:
        """Move a table that was changed after the last click out of the way, since it is about to be overwritten."""
        try:
            later = self.output.stat().st_mtime - self._journal.path.stat().st_mtime
        except FileNotFoundError:
            return None
        if later < EDITED:
            return None
        places = (self.output.with_name(f"{self.output.stem}.edited-{number}.csv") for number in range(1, 10_000))
        unused = next(place for place in places if not place.exists())
        self.output.rename(unused)
        return unused

    def set(self, click: str, changes: Iterable[Change], guesses: Sequence[Guess] = ()) -> bool:
        """Label items, or mark them as in no class, skipped, or not in one class. One click is one undo.

        Returns whether anything changed: a click that was sent before changes nothing.

        Args:
            click: A name of the click that no other click has.
            changes: What is said of each item.
            guesses: What was guessed of those that are labelled.
        """
        with self.lock:
            if click in self._seen:
                return False
            new = []
            for change in changes:
                if change.kind in ("label", "not") and change.name not in self.classes:
                    raise InputError(f"there is no class {change.name[:80]!r}: add it, or go on to the next screen")
                if self.values.get(change.item) != _value(change):
                    new.append(change)
            return bool(new) and self._do(Entry(click, "set", time.time(), tuple(new), guesses=tuple(guesses)))

    def add_class(self, click: str, name: str) -> bool:
        """Add a class; one that is there already stays as it is.

        Args:
            click: A name of the click that no other click has.
            name: The name of the class.
        """
        name = check_class(name)
        with self.lock:
            return name not in self.classes and self._do(Entry(click, "class", time.time(), name=name))

    def rename_class(self, click: str, old: str, name: str) -> bool:
        """Rename a class. If another class has that name, the two become one.

        Items that were said not to be of a class stay so under its new name. If two classes become one,
        that is forgotten: what is no robin may still be a bird.

        Args:
            click: A name of the click that no other click has.
            old: The name of the class.
            name: Its new name.
        """
        name = check_class(name)
        with self.lock:
            if click in self._seen:
                return False
            if old not in self.classes:
                raise InputError(f"there is no class {old[:80]!r}: load the page again")
            return name != old and self._do(Entry(click, "rename", time.time(), name=name, old=old))

    def current_name(self, name: str) -> str:
        """Give the name that a class has now, after all renaming.

        Args:
            name: The name that it had at first, as in a table of labelled examples.
        """
        with self.lock:
            renamed = [step.renamed for step in self._done if step.renamed is not None]
        for old, new in renamed:
            name = new if name == old else name
        return name

    def undo(self, click: str) -> bool:
        """Undo the last click that was not undone yet."""
        with self.lock:
            return bool(self._done) and self._do(Entry(click, "undo", time.time()))

    def redo(self, click: str) -> bool:
        """Redo the last click that was undone."""
        with self.lock:
            return bool(self._undone) and self._do(Entry(click, "redo", time.time()))

    def measure(self, labels: int, accuracy: float) -> None:
        """Remember what accuracy was expected with so many labels."""
        with self.lock:
            entry = Entry(f"round {len(self.history)}", "round", time.time(), measured=Measured(labels, accuracy))
            self._journal.append(entry)
            self._apply(entry)

    @property
    def can_undo(self) -> bool:
        """Whether there is a click to undo."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether there is a click to redo."""
        return bool(self._undone)

    def counts(self) -> Counter[str]:
        """Count the labels of each class."""
        return Counter(value.name for value in list(self.values.values()) if value.kind == "label")

    def _do(self, entry: Entry) -> bool:
        if entry.id in self._seen:
            return False
        self._journal.append(entry)
        self._apply(entry)
        self.write_tables()
        return True

    def _apply(self, entry: Entry) -> None:
        self._seen.add(entry.id)
        self.guesses.extend(entry.guesses)
        if entry.measured is not None:
            self.history.append(entry.measured)
            return
        self.version += 1
        if entry.do == "undo" and self._done:
            step = self._done.pop()
            self._undone.append(step)
            self._put(step.before, step.classes_before)
        elif entry.do == "redo" and self._undone:
            self._forward(self._undone.pop())
        elif (change := self._step(entry)) is not None:
            self._undone.clear()
            self._forward(change)

    def _step(self, entry: Entry) -> _Step | None:
        """Say what an entry changes; None if it is not a change, or has no meaning."""
        classes = tuple(self.classes)
        if entry.do == "set":
            before = tuple((change.item, self.values.get(change.item)) for change in entry.changes)
            return _Step(before, tuple((change.item, _value(change)) for change in entry.changes))
        if entry.do == "class" and entry.name not in classes:
            return _Step(classes_before=classes, classes_after=(*classes, entry.name))
        if entry.do == "rename" and entry.old in classes:
            merged = entry.name in classes
            affected = {key: value for key, value in self.values.items() if value.name == entry.old}
            after = tuple((key, _renamed(value, entry.name, merged)) for key, value in affected.items())
            names = [entry.name if name == entry.old else name for name in classes if not merged or name != entry.old]
            return _Step(tuple(affected.items()), after, classes, tuple(names), (entry.old, entry.name))
        return None

    def _forward(self, step: _Step) -> None:
        self._done.append(step)
        self._put(step.after, step.classes_after)

    def _put(self, values: Iterable[tuple[str, Value | None]], classes: tuple[str, ...] | None) -> None:
        if classes is not None:
            self.classes = list(classes)
        for key, value in values:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def write_tables(self) -> None:
        """Write the tables again. If that fails, `problem` says why; the click itself is safe in the journal."""
        with self.lock:
            labels: list[str] = []
            none: list[str] = []
            for key in sorted(self.values, key=self._order):
                kind, name = self.values[key]
                if kind in ("label", "none"):
                    (labels if kind == "label" else none).append(self._line(key, name))
            try:
                write_whole(self.output, _row([*self.columns, "label"]) + "".join(labels))
                beside = none_path(self.output)
                if none or beside.exists():
                    write_whole(beside, _row([*self.columns, "label"]) + "".join(none))
                self.problem = ""
                with contextlib.suppress(OSError):
                    os.utime(self._journal.path)  # a table that is newer was changed by somebody else
            except InputError as error:
                name = self.output.name
                self.problem = (
                    f"Your clicks are saved in {self._journal.path.name}, but {name} is not up to date: {error}"
                )

    def _line(self, key: str, name: str) -> str:
        known = self._lines.get(key)
        if known is None or known[0] != name:
            known = self._lines[key] = (name, _row([*self._cells(key), name]))
        return known[1]

    def close(self) -> None:
        """Let another process go on with these labels."""
        self._journal.close()


def check_class(name: str) -> str:
    """Give the name of a class without spaces around it, or refuse it.

    >>> check_class(" cat ")
    'cat'
    """
    name = name.strip()
    if not name:
        raise InputError("expected the name of a class, but got nothing: type a name")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(
            f"expected a name of at most {LONGEST_NAME} printable characters, but got {name[:40]!r}: choose another"
        )
    return name


def journal_path(output: Path) -> Path:
    """Give the place of the journal of a table of labels."""
    return output.with_name(f"{output.name}.journal")


def none_path(output: Path) -> Path:
    """Give the place of the table of items that belong to none of the classes."""
    return output.with_name(f"{output.stem}.none{output.suffix}")


def predicted_path(output: Path) -> Path:
    """Give the place of the table of predictions that were accepted."""
    return output.with_name(f"{output.stem}.predicted{output.suffix}")


def _value(change: Change) -> Value | None:
    return None if change.kind == "clear" else Value(change.kind, change.name)


def _renamed(value: Value, name: str, merged: bool) -> Value | None:
    """Say what is known of an item of a class that gets another name, perhaps that of another class."""
    return None if merged and value.kind == "not" else Value(value.kind, name)


def _row(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()

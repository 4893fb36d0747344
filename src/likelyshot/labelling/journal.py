"""A journal of what a person did: one line for each click, on disk before the click is answered."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from likelyshot.data.files import read_lines
from likelyshot.errors import InputError

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two servers from one journal
    fcntl = None  # type: ignore[assignment]

FORM = "likelyshot.labels/1"
JOURNAL = {
    "what": "a journal of the labelling page",
    "remedy": "correct that line, or move the file away to start again",
}

#: What a person may say of an item: its class, none of the classes, later, not this class, or nothing any more.
Kind = Literal["label", "none", "skip", "not", "clear"]


class Change(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True, array_like=True):
    """What a person says about one item."""

    item: str  # the key of the item
    kind: Kind
    name: str = ""  # of the class


class Measured(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """What accuracy was expected after a round."""

    labels: int
    accuracy: float


class Guess(msgspec.Struct, forbid_unknown_fields=True, frozen=True, array_like=True):
    """What was shown for an item before a person labelled it: how probable the guess was, and whether it was right."""

    probability: float
    right: bool


class Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """One line of a journal."""

    id: str  # of the click, given by the page: a click that is sent twice counts once
    do: Literal["set", "class", "rename", "undo", "redo", "round"]
    time: float  # seconds since 1970
    changes: tuple[Change, ...] = ()
    name: str = ""  # of the new class
    old: str = ""  # name of the class that is renamed
    measured: Measured | None = None
    guesses: tuple[Guess, ...] = ()


class _Header(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    form: str
    kind: str  # of the pile: image, text or features


class Journal:
    """An open journal, locked against other processes.

    A line that was cut off was never answered: it is removed when the journal is opened.

    Args:
        path: The file, made if it is not there.
        kind: What the pile holds: image, text or features. The journal of another kind is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder, "labels.csv.journal"), "text")
    ...     journal.append(Entry("click 1", "set", 0.0, (Change("row 1", "label", "cat"),)))
    ...     journal.close()
    ...     journal = Journal(Path(folder, "labels.csv.journal"), "text")
    ...     journal.close()
    ...     [change.name for entry in journal.entries for change in entry.changes]
    ['cat']
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        if path.exists() and not path.is_file():  # a pipe would wait forever
            raise InputError(f"expected a file for the journal, but {path} is something else: choose another -o")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise InputError(f"cannot write {path} ({error.strerror}): choose another place with -o") from None
        try:
            self._lock()
            self.entries, self._end = _read(path, kind)
            if not self._end:
                self._write(msgspec.json.encode(_Header(FORM, kind)) + b"\n")
                _sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{self.path} is in use by another labelling page: go on there, stop it first, or choose another -o"
            ) from None
        except OSError:  # a file system without locks
            pass

    def append(self, entry: Entry) -> None:
        """Write a line and wait until it is on the disk; if that fails, the journal is as it was before."""
        self._write(msgspec.json.encode(entry) + b"\n")

    def _write(self, line: bytes) -> None:
        try:
            if os.fstat(self._file).st_size != self._end:  # the rest of a write that failed
                os.ftruncate(self._file, self._end)
            left = memoryview(line)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._end)
            reason = error.strerror or str(error)
            raise InputError(f"this click was not saved ({reason}): free some space, and click again") from None
        self._end += len(line)

    def close(self) -> None:
        """Close the file, which lets another process open it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _read(path: Path, kind: str) -> tuple[list[Entry], int]:
    """Read all whole lines, and count their bytes."""
    lines = read_lines(path, Entry, first=_Header, **JOURNAL)
    if lines:
        _check_header(path, lines[0][1], kind)
    return [entry for _, entry in lines[1:]], sum(len(line) + 1 for line, _ in lines)


def _check_header(path: Path, header: _Header, kind: str) -> None:
    if header.form != FORM:
        raise InputError(f"expected a journal of version {FORM}, but {path} is {header.form[:40]}: update likelyshot")
    if header.kind != kind:
        got = f"{path} is of {header.kind[:40]}"
        raise InputError(f"expected the labels of a pile of kind {kind}, but {got}: choose another -o")


def _sync_folder(folder: Path) -> None:
    """Have the name of a new file on the disk as well, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

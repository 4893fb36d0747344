"""What a pile was taken for: one row for every item, and tables of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.files import replacing
from likelyshot.errors import InputError

DIGITS = 6  # of probabilities in tables
QUOTED = re.compile('[",\r\n]')  # what a plain cell of CSV cannot hold
FORMULA = tuple("=+-@\t\r\n")  # a spreadsheet may compute cells that begin so


class Row(NamedTuple):
    """One row of a table of answers: its fields are the columns, in order."""

    path: str
    predicted: str
    probability: float
    runner_up: str
    margin: float
    reject: bool


@dataclass(frozen=True, eq=False)
class Answers:
    """The probabilities of n items over k classes, and which of them belong to none.

    >>> answers = Answers(["a.jpg"], ["cat", "dog", "owl"], np.array([[0.7, 0.2, 0.1]]), np.array([False]), np.zeros(1))
    >>> next(answers.rows())
    Row(path='a.jpg', predicted='cat', probability=0.7, runner_up='dog', margin=0.5, reject=False)
    """

    names: Sequence[str]
    classes: Sequence[str]
    probabilities: NDArray[np.floating[Any]]  # (n, k)
    reject: NDArray[np.bool_]  # (n,)
    novelty: NDArray[np.floating[Any]]  # (n,), higher is stranger

    def __post_init__(self) -> None:
        shape = np.shape(self.probabilities)
        wanted = (len(self.names), len(self.classes))
        if shape != wanted or wanted[1] == 0:
            got = f"{shape} for {wanted[0]} names and {wanted[1]} classes"
            raise InputError(f"expected probabilities of shape (names, classes), but got {got}: give one row a name")
        for what, values in (("reject", self.reject), ("novelty", self.novelty)):
            if np.shape(values) != wanted[:1]:
                raise InputError(f"expected {what} of shape {wanted[:1]}, but got {np.shape(values)}: give one a name")
        low, high = (self.probabilities.min(), self.probabilities.max()) if wanted[0] else (0.0, 1.0)
        if not (low >= 0.0 and high <= 1.0 + 1e-3):  # NaN fails every comparison
            raise InputError(f"expected probabilities from 0 to 1, but got {low} to {high}: apply softmax to scores")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def best(self) -> NDArray[np.intp]:
        """The position of the most probable class, (n,); the first of equals."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def _second(self) -> NDArray[np.intp]:
        others = self.probabilities.copy()
        others[np.arange(len(self)), self.best] = -1.0
        return np.asarray(others.argmax(1))

    def _of(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        return self.probabilities[np.arange(len(self)), places].astype(np.float64)

    @property
    def predicted(self) -> list[str]:
        """The name of the most probable class of every item, rejected or not."""
        return [self.classes[place] for place in self.best.tolist()]

    @property
    def probability(self) -> NDArray[np.float64]:
        """The probability of the predicted class, (n,)."""
        return self._of(self.best)

    @property
    def runner_up(self) -> list[str]:
        """The name of the second most probable class; empty if there is but one class."""
        if len(self.classes) == 1:
            return [""] * len(self)
        return [self.classes[place] for place in self._second.tolist()]

    @property
    def margin(self) -> NDArray[np.float64]:
        """How much more probable the predicted class is than the runner-up, (n,)."""
        return self.probability if len(self.classes) == 1 else self.probability - self._of(self._second)

    def shares(self) -> NDArray[np.float64]:
        """Estimate the proportions of the classes, (k,): mean probabilities of what is not rejected.

        All are zero if everything is rejected.
        """
        kept = self.probabilities[~np.asarray(self.reject, dtype=bool)]
        return kept.mean(0, dtype=np.float64) if len(kept) else np.zeros(len(self.classes))

    def rows(self) -> Iterator[Row]:
        """Go through the rows of the table, probabilities rounded to six decimals."""
        probability, margin = (np.round(values, DIGITS).tolist() for values in (self.probability, self.margin))
        reject = np.asarray(self.reject, dtype=bool).tolist()
        classes = {name: encodable(name) for name in ("", *self.classes)}
        predicted, runner_up = (map(classes.__getitem__, names) for names in (self.predicted, self.runner_up))
        yield from map(Row, map(encodable, self.names), predicted, probability, runner_up, margin, reject)

    def table(self) -> Any:
        """Make a pyarrow table of the rows."""
        import pyarrow

        columns = list(zip(*self.rows(), strict=True)) or [()] * len(Row._fields)
        text, number = pyarrow.string(), pyarrow.float64()
        types = (text, text, number, text, number, pyarrow.bool_())
        arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pyarrow.table(arrays, names=list(Row._fields))


def encodable(text: str) -> str:
    r"""Write bytes of a file name that are not UTF-8 as escapes, so that any file can hold the name.

    >>> encodable("caf\udce9.jpg")
    'caf\\udce9.jpg'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def write_answers(path: str | Path, answers: Answers | Iterable[Answers]) -> Path:
    """Write a table with the columns path, predicted, probability, runner_up, margin, reject, whole or not at all.

    The extension chooses CSV, Parquet or JSONL. An iterable of answers is written piece by piece, so that no more
    than one of them is in memory. In CSV alone, a name that begins with = + - @, a tab or a line break gets an
    apostrophe before it, lest a spreadsheet compute it; the other formats hold names as they are.
    """
    path = check_answers_path(path)
    chunks = [answers] if isinstance(answers, Answers) else answers
    with replacing(path) as temporary:
        WRITERS[path.suffix.lower()](temporary, chunks)
    return path


def check_answers_path(path: str | Path) -> Path:
    """Refuse what `write_answers` could not write, before any work is done.

    >>> check_answers_path("predictions.xlsx")
    Traceback (most recent call last):
    likelyshot.errors.InputError: expected a table ending in .csv, .parquet or .jsonl, but got 'predictions.xlsx': ...
    """
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        got = f"{path.name!r}: give it one of these endings"
        raise InputError(f"expected a table ending in .csv, .parquet or .jsonl, but got {got}")
    if path.is_dir():
        raise InputError(f"expected a file to write, but {path} is a folder: give a file name")
    if not path.parent.is_dir():
        raise InputError(f"expected a folder for {path.name}, but {path.parent} is none: make it first")
    return path


def _write_lines(path: Path, chunks: Iterable[Answers], header: str, line: Callable[[Row], str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        for chunk in chunks:
            file.writelines(map(line, chunk.rows()))


def _write_csv(path: Path, chunks: Iterable[Answers]) -> None:
    of_class = lru_cache(maxsize=None)(_cell)  # a million rows, a few classes

    def line(row: Row) -> str:
        name, predicted, probability, runner_up, margin, reject = row
        cells = f"{_cell(name)},{of_class(predicted)},{probability},{of_class(runner_up)},{margin}"
        return f"{cells},{'true' if reject else 'false'}\n"

    _write_lines(path, chunks, ",".join(Row._fields) + "\n", line)


def _cell(text: str) -> str:
    """A cell as RFC 4180 has it; csv.writer leaves a lone carriage return unquoted before Python 3.13."""
    text = f"'{text}" if text.startswith(FORMULA) else text
    return '"' + text.replace('"', '""') + '"' if QUOTED.search(text) else text


def json_line(row: Row) -> str:
    r"""Write a row as one line of JSON.

    >>> json_line(Row("a.jpg", "cat", 0.9, "", 0.9, False))
    '{"path": "a.jpg", "predicted": "cat", "probability": 0.9, "runner_up": "", "margin": 0.9, "reject": false}\n'
    """
    return json.dumps(row._asdict(), ensure_ascii=False) + "\n"


def _write_jsonl(path: Path, chunks: Iterable[Answers]) -> None:
    _write_lines(path, chunks, "", json_line)


def _write_parquet(path: Path, chunks: Iterable[Answers]) -> None:
    from pyarrow import parquet

    schema = Answers([], ["-"], np.empty((0, 1)), np.empty(0, bool), np.empty(0)).table().schema
    with parquet.ParquetWriter(path, schema) as writer:
        for chunk in chunks:
            writer.write_table(chunk.table())


WRITERS: dict[str, Callable[[Path, Iterable[Answers]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}

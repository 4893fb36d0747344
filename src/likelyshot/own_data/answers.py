"""From scores to answers, and tables of them: one row per item."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.confidence.novelty import Novelty
from likelyshot.data.files import output_file, replacing
from likelyshot.errors import InputError
from likelyshot.functional.scores import probabilities
from likelyshot.own_data.rows import as_tensor

DIGITS = 6  # of probabilities in tables
FORMULA = tuple("=+-@\t\r\n")  # a spreadsheet may compute cells that begin with these


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
    """The probabilities of n items over k classes, and which items belong to none of them.

    Args:
        names: Names of the items.
        classes: Names of the classes.
        probabilities: Probability of each class for each item, (n, k).
        reject: Whether the item belongs to none of the classes, (n,).
        novelty: How unlike all classes the item is, (n,): the higher, the less like any of them.
        texts: What was classified, if the items are texts without files.

    >>> answers = Answers(["a.jpg"], ["cat", "dog", "owl"], np.array([[0.7, 0.2, 0.1]]), np.array([False]), np.zeros(1))
    >>> next(answers.rows())
    Row(path='a.jpg', predicted='cat', probability=0.7, runner_up='dog', margin=0.5, reject=False)
    """

    names: Sequence[str]
    classes: Sequence[str]
    probabilities: NDArray[np.floating[Any]]
    reject: NDArray[np.bool_]
    novelty: NDArray[np.floating[Any]]
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.probabilities)
        expected = (len(self.names), len(self.classes))
        if shape != expected or expected[1] == 0:
            got = f"{shape} for {expected[0]} names and {expected[1]} classes"
            raise InputError(f"expected probabilities of shape (names, classes), but got {got}: give a row per name")
        for what, values in (("reject", self.reject), ("novelty", self.novelty)):
            if np.shape(values) != expected[:1]:
                raise InputError(
                    f"expected {what} of shape {expected[:1]}, but got {np.shape(values)}: give one per name"
                )
        low, high = (self.probabilities.min(), self.probabilities.max()) if expected[0] else (0.0, 1.0)
        if not (low >= 0.0 and high <= 1.0 + 1e-3):  # NaN fails every comparison
            raise InputError(f"expected probabilities from 0 to 1, but got {low} to {high}: apply softmax to scores")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        """Say how many there are: the arrays would fill the screen.

        >>> Answers(["a.jpg"], ["cat", "dog"], np.array([[0.7, 0.3]]), np.array([False]), np.zeros(1))
        Answers(1 item, 2 classes, 0 rejected)
        """
        items = "1 item" if len(self) == 1 else f"{len(self):,} items"
        return f"Answers({items}, {len(self.classes):,} classes, {int(np.sum(self.reject)):,} rejected)"

    def _repr_html_(self) -> str:
        """Show the first answers in a notebook."""
        from likelyshot.own_data.notebook import answers_html

        return answers_html(repr(self), self)

    @cached_property
    def best(self) -> NDArray[np.intp]:
        """The position of the most probable class, (n,); the first of equals."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def _second(self) -> NDArray[np.intp]:
        others = self.probabilities.copy()
        others[np.arange(len(self)), self.best] = -1.0
        return np.asarray(others.argmax(1))

    def _probability(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        return self.probabilities[np.arange(len(self)), places].astype(np.float64)

    @property
    def predicted(self) -> list[str]:
        """The name of the most probable class of each item, rejected or not."""
        return [self.classes[place] for place in self.best.tolist()]

    @property
    def probability(self) -> NDArray[np.float64]:
        """The probability of the predicted class, (n,)."""
        return self._probability(self.best)

    @property
    def runner_up(self) -> list[str]:
        """The name of the second most probable class; empty if there is only one class."""
        if len(self.classes) == 1:
            return [""] * len(self)
        return [self.classes[place] for place in self._second.tolist()]

    @property
    def margin(self) -> NDArray[np.float64]:
        """How much more probable the predicted class is than the runner-up, (n,)."""
        return self.probability if len(self.classes) == 1 else self.probability - self._probability(self._second)

    def shares(self) -> NDArray[np.float64]:
        """Estimate the proportions of the classes, (k,): mean probabilities of the items that are not rejected.

        All are zero if everything is rejected.
        """
        known = self.probabilities[~np.asarray(self.reject, dtype=bool)]
        return known.mean(0, dtype=np.float64) if len(known) else np.zeros(len(self.classes))

    def rows(self) -> Iterator[Row]:
        """Go through the rows of the table, probabilities rounded to six decimals."""
        probability, margin = (np.round(values, DIGITS).tolist() for values in (self.probability, self.margin))
        reject = np.asarray(self.reject, dtype=bool).tolist()
        classes = {name: encodable(name) for name in ("", *self.classes)}
        predicted, runner_up = (map(classes.__getitem__, names) for names in (self.predicted, self.runner_up))
        yield from map(Row, map(encodable, self.names), predicted, probability, runner_up, margin, reject)

    def columns(self, *, all_probabilities: bool = False) -> dict[str, list[Any]]:
        """Give the columns of the table by name: those of a row, the texts if there are any, and every probability.

        Args:
            all_probabilities: Add a column "probability of CLASS" for every class.

        >>> answers = Answers(["1"], ["cat", "dog"], np.array([[0.7, 0.3]]), np.array([False]), np.zeros(1), ["a purr"])
        >>> answers.columns(all_probabilities=True)["probability of dog"], answers.columns()["text"]
        ([0.3], ['a purr'])
        """
        cells = list(zip(*self.rows(), strict=True)) or [()] * len(Row._fields)
        columns = {name: list(column) for name, column in zip(Row._fields, cells, strict=True)}
        if self.texts is not None:
            columns["text"] = list(map(encodable, self.texts))
        if all_probabilities:
            values = np.round(self.probabilities.astype(np.float64), DIGITS)
            columns |= {
                f"probability of {encodable(name)}": values[:, k].tolist() for k, name in enumerate(self.classes)
            }
        return columns

    def table(self, *, for_spreadsheets: bool = False, all_probabilities: bool = False) -> Any:
        """Make a pyarrow table of the columns.

        Args:
            for_spreadsheets: Put an apostrophe before names that a spreadsheet would compute as formulas.
            all_probabilities: Add a column for every class.
        """
        import pyarrow

        def named(places: NDArray[np.intp]) -> Any:
            return pyarrow.array(list(map(encodable, self.classes)), pyarrow.string()).take(pyarrow.array(places))

        columns = {
            "path": pyarrow.array(map(encodable, self.names), pyarrow.string(), size=len(self)),
            "predicted": named(self.best),
            "probability": np.round(self.probability, DIGITS),
            "runner_up": named(self._second) if len(self.classes) > 1 else pyarrow.array([""] * len(self)),
            "margin": np.round(self.margin, DIGITS),
            "reject": pyarrow.array(np.asarray(self.reject, dtype=bool)),
        }
        if self.texts is not None:
            columns["text"] = pyarrow.array(list(map(encodable, self.texts)), pyarrow.string())
        if all_probabilities:
            values = np.round(self.probabilities.astype(np.float64), DIGITS)
            columns |= {f"probability of {encodable(name)}": values[:, k] for k, name in enumerate(self.classes)}
        made = pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})
        return harmless(made) if for_spreadsheets else made

    def to_pandas(self, *, all_probabilities: bool = False) -> Any:
        """Make a pandas DataFrame of the columns; pandas has to be installed.

        Args:
            all_probabilities: Add a column for every class.
        """
        if importlib.util.find_spec("pandas") is None:
            raise InputError("expected pandas for a data frame, but it is not installed: pip install pandas")
        return self.table(all_probabilities=all_probabilities).to_pandas()


class Tally:
    """Counts answers as they pass by, so that a large pile is not classified again to be counted.

    >>> answers = Answers(["a", "b"], ["cat", "dog"], np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([0, 1]), np.zeros(2))
    >>> tally = Tally(answers.classes)
    >>> passed = list(tally.through([answers]))
    >>> tally.answers, tally.rejected, tally.predicted, tally.accepted
    (2, 1, {'cat': 1, 'dog': 1}, {'cat': 1, 'dog': 0})
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes = classes
        self._all, self._accepted = np.zeros(len(classes), int), np.zeros(len(classes), int)

    def through(self, pieces: Iterable[Answers]) -> Iterator[Answers]:
        """Give the pieces as they come, and count them."""
        for piece in pieces:
            accepted = piece.best[~np.asarray(piece.reject, dtype=bool)]
            self._all += np.bincount(piece.best, minlength=len(self._all))
            self._accepted += np.bincount(accepted, minlength=len(self._accepted))
            yield piece

    def add(self, predicted: Sequence[str], reject: Sequence[bool]) -> None:
        """Count answers that were written before, by the names in their table."""
        places = {encodable(name): place for place, name in enumerate(self._classes)}
        for (name, rejected), count in Counter(zip(predicted, reject, strict=True)).items():
            self._all[places[name]] += count
            self._accepted[places[name]] += 0 if rejected else count

    @property
    def answers(self) -> int:
        """How many answers there are."""
        return int(self._all.sum())

    @property
    def rejected(self) -> int:
        """How many items belong to none of the classes."""
        return int(self._all.sum() - self._accepted.sum())

    @property
    def predicted(self) -> dict[str, int]:
        """How many items each class is the most probable one of, rejected or not."""
        return dict(zip(self._classes, self._all.tolist(), strict=True))

    @property
    def accepted(self) -> dict[str, int]:
        """How many items each class has without the rejected."""
        return dict(zip(self._classes, self._accepted.tolist(), strict=True))


class Judged(NamedTuple):
    """The figures of some answers."""

    probabilities: NDArray[np.floating[Any]]  # (q, k)
    reject: NDArray[np.bool_]  # (q,)
    novelty: NDArray[np.floating[Any]]  # (q,)


@dataclass(frozen=True, eq=False)
class Judge:
    """Turns the scores of a method on one pile into probabilities and rejections."""

    classes: tuple[str, ...]
    temperature: float
    novelty: Novelty
    threshold: float  # of the novelty score: items above it belong to none of the classes
    examples: Tensor  # (n, d) labelled vectors, as methods get them
    labels: Tensor  # (n,)

    def answers(self, rows: Tensor, scores: Tensor, names: Sequence[str]) -> Answers:
        """Answer for rows (q, d) with scores (q, k). A row that equals examples of one class only gets that class."""
        return Answers(names, self.classes, *self.judged(rows, scores))

    def judged(self, rows: Tensor, scores: Tensor) -> Judged:
        """Give the figures of `answers`, which need no names."""
        with torch.no_grad():
            novelty = self.novelty.score(rows.float()).double().numpy()
            sure = probabilities(scores, self.temperature).numpy()
        reject = novelty > self.threshold
        for row, label in self._labelled(rows):
            sure[row], reject[row] = np.arange(len(self.classes)) == label, False
        return Judged(sure, reject, novelty)

    def _labelled(self, rows: Tensor) -> Iterator[tuple[int, int]]:
        """Find the rows that are labelled examples, unless these have different labels."""
        rows = rows.to(self.examples.dtype)
        alike = torch.isin(rows.amax(-1), self.examples.amax(-1))  # equal vectors have equal maxima
        for row in alike.nonzero().flatten().tolist():
            labels = set(self.labels[(self.examples == rows[row]).all(-1)].tolist())
            if len(labels) == 1:
                yield row, labels.pop()


def judge_block(shared: tuple[Callable[[Tensor], Tensor], bool, Judge], block: NDArray[Any]) -> Judged:
    """Score and judge the rows of a block, on any worker: shared are what scores, whether to rectify, and the judge."""
    score, rectified, judge = shared
    with torch.no_grad():
        rows = as_tensor(block, rectified)
        return judge.judged(rows, score(rows))


def encodable(text: str) -> str:
    r"""Write bytes of a file name that are not UTF-8 as escapes, so that the name can be written to any file.

    >>> encodable("caf\udce9.jpg")
    'caf\\udce9.jpg'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def harmless(table: Any) -> Any:
    """Put an apostrophe before names in an Arrow table that a spreadsheet would compute as formulas."""
    import pyarrow
    from pyarrow import compute

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pyarrow.types.is_string(column.type):
            risky = functools.reduce(compute.or_, (compute.starts_with(column, sign) for sign in FORMULA))
            column = compute.if_else(risky, compute.binary_join_element_wise("'", column, ""), column)
        columns[f"'{name}" if name.startswith(FORMULA) else name] = column
    return pyarrow.table(columns)


def write_tables(path: str | Path, tables: Iterable[Any]) -> Path:
    """Write Arrow tables of answers, one after the other, as one file, whole or not at all.

    Args:
        path: The file; its extension chooses CSV, Parquet or JSONL.
        tables: As `Answers.table` gives them, all with the same columns.
    """
    path = check_answers_path(path)
    with replacing(path) as temporary:
        WRITERS[path.suffix.lower()](temporary, iter(tables))
    return path


def write_answers(path: str | Path, answers: Answers | Iterable[Answers], *, all_probabilities: bool = False) -> Path:
    """Write a table with the columns path, predicted, probability, runner_up, margin, reject, whole or not at all.

    Texts without a file have a column text, too. In CSV, a name that begins with = + - @, a tab or a line break gets an
    apostrophe before it, so that a spreadsheet does not compute it. The other formats hold names as they are.

    Args:
        path: The table; its extension chooses CSV, Parquet or JSONL.
        answers: The answers. An iterable is written piece by piece, so that only one of them is in memory.
        all_probabilities: Add a column for every class, "probability of CLASS".
    """
    pieces = [answers] if isinstance(answers, Answers) else answers
    return write_tables(path, (piece.table(all_probabilities=all_probabilities) for piece in pieces))


def is_folder(output: Path) -> bool:
    """Return whether answers go to a folder: a path without an extension."""
    return not output.suffix


def check_answers_path(path: str | Path) -> Path:
    """Refuse a path that `write_answers` could not write, before any work is done.

    >>> check_answers_path("predictions.xlsx")
    Traceback (most recent call last):
    likelyshot.errors.InputError: expected a table ending in .csv, .parquet or .jsonl, but got 'predictions.xlsx': ...
    """
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        got = f"{path.name!r}: choose one of these formats"
        raise InputError(f"expected a table ending in .csv, .parquet or .jsonl, but got {got}")
    return output_file(path, make_folder=False)


def json_lines(answers: Answers, *, all_probabilities: bool = False) -> Iterator[str]:
    r"""Write every answer as one line of JSON.

    Args:
        answers: The answers.
        all_probabilities: Add a key for every class.

    >>> answers = Answers(["a.jpg"], ["cat", "dog"], np.array([[0.9, 0.1]]), np.array([False]), np.zeros(1))
    >>> next(json_lines(answers))
    '{"path": "a.jpg", "predicted": "cat", "probability": 0.9, "runner_up": "dog", "margin": 0.8, "reject": false}\n'
    """
    columns = answers.columns(all_probabilities=all_probabilities)
    for cells in zip(*columns.values(), strict=True):
        yield json.dumps(dict(zip(columns, cells, strict=True)), ensure_ascii=False) + "\n"


def _write_jsonl(path: Path, tables: Iterator[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for table in tables:
            names, columns = table.column_names, [column.to_pylist() for column in table.columns]
            for cells in zip(*columns, strict=True):
                file.write(json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False) + "\n")


def _write_csv(path: Path, tables: Iterator[Any]) -> None:
    from pyarrow import csv

    first, others = _peeked(map(harmless, tables))
    with path.open("wb") as file, csv.CSVWriter(file, first.schema) as writer:
        for table in itertools.chain([first], others):
            writer.write_table(table)


def _write_parquet(path: Path, tables: Iterator[Any]) -> None:
    from pyarrow import parquet

    first, others = _peeked(tables)
    with path.open("wb") as file, parquet.ParquetWriter(file, first.schema) as writer:
        for table in itertools.chain([first], others):
            writer.write_table(table)


def _peeked(tables: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Give the first table, whose columns the others have, and the others; an empty table if there is none."""
    empty = Answers([], ["-"], np.empty((0, 1)), np.empty(0, bool), np.empty(0))
    first = next(tables, None)
    return empty.table() if first is None else first, tables


WRITERS: dict[str, Callable[[Path, Iterator[Any]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}

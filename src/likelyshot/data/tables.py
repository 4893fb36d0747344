"""Tables in CSV, TSV, Parquet and JSONL, and what is in their columns."""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.items import Problem
from likelyshot.errors import InputError, nearest

TABLES = (".csv", ".tsv", ".parquet", ".jsonl")
VECTOR_COLUMNS = ("embedding", "embeddings", "features", "vector")
LABEL_COLUMNS = ("label", "labels", "class", "target", "y")
#: Columns that are no part of a vector, even if they hold numbers; the last as pandas writes its index.
OTHER_COLUMNS = ("path", "file", "filename", "image", "name", "id", "split")
INDEX_COLUMNS = ("", "index", "unnamed: 0", "__index_level_0__")
#: Bytes that are checked at once.
PIECE = 1 << 24
#: Columns of a table that has no vectors of its own, but names rows, from 1, of features files.
FILE_COLUMN, ROW_COLUMN = "features_file", "features_row"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: As it is in the file.
        cells: A pyarrow array.
        rows: The number of each row in the file, for error messages.
    """

    name: str
    cells: Any
    rows: Sequence[int]

    def texts(self) -> list[str]:
        """Give every cell as text; nothing and NaN are empty."""
        return [as_text(cell) for cell in self.cells.to_pylist()]

    def filled(self) -> list[Any]:
        """Give every cell as it is; an empty one raises InputError."""
        cells: list[Any] = self.cells.to_pylist()
        empty = next((row for row, cell in enumerate(cells) if cell is None or cell == ""), None)
        if empty is not None:
            raise self._wrong(empty, f"a value in column {self.name!r}", "an empty cell")
        return cells

    def numbers(self) -> NDArray[Any] | None:
        """Give the numbers of the column, or None if there are none in it, such as in one of text."""
        from pyarrow import ArrowInvalid, float64, types

        kind = self.cells.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
            if self.cells.null_count:
                self.filled()  # says in which row
            plain = self.cells.cast(float64()) if types.is_decimal(kind) else self.cells
            return np.asarray(plain.to_numpy())
        if not self._is_text():
            return None
        with suppress(ArrowInvalid):
            if not self.cells.null_count:
                return np.asarray(self.cells.cast(float64()).to_numpy().astype(np.float32))
        cells = self.cells.to_pylist()
        numbers = [_number(cell) for cell in cells]
        if None in numbers and (numbers.count(None) < len(numbers) or not any(cells)):
            bad = numbers.index(None)
            got = repr(cells[bad]) if cells[bad] else "an empty cell"
            raise self._wrong(bad, f"a number in column {self.name!r}", got)
        return None if None in numbers else np.array(numbers, dtype=np.float32)

    def vectors(self) -> NDArray[Any]:
        """Give lists, or text such as "[0.1, 0.2]", as an array (n, d)."""
        rows: list[Any]
        if self._is_text():
            rows = [_vector(cell) for cell in self.filled()]
        elif hasattr(self.cells.type, "value_type"):
            rows = [np.empty(0) if row is None else np.asarray(row) for row in self.cells.to_numpy()]
        else:
            raise InputError(f"expected lists in the column of vectors, but got {self.cells.type}: rename it")
        width = len(rows[0])
        for row, vector in enumerate(rows):
            if len(vector) != (width or 1) or vector.dtype.kind not in "iuf" or np.isnan(vector).any():
                raise self._wrong(row, f"{width or 'some'} numbers", repr(self.cells[row].as_py()))
        return np.stack(rows)

    def _is_text(self) -> bool:
        from pyarrow import types

        return any(check(self.cells.type) for check in (types.is_string, types.is_large_string, types.is_null))

    def _wrong(self, row: int, expected: str, got: str) -> InputError:
        number = self.rows[row]
        return InputError(f"row {number}: expected {expected}, but got {got[:80]}: correct or drop the row")


@dataclass(frozen=True)
class Table:
    """The columns of a table, in order.

    Args:
        columns: All of one length.
        rows: The number of each row in the file, from 1.
        problems: The rows that could not be read.
        kind: The extension of the file. In CSV and TSV, every cell is text, even if it looks like a number.
    """

    columns: Sequence[Column]
    rows: Sequence[int]
    problems: Sequence[Problem]
    kind: str

    @property
    def is_text(self) -> bool:
        """Whether every cell is text."""
        return self.kind in (".csv", ".tsv")

    @property
    def header(self) -> str:
        """The names of the columns, for error messages."""
        return ", ".join(column.name for column in self.columns)[:200]

    def find(self, names: Iterable[str]) -> Column | None:
        """Give the column of the first of these names, in lower case, that the table has."""
        header = [column.name.strip().lower() for column in self.columns]
        name = next((name for name in names if name in header), None)
        return None if name is None else self._only(name, header)

    def named(self, name: str) -> Column:
        """Give the column of exactly this name."""
        header = [column.name for column in self.columns]
        if name not in header:
            raise InputError(f"expected a column {name!r}, but the table has none: {nearest(name, set(header))}")
        return self._only(name, header)

    def _only(self, name: str, header: Sequence[str]) -> Column:
        if (count := header.count(name)) > 1:
            raise InputError(f"expected one column named {name!r}, but got {count}: rename or remove the others")
        return self.columns[header.index(name)]

    def vectors(self, *, ignored: Collection[str] = (), pattern: str = ".*") -> NDArray[Any] | None:
        """Give the vectors (n, d) of a column of lists, or of the columns of numbers; None without either.

        Numbers written as text become float32, those of Parquet keep their precision.

        Args:
            ignored: Names of further columns of numbers that are no part of a vector.
            pattern: What the names of columns of numbers must match, in lower case.
        """
        others = {*LABEL_COLUMNS, *OTHER_COLUMNS, *INDEX_COLUMNS}
        names = [(column.name.strip().lower(), column) for column in self.columns if column.name not in ignored]
        columns = [column for name, column in names if name not in others and re.fullmatch(pattern, name)]
        if lists := self.find(VECTOR_COLUMNS):
            vectors = lists.vectors()
        elif numbers := [values for column in columns if (values := column.numbers()) is not None]:
            vectors = np.column_stack(numbers)
        else:
            return None
        return vectors if self.kind == ".parquet" else vectors.astype(np.float32)


def read_table(path: Path) -> Table:
    """Read CSV and TSV, every cell as text, or Parquet or JSONL, with the types that they have.

    Rows that cannot be read are left out and are among the problems of the table.
    """
    kind = path.suffix.lower()
    if kind != ".parquet":
        _check_utf8(path)
    rows, problems = {".jsonl": _read_jsonl, ".parquet": _read_parquet}.get(kind, _read_csv)(path)
    numbers = [row for row in range(1, len(rows) + len(problems) + 1) if row not in problems][: len(rows)]
    columns = [Column(name, rows.column(i), numbers) for i, name in enumerate(rows.column_names)]
    return Table(columns, numbers, list(problems.values()), kind)


def csv_rows(path: Path, delimiter: str = ",") -> Iterator[list[str]]:
    """Go through the rows of a CSV file as lists of cells, however many cells each has; an empty line has none.

    Args:
        path: The file, in UTF-8.
        delimiter: What separates cells.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, delimiter=delimiter)


def whole_numbers(cells: Sequence[str]) -> Sequence[int | str]:
    """Turn labels into whole numbers if all of them are, so that 10 follows 9; but 007 is a name.

    >>> whole_numbers(["10", "9"]), whole_numbers(["10", "007"])
    ([10, 9], ['10', '007'])
    """
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", cell) for cell in cells)
    return [int(cell) for cell in cells] if whole else cells


def as_text(cell: Any) -> str:
    """Write a cell as text: 1.0 is "1", as integers with gaps become floats; nothing and NaN are empty.

    >>> as_text(1.0), as_text("1.0"), as_text(None)
    ('1', '1.0', '')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def as_written(cell: str) -> str:
    """Take off the apostrophe that a table of answers puts before what a spreadsheet would compute.

    >>> as_written("'=1+1"), as_written("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if re.match(r"'[=+\-@\t\r\n]", cell) else cell


def _check_utf8(path: Path) -> None:
    """Refuse text that is not UTF-8, by its line: pyarrow would print a traceback, and name no line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        try:
            while piece := file.read(PIECE):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            file.seek(0)
            line = next(number for number, line in enumerate(file, 1) if not _is_utf8(line))
            raise InputError(f"expected text in UTF-8, but line {line:,} is not: save the file as UTF-8") from None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_csv(path: Path) -> tuple[Any, Mapping[int, Problem]]:
    import pyarrow
    from pyarrow import csv as arrow

    problems: dict[int, Problem] = {}

    def skip(row: Any) -> str:
        number = row.number - 1  # the header is row 1
        detail = f"{row.actual_columns} cells for {row.expected_columns} columns"
        problems[number] = Problem(f"row {number}", "uneven row", detail)
        return "skip"

    delimiter = "\t" if path.suffix.lower() == ".tsv" else _delimiter(path)
    header = next(csv_rows(path, delimiter), [])
    table = arrow.read_csv(
        path,
        arrow.ReadOptions(use_threads=False, block_size=min(path.stat().st_size + 1, 2**30)),
        arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
        arrow.ConvertOptions(column_types=dict.fromkeys(header, pyarrow.string())),  # 007 stays 007
    )
    return table, problems


def _delimiter(path: Path) -> str:
    """Say what separates cells: a comma, or a semicolon, which spreadsheets write where decimals have a comma."""
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    return ";" if ";" in header and "," not in header else ","


def _read_parquet(path: Path) -> tuple[Any, Mapping[int, Problem]]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return file.read(), {}


def _read_jsonl(path: Path) -> tuple[Any, Mapping[int, Problem]]:
    import pyarrow

    records: list[dict[str, Any]] = []
    problems: dict[int, Problem] = {}
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate((line for line in lines if line.strip()), 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                problems[number] = Problem(f"row {number}", "not a JSON object", line[:80].strip())

    def column(name: str) -> Any:
        cells = [record.get(name) for record in records]
        try:
            return pyarrow.array(cells)
        except (pyarrow.ArrowException, OverflowError, TypeError):  # of several types
            return pyarrow.array([None if cell is None else as_text(cell) for cell in cells], pyarrow.string())

    names = dict.fromkeys(name for record in records for name in record)
    return pyarrow.table({name: column(name) for name in names}), problems


def _number(cell: str | None) -> float | None:
    try:
        return float(cell or "")
    except ValueError:
        return None


def _vector(text: str) -> NDArray[Any]:
    """Give the numbers of "[0.1, 0.2]", "0.1;0.2" or "0.1 0.2", NaN if one is not a number."""
    text = text.strip(" \t\r\n[]()")
    words = re.split("[,;]", text) if "," in text or ";" in text else text.split()
    try:
        return np.array([float(word) for word in words], dtype=np.float32)
    except ValueError:
        return np.full(max(1, len(words)), np.nan)

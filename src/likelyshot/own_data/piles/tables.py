"""Reading tables whatever their format; rows that make no sense are left out and reported."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from likelyshot.data.items import Problem
from likelyshot.errors import InputError, nearest

TABLES = (".csv", ".tsv", ".parquet", ".jsonl")


class Table(NamedTuple):
    """A pyarrow table, the numbers of its rows in the file, and the rows that could not be read."""

    rows: Any
    numbers: Sequence[int]
    problems: list[Problem]

    def first(self, names: Iterable[str]) -> Any:
        """The first column of these names, in lower case, or None."""
        held = [name.strip().lower() for name in self.rows.column_names]
        return next((self.rows.column(held.index(name)) for name in names if name in held), None)

    def given(self, name: str) -> Any:
        """The column that the user named."""
        held = self.rows.column_names
        if name not in held:
            raise InputError(f"expected a column {name!r}, but there is none: {nearest(name, held)}")
        return self.rows.column(held.index(name))


def read_table(path: Path) -> Table:
    """Read CSV and TSV, every cell as text, or Parquet or JSONL, with the types that they have."""
    import pyarrow
    from pyarrow import csv as arrow
    from pyarrow import parquet

    kind = path.suffix.lower()
    if kind == ".jsonl":
        return _read_jsonl(path)
    if kind == ".parquet":
        with parquet.ParquetFile(path) as file:
            table = file.read()
        return Table(table, range(1, len(table) + 1), [])
    bad: dict[int, Problem] = {}

    def skip(row: Any) -> str:
        detail = f"{row.actual_columns} cells for {row.expected_columns} columns"
        bad[row.number - 1] = Problem(f"row {row.number - 1}", "uneven row", detail)  # the header is row 1
        return "skip"

    delimiter = "\t" if kind == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as opened:
        header = next(csv.reader(opened, delimiter=delimiter), [])
    table = arrow.read_csv(
        path,
        arrow.ReadOptions(use_threads=False, block_size=min(path.stat().st_size + 1, 2**30)),
        arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
        arrow.ConvertOptions(column_types=dict.fromkeys(header, pyarrow.string())),  # 007 stays 007
    )
    return Table(table, _without(bad, len(table)), list(bad.values()))


def _read_jsonl(path: Path) -> Table:
    import pyarrow

    records: list[dict[str, Any]] = []
    bad: dict[int, Problem] = {}
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate((line for line in lines if line.strip()), 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                bad[number] = Problem(f"row {number}", "not a JSON object", line[:80].strip())

    def column(name: str) -> Any:
        cells = [record.get(name) for record in records]
        try:
            return pyarrow.array(cells)
        except (pyarrow.ArrowException, OverflowError, TypeError):  # of several types
            return pyarrow.array([None if cell is None else plain(cell) for cell in cells], pyarrow.string())

    names = dict.fromkeys(name for record in records for name in record)
    table = pyarrow.table({name: column(name) for name in names})
    return Table(table, _without(bad, len(records)), list(bad.values()))


def _without(bad: Mapping[int, object], count: int) -> list[int]:
    """The first `count` numbers from 1 that are not bad."""
    return [number for number in range(1, count + len(bad) + 1) if number not in bad][:count]


def plain(cell: Any) -> str:
    """Write a cell as text: 1.0 is "1", as integers with gaps become floats; nothing and NaN are empty.

    >>> plain(1.0), plain("1.0"), plain(None)
    ('1', '1.0', '')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)

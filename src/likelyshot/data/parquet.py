"""Vectors in Parquet files, decoded a few thousand rows at a time."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.tables import INDEX_COLUMNS, LABEL_COLUMNS, OTHER_COLUMNS, VECTOR_COLUMNS
from likelyshot.errors import InputError

#: Rows that are decoded at once.
BATCH = 4_096
#: Bytes of a column that are read at once; without it, Arrow reads those of a whole row group.
BUFFER = 2**16
#: Files that a thread has open: one whose vectors it reads, and one whose names.
OPEN = 4

_cursors = threading.local()


def find_vectors(path: Path, pattern: str, ignored: Sequence[str]) -> tuple[int, tuple[str, ...], NDArray[Any]] | None:
    """Give the number of rows, the columns of vectors and the first vector (1, d); None without any.

    Args:
        path: The file.
        pattern: What the names of columns of numbers must match, in lower case.
        ignored: Columns of numbers that are no part of a vector.
    """
    from pyarrow import types

    with _opened(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        names = {name.strip().lower(): name for name in reversed(schema.names)}
        lists = next((names[name] for name in VECTOR_COLUMNS if name in names), None)
        others = {*LABEL_COLUMNS, *OTHER_COLUMNS, *INDEX_COLUMNS}
        numbers = [
            field.name
            for field in schema
            if (types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type))
            and field.name not in ignored
            and field.name.strip().lower() not in others
            and re.fullmatch(pattern, field.name.strip().lower())
        ]
        columns = (lists,) if lists is not None else tuple(numbers)
        if not columns or not rows:
            return None
        if twice := next((name for name in columns if schema.names.count(name) > 1), None):
            got = schema.names.count(twice)
            raise InputError(f"expected one column named {twice!r}, but got {got}: rename or remove the others")
        if lists is not None and not hasattr(schema.field(lists).type, "value_type"):
            return None
        first = next(file.iter_batches(1, columns=list(columns)))
    return rows, columns, matrix(first)


def matrix(rows: Any, *, first: int = 0, width: int = 0) -> NDArray[Any]:
    """Make an array (n, d) of the columns of vectors of an Arrow table; gaps and uneven lists raise InputError.

    Half precision stays half precision. NaN stays too.

    Args:
        rows: Of an Arrow table or batch: one column of lists, or columns of numbers.
        first: The number of the first row in the file, from 0, for error messages.
        width: How long lists are. Default: as long as the first.
    """
    columns = [column.combine_chunks() if hasattr(column, "combine_chunks") else column for column in rows.columns]
    if hasattr(columns[0].type, "value_type"):
        return _of_lists(columns[0], first, width)
    for name, column in zip(rows.schema.names, columns, strict=True):
        if column.null_count:
            row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
            raise InputError(
                f"row {row}: expected a number in column {name!r}, but got an empty cell: correct or drop the row"
            )
    return np.column_stack([_numbers(column) for column in columns])


def _numbers(column: Any) -> NDArray[Any]:
    from pyarrow import float64, types

    plain = column.cast(float64()) if types.is_decimal(column.type) else column
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def _of_lists(cells: Any, first: int, width: int) -> NDArray[Any]:
    flat, count = cells.flatten(), len(cells)
    width = width or len(flat) // max(count, 1)
    even = not cells.null_count and not flat.null_count and len(flat) == count * width > 0
    if even and hasattr(cells, "offsets"):
        even = bool((np.diff(cells.offsets.to_numpy()) == width).all())
    values = _numbers(flat) if even else np.empty(0)
    if even and values.dtype.kind in "iuf":
        return values.reshape(count, width)
    lists = cells.to_pylist()
    width = width or next((len(cell) for cell in lists if cell), 0)
    for row, cell in enumerate(lists, first + 1):
        if cell is None or len(cell) != (width or 1) or None in cell:
            got = repr(cell)[:80]
            raise InputError(f"row {row}: expected {width or 'some'} numbers, but got {got}: correct or drop the row")
    raise InputError(f"expected lists of numbers in the column of vectors, but got {cells.type}: rename it")


def parquet_rows(path: Path, columns: Sequence[str], first: int, last: int) -> Any:
    """Read rows of columns of a Parquet file as an Arrow table with the columns in this order, a batch at a time.

    Each thread remembers where it is in a file, so that reading on from there decodes nothing twice. To begin
    elsewhere, it decodes the row group from its start.
    """
    import pyarrow

    key = (str(path), path.stat().st_mtime_ns, tuple(columns))
    cursors: dict[Any, _Cursor] = _cursors.__dict__.setdefault("open", {})
    cursor = cursors.pop(key, None)
    if cursor is None or cursor.start > first:
        while len(cursors) >= OPEN:
            cursors.pop(next(iter(cursors))).close()
        cursor = _Cursor(path, columns, first)
    parts = []
    while first < last:
        batch = cursor.at(first)
        if batch is None:
            raise InputError(f"expected {last:,} rows, but the file ends after {cursor.start:,}: write it again")
        rows = batch.slice(first - cursor.start, last - first)
        parts.append(rows)
        first += len(rows)
    if last < cursor.count:
        cursors[key] = cursor
    else:  # what it has decoded takes memory, and reading on begins elsewhere
        cursor.close()
    if not parts:
        return pyarrow.table({name: pyarrow.array([]) for name in columns})
    return pyarrow.Table.from_batches(parts).select(list(columns))


def _opened(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)


class _Cursor:
    """A place in a Parquet file that moves forward only."""

    def __init__(self, path: Path, columns: Sequence[str], first: int) -> None:
        self._file = _opened(path)
        sizes = [self._file.metadata.row_group(group).num_rows for group in range(self._file.metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = max(0, int(np.searchsorted(starts, first, side="right")) - 1)
        self.start, self.count, self._batch = int(starts[group]), int(starts[-1]), None
        groups = list(range(group, len(sizes)))
        self._batches: Iterator[Any] = self._file.iter_batches(
            BATCH, row_groups=groups, columns=list(columns), use_threads=False
        )

    def at(self, row: int) -> Any:
        """Give the batch that holds a row, None after the last."""
        while self._batch is None or row >= self.start + len(self._batch):
            self.start += 0 if self._batch is None else len(self._batch)
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
        return self._batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()

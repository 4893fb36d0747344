"""Vectors in one file or in many, never all in memory: rows are read from the files when they are asked for."""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.arrays import ROLES
from likelyshot.data.files import beside, remove_stale
from likelyshot.data.tables import INDEX_COLUMNS, LABEL_COLUMNS, OTHER_COLUMNS, VECTOR_COLUMNS
from likelyshot.errors import InputError

#: Extensions of files of vectors that can be read a few rows at a time.
STREAMED = (".npy", ".safetensors", ".parquet")
PRECISIONS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
#: Rows that are decoded at once from Parquet.
BATCH = 4_096
LARGEST_HEADER = 2**26


@dataclass(frozen=True)
class Shard:
    """A file of vectors, and where they are in it.

    Args:
        path: The file.
        rows: How many vectors it holds.
        dim: The length of a vector.
        dtype: As numpy writes it; of Parquet, what vectors are converted to.
        size: Bytes of the file when it was opened.
        offset: Where the first vector begins; -1 in Parquet.
        columns: The columns of Parquet that hold vectors: one of lists, or several of numbers.
    """

    path: Path
    rows: int
    dim: int
    dtype: str
    size: int
    offset: int = -1
    columns: tuple[str, ...] = ()


class Shards:
    """The rows of several files as one array (n, d) that is read in pieces; it can be sent to other processes.

    Args:
        files: The files in order, all of one length of vectors.
        scratch: The temporary file that they are, if they are: other machines do not see it, and it ends with this.
        local: Whether other machines may not see the files.
    """

    ndim = 2

    def __init__(self, files: Sequence[Shard], scratch: Scratch | None = None, *, local: bool = False) -> None:
        self.files, self.scratch, self.local = tuple(files), scratch, local or scratch is not None
        widths = {file.dim for file in self.files}
        if len(widths) != 1:
            first = next(file for file in self.files if file.dim != self.files[0].dim)
            got = f"{self.files[0].dim} in {self.files[0].path.name!r} and {first.dim} in {first.path.name!r}"
            raise InputError(f"expected vectors of one length in all files, but got {got}: keep those of one encoder")
        self._starts = np.cumsum([0, *(file.rows for file in self.files)])
        self.shape = (int(self._starts[-1]), self.files[0].dim)
        self.dtype = np.result_type(*{file.dtype for file in self.files})

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        if isinstance(key, slice):
            places = range(len(self))[key]
            if places.step == 1:
                return self._range(places.start, max(places.start, places.stop))
            return self._rows(np.arange(places.start, places.stop, places.step))
        if isinstance(key, int | np.integer):
            only: NDArray[Any] = self._rows(np.array([range(len(self))[int(key)]]))[0]
            return only
        rows = np.asarray(key)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        return self._rows(np.where(rows < 0, rows + len(self), rows))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def place(self, row: int) -> tuple[Path, int]:
        """Say which file holds a row, and which row it is there, from 0."""
        file, first = self._find(row)
        return file.path, first

    def stamps(self) -> list[tuple[str, int, int]]:
        """Give the name, size and time of change of every file."""
        return [(file.path.name, file.size, file.path.stat().st_mtime_ns) for file in self.files]

    def _rows(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Read rows in any order: together where they lie close, else one by one, in the order of the files."""
        result = np.empty((len(rows), self.shape[1]), self.dtype)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        start = 0
        while start < len(ordered):
            stop = int(np.searchsorted(ordered, ordered[start] + BATCH))
            close = stop - start > BATCH // 16 or self._find(int(ordered[start]))[0].offset < 0
            stop = stop if close else start + 1
            block = self._range(int(ordered[start]), int(ordered[stop - 1]) + 1)
            result[order[start:stop]] = block[ordered[start:stop] - ordered[start]]
            start = stop
        return result

    def _find(self, row: int) -> tuple[Shard, int]:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.files[number], row - int(self._starts[number])

    def _range(self, start: int, stop: int) -> NDArray[Any]:
        parts = []
        while start < stop:
            file, first = self._find(start)
            last = min(file.rows, first + stop - start)
            parts.append(_read(file, first, last))
            start += last - first
        if len(parts) == 1:
            return parts[0].astype(self.dtype, copy=False)
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts], dtype=self.dtype)


class Scratch:
    """Rows of float32 that are written to a temporary file as they are made, in any order, and read back from it.

    The file is removed when nothing refers to it any more; what a killed process leaves is removed by the next one.

    Args:
        folder: Where to put the file; it is made if it is not there.
        dim: The length of a row.
    """

    def __init__(self, folder: Path, dim: int) -> None:
        self.dim = dim
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder, ".vectors.")
        self._resources = contextlib.ExitStack()
        self.path = self._resources.enter_context(beside(folder / "vectors"))
        self._file = self._resources.enter_context(self.path.open("r+b", buffering=0))
        weakref.finalize(self, self._resources.close)

    def write(self, row: int, vectors: NDArray[Any]) -> None:
        """Write rows (n, dim) from a row on."""
        self._file.seek(row * self.dim * 4)
        self._file.write(np.ascontiguousarray(vectors, "<f4").data)

    def read(self, row: int) -> NDArray[np.float32]:
        """Read one row."""
        return np.fromfile(self.path, "<f4", self.dim, offset=row * self.dim * 4)

    def rows(self, count: int) -> Shards:
        """Give the first rows as an array that stays in the file."""
        self._file.truncate(count * self.dim * 4)
        return Shards([Shard(self.path, count, self.dim, "<f4", count * self.dim * 4, 0)], self)


def _read(file: Shard, first: int, last: int) -> NDArray[Any]:
    """Read rows of one file, which must be what it was when it was opened, here and on other machines."""
    try:
        if file.path.stat().st_size != file.size:
            raise InputError(f"{file.path} has changed while it was used: start again")
        if file.offset < 0:
            return matrix(parquet_rows(file.path, file.columns, first, last), str(file.path)).astype(file.dtype)
        dtype = np.dtype(file.dtype)
        place = file.offset + first * file.dim * dtype.itemsize
        block = np.fromfile(file.path, dtype, (last - first) * file.dim, offset=place)
        return block.reshape(last - first, file.dim)
    except FileNotFoundError:
        import socket

        raise InputError(
            f"expected the pile at {file.path.absolute()}, but {socket.gethostname()} has no such file: put it on a "
            "disk that all machines see under the same path"
        ) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {file.path} ({error}): write it again") from None


def open_shard(path: Path, pattern: str = ".*", ignored: Sequence[str] = ()) -> Shard | None:
    """Find the vectors of a file; None if it holds none that can be read a few rows at a time.

    Args:
        path: A file in .npy, .safetensors or .parquet.
        pattern: What the names of columns of numbers must match, in lower case.
        ignored: Columns of numbers that are no part of a vector.
    """
    kind = path.suffix.lower()
    if kind == ".npy":
        return _open_npy(path)
    return _open_safetensors(path) if kind == ".safetensors" else _open_parquet(path, pattern, ignored)


def _open_npy(path: Path) -> Shard | None:
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read(file)
        except (ValueError, KeyError, SyntaxError):
            return None
        offset = file.tell()
    size = path.stat().st_size
    if (
        len(shape) != 2
        or 0 in shape
        or (fortran and 1 not in shape)
        or dtype not in (np.float16, np.float32, np.float64)
    ):
        return None
    if size < offset + shape[0] * shape[1] * dtype.itemsize:
        return None
    return Shard(path, shape[0], shape[1], dtype.str, size, offset)


def _open_safetensors(path: Path) -> Shard | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LARGEST_HEADER, size - 8):
            return None
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            return None
    roles = {str(name).lower(): entry for name, entry in header.items() if name != "__metadata__"}
    names = [name for name, role in ROLES.items() if role == "features" and name in roles]
    if not names or len([name for name in roles if name.rpartition(".")[2] in names]) > 1:  # none, or splits
        return None
    entry = roles[names[0]]
    try:
        (rows, dim), (start, stop) = entry["shape"], entry["data_offsets"]
        dtype = np.dtype(PRECISIONS[entry["dtype"]])
    except (KeyError, ValueError, TypeError):
        return None
    if stop - start != rows * dim * dtype.itemsize or 8 + length + stop > size or not rows * dim:
        return None
    return Shard(path, rows, dim, dtype.str, size, 8 + length + start)


def _open_parquet(path: Path, pattern: str, ignored: Sequence[str]) -> Shard | None:
    import re

    from pyarrow import ArrowException, parquet, types

    try:
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            names = {name.strip().lower(): name for name in reversed(schema.names)}
            lists = next((names[name] for name in VECTOR_COLUMNS if name in names), None)
            others = {*LABEL_COLUMNS, *OTHER_COLUMNS, *INDEX_COLUMNS}
            numbers = [
                field.name
                for field in schema
                if (types.is_integer(field.type) or types.is_floating(field.type))
                and field.name not in ignored
                and field.name.strip().lower() not in others
                and re.fullmatch(pattern, field.name.strip().lower())
            ]
            columns = (lists,) if lists is not None else tuple(numbers)
            if not columns or not rows or (lists is not None and not hasattr(schema.field(lists).type, "value_type")):
                return None
            first = next(file.iter_batches(1, columns=list(columns)))
    except (ArrowException, OSError):
        return None
    sample = matrix(first, str(path))
    dtype = sample.dtype if sample.dtype in (np.float16, np.float32, np.float64) else np.dtype(np.float32)
    return Shard(path, rows, sample.shape[1], dtype.str, path.stat().st_size, columns=columns)


def matrix(rows: Any, where: str) -> NDArray[Any]:
    """Make an array (n, d) of the columns of vectors of an Arrow table; gaps and uneven lists raise InputError.

    Half precision stays half precision. NaN stays too.
    """
    columns = [_whole(column) for column in rows.columns]
    if not hasattr(columns[0].type, "value_type"):
        if any(column.null_count for column in columns):
            raise InputError(
                f"expected a number in every row of {where}, but some are empty: correct or drop these rows"
            )
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
    cells = columns[0]
    flat = cells.flatten()
    count = len(cells)
    even = not cells.null_count and not flat.null_count and len(flat) % max(count, 1) == 0
    width = len(flat) // max(count, 1)
    if even and hasattr(cells, "offsets"):
        even = bool((np.diff(cells.offsets.to_numpy()) == width).all())
    values = flat.to_numpy(zero_copy_only=False) if even else np.empty(0, object)
    if not even or not width or values.dtype.kind not in "iuf":
        raise InputError(
            f"expected lists of numbers of one length in {where}, but some rows differ: correct or drop them"
        )
    return np.asarray(values.reshape(count, width))


def _whole(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


_cursors = threading.local()


def parquet_rows(path: Path, columns: Sequence[str], first: int, last: int) -> Any:
    """Read rows of columns of a Parquet file as an Arrow table, a batch at a time.

    Each thread remembers where it is in a file, so that reading on from there decodes nothing twice. To begin
    elsewhere, it decodes the row group from its start.
    """
    import pyarrow

    key = (str(path), tuple(columns))
    cursors: dict[Any, _Cursor] = _cursors.__dict__.setdefault("open", {})
    cursor = cursors.pop(key, None)
    if cursor is None or cursor.start > first:
        while len(cursors) >= 4:
            cursors.pop(next(iter(cursors))).close()
        cursor = _Cursor(path, columns, first)
    cursors[key] = cursor
    parts = []
    while first < last:
        batch = cursor.at(first)
        if batch is None:
            raise InputError(f"expected {last:,} rows in {path}, but it ends too early: write it again")
        rows = batch.slice(first - cursor.start, last - first)
        parts.append(rows)
        first += len(rows)
    if not parts:
        return pyarrow.table({name: pyarrow.array([]) for name in columns})
    return pyarrow.Table.from_batches(parts)


class _Cursor:
    """A place in a Parquet file that moves forward only."""

    def __init__(self, path: Path, columns: Sequence[str], first: int) -> None:
        from pyarrow import parquet

        self._file = parquet.ParquetFile(path, pre_buffer=False)
        sizes = [self._file.metadata.row_group(group).num_rows for group in range(self._file.metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = max(0, int(np.searchsorted(starts, first, side="right")) - 1)
        self.start, self._batch = int(starts[group]), None
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

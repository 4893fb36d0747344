"""Vectors in one file or in many, never all in memory: rows are read from the files when they are asked for."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.data.arrays import ROLES
from likelyshot.data.features import reading
from likelyshot.data.files import beside, remove_stale
from likelyshot.data.parquet import BATCH, find_vectors, matrix, parquet_rows
from likelyshot.errors import InputError

#: Extensions of files of vectors that can be read a few rows at a time.
STREAMED = (".npy", ".safetensors", ".parquet")
#: How numpy reads the types of safetensors. It has no bfloat16, which is the upper half of a float32.
STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "|b1", "U8": "|u1", "I8": "|i1"}
STORED |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (2, 4, 8)}
LARGEST_HEADER = 2**26


@dataclass(frozen=True)
class Shard:
    """A file of vectors, and where they are in it.

    Args:
        path: The file.
        rows: How many vectors it holds.
        dim: The length of a vector.
        dtype: The precision in which vectors are given, as numpy writes it.
        size: Bytes of the file when it was opened.
        offset: Where the first vector begins; -1 in Parquet.
        columns: The columns of Parquet that hold vectors: one of lists, or several of numbers.
        stored: The type in the file, as numpy or safetensors writes it. Default: `dtype`.
        by_column: Whether the first numbers of all vectors come first, as in Fortran.
    """

    path: Path
    rows: int
    dim: int
    dtype: str
    size: int
    offset: int = -1
    columns: tuple[str, ...] = ()
    stored: str = ""
    by_column: bool = False


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


@contextlib.contextmanager
def _as_opened(file: Shard) -> Iterator[None]:
    """Name a file in every error; it must be what it was when it was opened, here and on other machines."""
    try:
        if file.path.stat().st_size != file.size:
            raise InputError("the file has changed while it was used: start again")
        yield
    except InputError as error:
        raise InputError(f"{file.path}: {error}") from None
    except FileNotFoundError:
        import socket

        raise InputError(
            f"expected the pile at {file.path.absolute()}, but {socket.gethostname()} has no such file: put it on a "
            "disk that all machines see under the same path"
        ) from None
    except Exception as error:  # Arrow has many for a damaged file
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"cannot read {file.path} ({reason}): write it again") from error


def read_cells(file: Shard, columns: Sequence[str], first: int, last: int) -> Any:
    """Read rows of other columns of a Parquet file, as an Arrow table."""
    with _as_opened(file):
        return parquet_rows(file.path, columns, first, last)


def _read(file: Shard, first: int, last: int) -> NDArray[Any]:
    """Read rows of one file."""
    with _as_opened(file):
        if file.columns:
            rows = parquet_rows(file.path, file.columns, first, last)
            return matrix(rows, first=first, width=file.dim).astype(file.dtype, copy=False)
        stored = np.dtype(STORED.get(file.stored, file.stored or file.dtype))
        if file.by_column:
            mapped = np.memmap(file.path, stored, "r", file.offset, (file.rows, file.dim), "F")
            block = np.ascontiguousarray(mapped[first:last])
        else:
            place = file.offset + first * file.dim * stored.itemsize
            block = np.fromfile(file.path, stored, (last - first) * file.dim, offset=place)
            block = block.reshape(last - first, file.dim)
        if file.stored == "BF16":
            return (block.astype(np.uint32) << 16).view(np.float32)
        return block.astype(file.dtype, copy=False)


def open_shard(path: Path, pattern: str = ".*", ignored: Sequence[str] = ()) -> Shard | None:
    """Find the vectors of a file; None if it holds none, or several arrays of them. A damaged file raises InputError.

    Args:
        path: A file in .npy, .safetensors or .parquet.
        pattern: What the names of columns of numbers must match, in lower case.
        ignored: Columns of numbers that are no part of a vector.
    """
    kind = path.suffix.lower()
    with reading(path):
        size = path.stat().st_size
        if not size:
            raise InputError("expected vectors, but got an empty file: write it again")
        if kind == ".npy":
            return _open_npy(path, size)
        if kind == ".safetensors":
            return _open_safetensors(path, size)
        found = find_vectors(path, pattern, ignored)
        if found is None:
            return None
        rows, columns, first = found
        return Shard(path, rows, first.shape[1], _floating(first.dtype), size, columns=columns)


def same_columns(files: Sequence[Shard]) -> list[Shard]:
    """Have all tables give their columns in the order of the first; other columns raise InputError."""
    first = next((file for file in files if file.columns), None)
    if first is None:
        return list(files)
    for file in files:
        missing = [name for name in first.columns if name not in file.columns]
        further = [name for name in file.columns if name not in first.columns]
        if file.columns and (missing or further):
            got = [f"lacks {_listed(missing)}"] if missing else []
            got += [f"has {_listed(further)} besides"] if further else []
            raise InputError(
                f"expected the same columns of vectors in all files, but {file.path.name!r} {' and '.join(got)}, "
                f"compared with {first.path.name!r}: write all with the same columns"
            )
    return [replace(file, columns=first.columns) if file.columns else file for file in files]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _floating(dtype: np.dtype[Any]) -> str:
    """Name the precision in which vectors of a type are given: integers become float32, as everywhere."""
    return f"<f{min(dtype.itemsize, 8)}" if dtype.kind == "f" else "<f4"


def _check_size(size: int, needed: int) -> None:
    if size < needed:
        got = f"the file has {size:,}, so it was not written to its end"
        raise InputError(f"expected {needed:,} bytes, but {got}: write it again")


def _open_npy(path: Path, size: int) -> Shard | None:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version == (3, 0):  # which only structured arrays need
            return None
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        offset = file.tell()
    if len(shape) != 2 or 0 in shape or dtype.kind not in "biuf":
        return None
    _check_size(size, offset + shape[0] * shape[1] * dtype.itemsize)
    by_column = fortran and 1 not in shape
    return Shard(path, shape[0], shape[1], _floating(dtype), size, offset, stored=dtype.str, by_column=by_column)


def _open_safetensors(path: Path, size: int) -> Shard | None:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > LARGEST_HEADER:
            raise InputError("expected a safetensors file, but got something else or a damaged one: write it again")
        _check_size(size, 8 + length)
        header = json.loads(file.read(length))
    roles = {str(name).lower(): entry for name, entry in header.items() if name != "__metadata__"}
    names = [name for name, role in ROLES.items() if role == "features" and name in roles]
    if not names or len([name for name in roles if name.rpartition(".")[2] in names]) > 1:  # none, or splits
        return None
    entry = roles[names[0]]
    (start, stop), shape, kind = entry["data_offsets"], entry["shape"], entry["dtype"]
    if len(shape) != 2 or 0 in shape or kind not in STORED:
        return None
    (rows, dim), stored = shape, np.dtype(STORED[kind])
    if stop - start != rows * dim * stored.itemsize:
        raise InputError("expected a whole file, but its tensors have other sizes than it says: write it again")
    _check_size(size, 8 + length + stop)
    dtype = "<f4" if kind == "BF16" else _floating(stored)
    return Shard(path, rows, dim, dtype, size, 8 + length + start, stored=kind)

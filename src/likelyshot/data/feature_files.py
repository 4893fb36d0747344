"""Reading features from the many formats that people keep them in."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from likelyshot.data import pickles as restricted_pickle
from likelyshot.errors import InputError, nearest

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Stored names, in order of preference; a split may stand before or after: "train.features", "X_train".
WORDS = {
    **dict.fromkeys(("features", "x", "embeddings", "vectors"), "features"),
    **dict.fromkeys(("labels", "y", "targets"), "labels"),
    **{"classes": "classes", "mean": "mean", "within": "within"},
}
VECTOR_COLUMNS = ("embedding", "embeddings", "features", "vector")
LABEL_COLUMNS = ("label", "labels", "class", "target", "y")
OTHER_COLUMNS = ("path", "file", "filename", "image", "id", "split")
INDEX_COLUMNS = ("", "index", "unnamed: 0", "__index_level_0__")  # as pandas writes them
MARKS = {  # how the contents of files begin
    rb"\x93NUMPY": (".npy",),
    rb"PK\x03\x04": (".npz", ".pt", ".pth"),
    rb"PAR1": (".parquet",),
    rb"\x80[\x02-\x05]": (".pkl", ".pickle", ".plk", ".pt", ".pth"),
    rb".....\x00\x00\x00\{": (".safetensors",),
}
MISSING = ("None", "nan", "<NA>", "NaT")


class _Part(NamedTuple):
    """One split as it is stored."""

    vectors: Any
    labels: Any = None
    classes: Any = None
    source: Mapping[str, str] = MappingProxyType({})
    expected: str = "labels named labels, y or targets"


class _File(NamedTuple):
    """What a file holds, each split (the name is empty if there is but one set) read when called."""

    parts: Mapping[str, Callable[[], _Part]]
    stored: Mapping[tuple[str, str], Callable[[], Any]] = MappingProxyType({})  # statistics, by split and name


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of any failure in which file it was."""
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            yield
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None
    except OSError as error:
        raise InputError(f"expected a file that can be read, but got {error}: check the path") from None
    except Exception as error:  # zipfile, zlib, struct, arrow, ...: a damaged file can raise nearly anything
        got = f"damaged data ({type(error).__name__}: {str(error)[:120]!r})"
        raise InputError(f"{path.name}: expected a whole file, but got {got}: write it again") from error


def open_features(path: Path) -> _File:
    """Leave a file to the reader of its extension, unless it begins like one of another kind."""
    if not path.is_file():
        found = "it is a folder" if path.is_dir() else "nothing is there"
        raise InputError(f"expected a file of features in {path.absolute().parent}, but {found}: check the path")
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise InputError("expected features, but got an empty file: write it again")
    looks = next((kinds for mark, kinds in MARKS.items() if re.match(mark, head, re.DOTALL)), ())
    kind = path.suffix.lower()
    if kind not in READERS or (looks and kind not in looks):
        hint = f"its content looks like {' or '.join(looks)}, so rename it" if looks else "convert it"
        raise InputError(f"expected one of {' '.join(READERS)}, but got {kind or 'no extension'!r}: {hint}")
    return READERS[kind](path)


def choose_split(split: str | None, parts: Mapping[str, object]) -> str:
    """Settle which split is meant: the one named, the only one, or "test"."""
    names = [name for name in parts if name]
    if split is not None:
        if split not in names:
            hint = nearest(split, names) if names else "leave it out, the file is one set"
            raise InputError(f"expected the name of a split, but got {split!r}: {hint}")
        return split
    if "" in parts:
        return ""
    if len(names) > 1 and "test" not in names:
        raise InputError(f"expected a split called test, but got {', '.join(names)}: choose with split=")
    return names[0] if len(names) == 1 else "test"


def named_arrays(
    names: Sequence[str],
    read: Callable[[str], Any],
    classes: Any = None,
    source: Mapping[str, str] | None = None,
) -> _File:
    """Sort the arrays of a file by split and role."""
    word = f"(?P<word>{'|'.join(WORDS)})"
    forms = (rf"((?P<split>.+)[._])?{word}", rf"{word}[._](?P<split>.+)")
    tries = [re.fullmatch(forms[0], name, re.I) or re.fullmatch(forms[1], name, re.I) for name in names]
    found: dict[str, dict[str, str]] = {}  # split -> role -> name
    for match in sorted(filter(None, tries), key=lambda match: list(WORDS).index(match["word"].lower())):
        found.setdefault(match["split"] or "", {}).setdefault(WORDS[match["word"].lower()], match[0])

    def part(split: str) -> _Part:
        roles = found[split]
        listed = roles.get("classes") or found.get("", {}).get("classes")
        stored = classes.get(split) if isinstance(classes, dict) else classes
        labels = read(roles["labels"]) if "labels" in roles else None
        return _Part(read(roles["features"]), labels, read(listed) if listed else stored, source or {})

    parts = {split: partial(part, split) for split, roles in found.items() if "features" in roles}
    if not parts:
        held = ", ".join(names)[:200] or "nothing"
        raise InputError(f"expected arrays named features and labels, but got {held}: rename them")
    kinds = [(split, role) for split, roles in found.items() for role in ("mean", "within") if role in roles]
    return _File(parts, {(split, role): partial(read, found[split][role]) for split, role in kinds})


def _open_safetensors(path: Path) -> _File:
    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor.clone()  # a view of the file would end with it

    with safe_open(path, framework="pt") as file:
        names, notes = sorted(file.keys()), dict(file.metadata() or {})
    return named_arrays(names, read, json.loads(notes.pop("classes", "null")), notes)


def _open_npz(path: Path) -> _File:
    def read(name: str) -> Any:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file, _without_objects():
            return file[name]

    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        return named_arrays(file.files, read)


def _open_npy(path: Path) -> _File:
    stems = (f"{path.stem}.labels", f"{path.stem}_labels", "labels")
    beside = [path.with_name(stem + kind) for kind in (".npy", ".txt") for stem in stems]
    labels = next((file for file in beside if file != path and file.is_file()), None)
    expected = f"labels beside it in {', '.join(file.name for file in beside)}"
    return _File({"": lambda: _Part(_read_npy(path), labels, expected=expected)})


def _read_npy(path: Path) -> Any:
    with _without_objects():  # a map is checked against the size of the file before memory is taken
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


@contextmanager
def _without_objects() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "object" not in str(error).lower():
            raise
        raise InputError("expected plain arrays, but got objects: save np.stack(rows) or dtype=str") from None


def read_labels(path: Path) -> Any:
    """Read one label per line, or an array."""
    with reading(path):
        if path.suffix.lower() == ".npy":
            return _read_npy(path)
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
        rows = list(csv.reader(lines)) if path.suffix.lower() == ".csv" else [[line.strip()] for line in lines]
        if any(len(row) > 1 for row in rows):
            raise InputError("expected one label per line, but got several columns: keep that of the labels")
        return _text_labels(["".join(row) for row in rows])


def _text_labels(cells: Sequence[str]) -> Sequence[int | str]:
    """Whole numbers if all labels are, so that 10 follows 9; but 007 is a name."""
    if "" in cells:
        raise _wrong(cells.index(""), "a label", "an empty cell")
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", cell) for cell in cells)
    return [int(cell) for cell in cells] if whole else cells


def _open_object(read: Callable[[Path], object], path: Path) -> _File:
    """Take the first dict class -> vectors, or else a dict of features and labels."""
    held = read(path)
    items = held if isinstance(held, (list, tuple)) else [held]
    tables = [item for item in items if isinstance(item, dict)]
    for table in tables:
        named = {str(key).lower() for key in table} <= set(WORDS)
        if not named and all(_ndim(value) == 2 for value in table.values()):
            return _File({"": partial(_by_class, table)})
    for table in tables:
        return named_arrays([key for key in table if isinstance(key, str)], table.__getitem__)
    raise InputError(f"expected a dict class -> vectors, but got a {type(held).__name__}: save it as npz")


def _ndim(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + (_ndim(value[0]) if value else 1)
    return getattr(value, "ndim", 0)


def _by_class(table: Mapping[Any, Any]) -> _Part:
    keys = in_order(table)
    blocks = [float_tensor(table[key]) for key in keys]
    filled = [block for block in blocks if block.numel()]
    widths = sorted({block.shape[1] for block in filled})
    if len(widths) != 1:
        raise InputError(f"expected vectors of one length, but got {widths[:5]}: keep those of one encoder")
    labels = [label for label, block in enumerate(blocks) for _ in range(len(block) if block.numel() else 0)]
    return _Part(torch.cat(filled), labels, [str(name) for name in plain_values(keys)])


def _open_csv(path: Path) -> _File:
    import pyarrow
    from pyarrow import csv as arrow

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file, delimiter=delimiter), [])
    try:
        table = arrow.read_csv(
            path,
            arrow.ReadOptions(use_threads=False, block_size=min(path.stat().st_size + 1, 2**30)),
            arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow.ConvertOptions(column_types=dict.fromkeys(header, pyarrow.string())),  # 007 stays 007
        )
    except pyarrow.ArrowInvalid as error:
        uneven = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
        if not uneven:
            raise
        raise _wrong(int(uneven[1]) - 2, f"{uneven[2]} cells", uneven[3]) from None  # the header is row 1
    return _open_table(table, is_text=True)


def _open_parquet(path: Path) -> _File:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        return _open_table(file.read(), is_text=False)


def _open_table(table: Any, is_text: bool) -> _File:
    """Find the columns of splits, labels and vectors."""
    columns = [(name.strip().lower(), table.column(i)) for i, name in enumerate(table.column_names)]

    def first(names: Iterable[str]) -> Any:
        return next((column for wanted in names for name, column in columns if name == wanted), None)

    def part(split: str) -> _Part:
        rows = [row for row, name in enumerate(of_rows) if name == split]
        labels, vectors = first(LABEL_COLUMNS), first(VECTOR_COLUMNS)
        if labels is not None:
            cells = _text_labels(_cells("label", labels)) if is_text else _cells("label", labels)
            labels = [cells[row] for row in rows]
        if vectors is None:
            ignored = LABEL_COLUMNS + OTHER_COLUMNS + INDEX_COLUMNS
            others = [(name, column) for name, column in columns if name not in ignored]
            numbers = [found for name, column in others if (found := number_column(name, column)) is not None]
            if not numbers:
                held = ", ".join(table.column_names)[:200]
                raise InputError(f"expected a header and columns of numbers, but got {held}: add them")
            vectors = np.column_stack(numbers)
        else:
            vectors = vector_lists(vectors)
        return _Part(vectors[rows], labels, expected=f"a column named {', '.join(LABEL_COLUMNS[:-1])} or y")

    if not len(table):
        raise InputError("expected rows of features, but got none: write the file again")
    column = first(["split"])
    of_rows = [""] * len(table) if column is None else [str(cell) for cell in _cells("split", column)]
    return _File({split: partial(part, split) for split in dict.fromkeys(of_rows)})


def _wrong(row: int, expected: str, got: str) -> InputError:
    return InputError(f"row {row + 1}: expected {expected}, but got {got[:80]}: mend or drop the row")


def _cells(name: str, column: Any) -> list[Any]:
    cells: list[Any] = column.to_pylist()
    empty = next((row for row, cell in enumerate(cells) if cell is None or cell == ""), None)
    if empty is not None:
        raise _wrong(empty, f"a value in column {name!r}", "an empty cell")
    return cells


def _is_text(column: Any) -> bool:
    from pyarrow import types

    return any(check(column.type) for check in (types.is_string, types.is_large_string, types.is_null))


def _number(cell: str | None) -> float | None:
    try:
        return float(cell or "")
    except ValueError:
        return None


def number_column(name: str, column: Any) -> Any:
    """The numbers of a column, or None if it is not one of numbers, such as text throughout."""
    from pyarrow import ArrowInvalid, float64, types

    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_decimal(column.type):
        if column.null_count:
            _cells(name, column)  # says in which row
        return (column.cast(float64()) if types.is_decimal(column.type) else column).to_numpy()
    if not _is_text(column):
        return None
    with suppress(ArrowInvalid):
        if not column.null_count:
            return column.cast(float64()).to_numpy().astype(np.float32)
    cells = column.to_pylist()
    numbers = [_number(cell) for cell in cells]
    if None in numbers and (numbers.count(None) < len(numbers) or not any(cells)):
        bad = numbers.index(None)
        raise _wrong(bad, f"a number in column {name!r}", repr(cells[bad]) if cells[bad] else "an empty cell")
    return None if None in numbers else np.array(numbers, dtype=np.float32)


def _vector(text: str) -> Any:
    """The numbers of "[0.1, 0.2]", "0.1;0.2" or "0.1 0.2", NaN if one is not a number."""
    text = text.strip(" \t\r\n[]()")
    words = re.split("[,;]", text) if "," in text or ";" in text else text.split()
    try:
        return np.array([float(word) for word in words], dtype=np.float32)
    except ValueError:
        return np.full(max(1, len(words)), np.nan)


def vector_lists(column: Any) -> Any:
    """A column of lists, or of text such as "[0.1, 0.2]", as an array (n, d)."""
    rows: list[Any]
    if _is_text(column):
        rows = [_vector(cell) for cell in _cells("embedding", column)]
    elif hasattr(column.type, "value_type"):
        rows = [np.empty(0) if row is None else np.asarray(row) for row in column.to_numpy()]
    else:
        raise InputError(f"expected lists in the column of vectors, but got {column.type}: rename it")
    width = len(rows[0])
    for row, vector in enumerate(rows):
        if len(vector) != (width or 1) or vector.dtype.kind not in "iuf" or np.isnan(vector).any():
            raise _wrong(row, f"{width or 'some'} numbers", repr(column[row].as_py()))
    return np.stack(rows)


def _read_pickle(path: Path) -> object:
    return restricted_pickle.load(path.read_bytes())


def _read_torch(path: Path) -> object:
    try:
        held: object = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:  # torch's own advice, weights_only=False, is not for files of others
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        got = found[1] if found else "something else"
        raise InputError(f"expected plain tensors, but got {got}: save them as safetensors") from error
    return held


def float_tensor(values: Any) -> Tensor:
    """A tensor of floating point numbers, without a copy where that is possible."""
    is_list = isinstance(values, (list, tuple)) and len(values) > 0
    try:
        if is_list and all(isinstance(value, Tensor) for value in values):
            values = torch.stack(tuple(values))
        if not isinstance(values, Tensor):
            plain = is_list and not hasattr(values[0], "dtype")
            with np.errstate(over="ignore"):
                array = np.asarray(values, dtype=np.float32 if plain else None)
                if array.dtype.kind not in "biuf":
                    raise TypeError(f"an array of {array.dtype}")
                kind = f"f{min(array.dtype.itemsize, 8)}" if array.dtype.kind == "f" else "f4"
                values = torch.from_numpy(np.require(array, dtype=kind, requirements=["C", "W"]))
        if values.layout != torch.strided or values.is_quantized or values.is_meta or values.is_complex():
            raise TypeError("a sparse, quantised, meta or complex tensor")
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        reason = str(error).split("\n")[0][:160]
        raise InputError(f"expected vectors of numbers, all of one length, but got {reason!r}: mend them") from None
    tensor: Tensor = values.detach()
    return tensor if tensor.dtype in FLOATS else tensor.float()


def plain_values(values: Any) -> list[Any]:
    """Labels as int, float or str: bytes are decoded, and 3.0 is 3."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError("a single text")
        values = values.tolist() if hasattr(values, "tolist") else list(values)
        plain = [value.item() if hasattr(value, "item") else value for value in values]
        plain = [value.decode() if isinstance(value, bytes) else value for value in plain]
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"expected a list of labels, but got {str(error)[:80]!r}: give one per row") from None
    for row, value in enumerate(plain):
        if isinstance(value, float) and value.is_integer():
            plain[row] = int(value)
        elif isinstance(value, (list, dict, set)) or (not isinstance(value, str) and str(value) in MISSING):
            raise InputError(f"expected one label, but got {str(value)[:80]} in row {row}: flatten or drop it")
        elif not isinstance(value, (str, int, float)):
            plain[row] = str(value)
    return plain


def unicode(text: str) -> str:
    """The text without halves of surrogate pairs, which no file could hold."""
    return text.encode("utf-8", "replace").decode()


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Numbers by size, all else by its text."""
    keys = list(keys)
    return sorted(keys, key=None if all(isinstance(key, (int, float)) for key in keys) else str)


READERS: dict[str, Callable[[Path], _File]] = {
    ".safetensors": _open_safetensors,
    ".npz": _open_npz,
    ".npy": _open_npy,
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".parquet": _open_parquet,
    **dict.fromkeys((".pkl", ".pickle", ".plk"), partial(_open_object, _read_pickle)),
    **dict.fromkeys((".pt", ".pth"), partial(_open_object, _read_torch)),
}

"""Vectors and labels as people give them: values in memory, and arrays in files by split and role."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from likelyshot.data import pickles
from likelyshot.errors import InputError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MISSING = ("None", "nan", "<NA>", "NaT")
#: Names of arrays and the role of each, best first; a split may stand before or after: "train.features", "X_train".
ROLES = {
    **dict.fromkeys(("features", "x", "embeddings", "vectors"), "features"),
    **dict.fromkeys(("labels", "y", "targets"), "labels"),
    **{"classes": "classes", "mean": "mean", "within": "within", "paths": "paths"},
}


def float_tensor(values: Any) -> Tensor:
    """Make a tensor of floating point numbers, without a copy where that is possible.

    Integers and Python's numbers become float32. A masked array with masked entries is refused, since a tensor would
    hold whatever is below the mask.
    """
    check_unmasked(values)
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
        raise InputError(
            f"expected vectors of numbers, all of one length, but got {reason!r}: give an array (n, d)"
        ) from None
    tensor: Tensor = values.detach()
    return tensor if tensor.dtype in FLOATS else tensor.float()


def check_unmasked(values: Any) -> None:
    """Refuse a masked array with masked entries, or a list with such an array in it.

    >>> check_unmasked(np.ma.masked_array([1.0, 2.0], [True, False]))
    Traceback (most recent call last):
    likelyshot.errors.InputError: expected values, but got a masked array with masked entries: fill them, or drop ...
    """
    parts = values if isinstance(values, (list, tuple)) else (values,)
    if any(np.ma.is_masked(part) for part in parts):
        raise InputError("expected values, but got a masked array with masked entries: fill them, or drop the rows")


def plain_values(values: Any) -> list[Any]:
    """Make labels int, float or str: bytes are decoded, and 3.0 is 3."""
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
            raise InputError(f"expected one label, but got {str(value)[:80]} in row {row + 1}: flatten or drop it")
        elif not isinstance(value, (str, int, float)):
            plain[row] = str(value)
    return plain


def number_classes(labels: Any, classes: Iterable[str] | None = None) -> tuple[list[int], tuple[str, ...]]:
    """Number the classes from 0: the number of each label, and the names of all classes.

    Args:
        labels: One label per row, of any kind.
        classes: Names of the classes. Integer labels are positions in it, and other labels are names in it. Without it,
            the classes are the different labels, numbers by size and all else in the order of its text.

    >>> number_classes(["dog", "cat", "dog"])
    ([1, 0, 1], ('cat', 'dog'))
    >>> number_classes([1, 0, 1], ["dog", "cat"])
    ([1, 0, 1], ('dog', 'cat'))
    """
    values = plain_values(labels)
    if classes is None:
        if not all(isinstance(value, (int, float)) for value in values):
            values = [str(value) for value in values]
        order = in_order(set(values))
        place = {value: i for i, value in enumerate(order)}
        return [place[value] for value in values], tuple(str(value) for value in order)
    names = tuple(str(name) for name in plain_values(classes))
    if values and all(isinstance(value, int) for value in values):
        check_range(min(values), max(values), names)
        return values, names
    known = {name: i for i, name in enumerate(names)}
    if len(known) < len(names):
        raise InputError("expected distinct classes, but got a name twice: use integer labels")
    if unknown := [str(value) for value in values if str(value) not in known]:
        raise InputError(f"expected a class name, but got {unknown[0]!r}: add it to classes")
    return [known[str(value)] for value in values], names


def check_range(low: int, high: int, classes: Sequence[str]) -> None:
    """Raise InputError unless the lowest and the highest label are positions in `classes`."""
    if low < 0 or high >= len(classes):
        expected = f"a label for each of {len(classes)} classes, from 0"
        raise InputError(f"expected {expected}, but got {low} to {high}: name all classes, or none")


def labelled_tensors(
    vectors: Any, labels: Any, classes: Iterable[str] | None = None
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Make tensors of vectors and labels of any kind: vectors (n, d), numbers of classes (n,), and their names.

    >>> labelled_tensors([[0.0, 1.0], [2.0, 3.0]], ["dog", "cat"])[1:]
    (tensor([1, 0]), ('cat', 'dog'))
    """
    tensor = float_tensor(vectors)
    numbers, names = number_classes(labels, classes)
    return tensor, torch.tensor(numbers, dtype=torch.int64, device=tensor.device), names


def check_labelled(vectors: Tensor, labels: Tensor, classes: Sequence[str]) -> None:
    """Raise InputError unless vectors (n, d) are finite and each has a label (n,) that is a position in `classes`."""
    shape = tuple(vectors.shape)
    if len(shape) != 2 or 0 in shape:
        raise InputError(f"expected vectors of shape (n, d), with n and d above 0, but got {shape}: reshape them")
    if vectors.dtype not in FLOATS or labels.dtype != torch.int64:
        got = f"{vectors.dtype} and {labels.dtype}"
        raise InputError(f"expected float vectors and int64 labels, but got {got}: use from_arrays")
    if labels.shape != shape[:1]:
        got = f"{shape[0]} rows and {' x '.join(map(str, labels.shape))} labels"
        raise InputError(f"expected one label per row, but got {got}: is one of them a header?")
    check_texts(classes, "class names")
    check_range(int(labels.min()), int(labels.max()), classes)
    bad = (~torch.isfinite(vectors)).any(1).nonzero().flatten().tolist()
    if bad:
        where = f"row {bad[0] + 1} (class {classes[int(labels[bad[0]])]!r})"
        got = f"NaN or infinity in {where}, {len(bad)} of {len(vectors)} rows in all"
        raise InputError(f"expected finite numbers, but got {got}: drop these rows")


def check_texts(texts: Iterable[Any], what: str) -> None:
    """Raise InputError unless all are texts that a file can hold."""
    if not all(isinstance(text, str) and unicode(text) == text for text in texts):
        raise InputError(f"expected text for {what}, but got something else: use str()")


def unicode(text: str) -> str:
    """Drop halves of surrogate pairs, which no file could hold."""
    return text.encode("utf-8", "replace").decode()


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Sort numbers by size, and all else by its text."""
    keys = list(keys)
    return sorted(keys, key=None if all(isinstance(key, (int, float)) for key in keys) else str)


class OneSplit(NamedTuple):
    """One split as it is stored."""

    vectors: Any
    labels: Any = None  # an array, or the file that has them
    classes: Any = None
    source: Mapping[str, str] = MappingProxyType({})
    expected: str = "labels named labels, y or targets"
    paths: Any = None  # text, or bytes as `PackedNames` has them


class Opened(NamedTuple):
    """What a file holds, each split (the name is empty if there is but one set) read when called."""

    parts: Mapping[str, Callable[[], OneSplit]]
    stored: Mapping[tuple[str, str], Callable[[], Any]] = MappingProxyType({})  # statistics, by split and name


def named_arrays(
    names: Sequence[str],
    read: Callable[[str], Any],
    classes: Any = None,
    source: Mapping[str, str] | None = None,
) -> Opened:
    """Sort the arrays of a file by split and role.

    Args:
        names: Of all arrays of the file.
        read: Reads an array by its name.
        classes: Names of the classes, or a dict of those of each split, where no array has them.
        source: What is known of the origin of the arrays.
    """
    word = f"(?P<word>{'|'.join(ROLES)})"
    forms = (rf"((?P<split>.+)[._])?{word}", rf"{word}[._](?P<split>.+)")
    matches = [re.fullmatch(forms[0], name, re.I) or re.fullmatch(forms[1], name, re.I) for name in names]
    splits: dict[str, dict[str, str]] = {}  # split -> role -> name
    for match in sorted(filter(None, matches), key=lambda match: list(ROLES).index(match["word"].lower())):
        splits.setdefault(match["split"] or "", {}).setdefault(ROLES[match["word"].lower()], match[0])

    def part(split: str) -> OneSplit:
        roles = splits[split]
        listed = roles.get("classes") or splits.get("", {}).get("classes")
        stored = classes.get(split) if isinstance(classes, dict) else classes
        labels = read(roles["labels"]) if "labels" in roles else None
        paths = read(roles["paths"]) if "paths" in roles else None
        names = read(listed) if listed else stored
        return OneSplit(read(roles["features"]), labels, names, source or {}, paths=paths)

    parts = {split: partial(part, split) for split, roles in splits.items() if "features" in roles}
    if not parts:
        got = ", ".join(names)[:200] or "nothing"
        raise InputError(f"expected arrays named features and labels, but got {got}: rename them")
    kinds = [(split, role) for split, roles in splits.items() for role in ("mean", "within") if role in roles]
    return Opened(parts, {(split, role): partial(read, splits[split][role]) for split, role in kinds})


#: Other files of ours that end in .safetensors, and what they are for.
CONTAINERS = {
    "model": "use it with likelyshot predict",
    "checkpoint": "use it with likelyshot extract IMAGES --checkpoint",
}


def open_safetensors(path: Path, *, mapped: bool = False) -> Opened:
    """Open a safetensors file; with `mapped`, its tensors stay in the file, which must not change then."""

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor if mapped else tensor.clone()

    with safe_open(path, framework="pt") as file:
        names, notes = sorted(file.keys()), dict(file.metadata() or {})
    for kind, remedy in CONTAINERS.items():
        if any(note.startswith(f"likelyshot.{kind}/") for note in notes):
            raise InputError(f"expected features, but got a {kind} of likelyshot: {remedy}")
    if notes.pop("head", None) is not None:  # of a trained method; likelyshot.heads reads it
        names = [name for name in names if not name.startswith("head.")]
    return named_arrays(names, read, json.loads(notes.pop("classes", "null")), notes)


def open_npz(path: Path) -> Opened:
    """Open a zip archive of numpy's arrays."""

    def read(name: str) -> Any:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file, _without_objects():
            return file[name]

    with path.open("rb") as opened, _without_objects(), np.load(opened, allow_pickle=False) as file:
        return named_arrays(file.files, read)


def open_npy(path: Path, *, mapped: bool = False) -> Opened:
    """Open one array of numpy's; its labels are in a file beside it. `mapped` as in `open_safetensors`."""
    stems = (f"{path.stem}.labels", f"{path.stem}_labels", "labels")
    beside = [path.with_name(stem + kind) for kind in (".npy", ".txt") for stem in stems]
    labels = next((file for file in beside if file != path and file.is_file()), None)
    expected = f"labels beside it in {', '.join(file.name for file in beside)}"
    return Opened({"": lambda: OneSplit(read_npy(path, mapped=mapped), labels, expected=expected)})


def read_npy(path: Path, *, mapped: bool = False) -> Any:
    """Read one array of numpy's."""
    with _without_objects():  # a map is checked against the size of the file before memory is taken
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array if mapped else np.array(array)


def open_pickle(path: Path) -> Opened:
    """Open a pickle that holds plain data only."""
    return _open_object(pickles.load(path.read_bytes()))


def open_torch(path: Path) -> Opened:
    """Open what `torch.save` wrote, if it holds plain data only."""
    try:
        content: object = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:  # torch's own advice, weights_only=False, is not for files of others
        kind = re.search(r"GLOBAL ([\w.]+)", str(error))
        got = kind[1] if kind else "something else"
        raise InputError(f"expected plain tensors, but got {got}: save them as safetensors") from error
    return _open_object(content)


def _open_object(content: object) -> Opened:
    """Take the first dict class -> vectors, or else a dict of features and labels."""
    items = content if isinstance(content, (list, tuple)) else [content]
    tables = [item for item in items if isinstance(item, dict)]
    for table in tables:
        named = {str(key).lower() for key in table} <= set(ROLES)
        if not named and all(_ndim(value) == 2 for value in table.values()):
            return Opened({"": partial(_by_class, table)})
    for table in tables:
        return named_arrays([key for key in table if isinstance(key, str)], table.__getitem__)
    raise InputError(f"expected a dict class -> vectors, but got a {type(content).__name__}: save it as npz")


def _by_class(table: Mapping[Any, Any]) -> OneSplit:
    keys = in_order(table)
    blocks = [float_tensor(table[key]) for key in keys]
    filled = [block for block in blocks if block.numel()]
    widths = sorted({block.shape[1] for block in filled})
    if len(widths) != 1:
        raise InputError(f"expected vectors of one length, but got {widths[:5]}: keep those of one encoder")
    labels = [label for label, block in enumerate(blocks) for _ in range(len(block) if block.numel() else 0)]
    return OneSplit(torch.cat(filled), labels, [str(name) for name in plain_values(keys)])


def _ndim(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + (_ndim(value[0]) if value else 1)
    return getattr(value, "ndim", 0)


@contextmanager
def _without_objects() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "pickled" in str(error):  # numpy's own advice, allow_pickle=True, is not for files of others
            raise InputError("expected numpy arrays, but got something else: write the file again") from None
        if "object" not in str(error).lower():
            raise
        raise InputError("expected plain arrays, but got objects: save np.stack(rows) or dtype=str") from None

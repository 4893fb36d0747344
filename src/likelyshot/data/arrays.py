"""Arrays in safetensors, npz, npy, pickles of plain data and pt, by split and role."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from likelyshot.data.values import float_tensor, in_order, plain_values
from likelyshot.errors import InputError

#: Names of arrays and the role of each, best first; a split may stand before or after: "train.features", "X_train".
ROLES = {
    **dict.fromkeys(("features", "x", "embeddings", "vectors"), "features"),
    **dict.fromkeys(("labels", "y", "targets"), "labels"),
    **{"classes": "classes", "mean": "mean", "within": "within"},
}


class Part(NamedTuple):
    """One split as it is stored."""

    vectors: Any
    labels: Any = None  # an array, or the file that has them
    classes: Any = None
    source: Mapping[str, str] = MappingProxyType({})
    expected: str = "labels named labels, y or targets"


class Opened(NamedTuple):
    """What a file holds, each split (the name is empty if there is but one set) read when called."""

    parts: Mapping[str, Callable[[], Part]]
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

    def part(split: str) -> Part:
        roles = splits[split]
        listed = roles.get("classes") or splits.get("", {}).get("classes")
        stored = classes.get(split) if isinstance(classes, dict) else classes
        labels = read(roles["labels"]) if "labels" in roles else None
        return Part(read(roles["features"]), labels, read(listed) if listed else stored, source or {})

    parts = {split: partial(part, split) for split, roles in splits.items() if "features" in roles}
    if not parts:
        got = ", ".join(names)[:200] or "nothing"
        raise InputError(f"expected arrays named features and labels, but got {got}: rename them")
    kinds = [(split, role) for split, roles in splits.items() for role in ("mean", "within") if role in roles]
    return Opened(parts, {(split, role): partial(read, splits[split][role]) for split, role in kinds})


def open_safetensors(path: Path, *, mapped: bool = False) -> Opened:
    """Open a safetensors file; with `mapped`, its tensors stay in the file, which must not change then."""

    def read(name: str) -> Tensor:
        with safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor if mapped else tensor.clone()

    with safe_open(path, framework="pt") as file:
        names, notes = sorted(file.keys()), dict(file.metadata() or {})
    return named_arrays(names, read, json.loads(notes.pop("classes", "null")), notes)


def open_npz(path: Path) -> Opened:
    """Open a zip archive of numpy's arrays."""

    def read(name: str) -> Any:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file, _without_objects():
            return file[name]

    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        return named_arrays(file.files, read)


def open_npy(path: Path, *, mapped: bool = False) -> Opened:
    """Open one array of numpy's; its labels are in a file beside it. `mapped` as in `open_safetensors`."""
    stems = (f"{path.stem}.labels", f"{path.stem}_labels", "labels")
    beside = [path.with_name(stem + kind) for kind in (".npy", ".txt") for stem in stems]
    labels = next((file for file in beside if file != path and file.is_file()), None)
    expected = f"labels beside it in {', '.join(file.name for file in beside)}"
    return Opened({"": lambda: Part(read_npy(path, mapped=mapped), labels, expected=expected)})


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


def _by_class(table: Mapping[Any, Any]) -> Part:
    keys = in_order(table)
    blocks = [float_tensor(table[key]) for key in keys]
    filled = [block for block in blocks if block.numel()]
    widths = sorted({block.shape[1] for block in filled})
    if len(widths) != 1:
        raise InputError(f"expected vectors of one length, but got {widths[:5]}: keep those of one encoder")
    labels = [label for label, block in enumerate(blocks) for _ in range(len(block) if block.numel() else 0)]
    return Part(torch.cat(filled), labels, [str(name) for name in plain_values(keys)])


def _ndim(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + (_ndim(value[0]) if value else 1)
    return getattr(value, "ndim", 0)


@contextmanager
def _without_objects() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "object" not in str(error).lower():
            raise
        raise InputError("expected plain arrays, but got objects: save np.stack(rows) or dtype=str") from None

"""Piles out of files of features, which may be larger than memory."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.data import feature_files
from likelyshot.data.feature_files import choose_split, float_tensor, plain_values, read_labels
from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.own_data.piles.pile import Numbered, Pile

MAPPED = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}  # what numpy can map out of a safetensors file


def read_features(path: Path, labelled: bool) -> Pile:
    """Read vectors, and their labels if they are wanted; those of .npy and .safetensors are mapped, not read."""
    kind = path.suffix.lower()
    if kind == ".npy" and not labelled:
        return vector_pile(np.load(path, mmap_mode="r", allow_pickle=False))
    parts = (_map_safetensors(path) if kind == ".safetensors" else feature_files.open_features(path)).parts
    part = parts[choose_split(None, parts)]()
    pile = vector_pile(part.vectors)
    if not labelled:
        return pile
    if part.labels is None:
        raise InputError(f"expected {part.expected}, but found no labels: add them")
    labels = plain_values(read_labels(part.labels) if isinstance(part.labels, Path) else part.labels)
    if len(labels) != len(pile.items):
        raise InputError(
            f"expected one label per row, but got {len(pile.items)} rows and {len(labels)} labels: match them"
        )
    if part.classes is not None and all(isinstance(label, int) for label in labels):
        names = [str(name) for name in plain_values(part.classes)]
        if labels and not 0 <= min(labels) <= max(labels) < len(names):
            raise InputError(
                f"expected labels below {len(names)}, the number of classes, but got {max(labels)}: mend them"
            )
        labels = [names[label] for label in labels]
    items = [Item(item.name, str(label)) for item, label in zip(pile.items, labels, strict=True)]
    return replace(pile, items=items)


def vector_pile(values: Any) -> Pile:
    """Make a pile of vectors (n, d), in half, single or double precision."""
    if not (isinstance(values, np.ndarray) and values.dtype.newbyteorder("<").str in MAPPED.values()):
        tensor = float_tensor(values).cpu()
        values = (tensor.float() if tensor.element_size() == 2 else tensor).numpy()  # numpy has no bfloat16
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"expected vectors of shape (n, d), none zero, but got {values.shape}: reshape them")
    return Pile(Numbered(len(values)), values, [], "features")


def _map_safetensors(path: Path) -> Any:
    """Open a file as `open_features` does, but leave its arrays on disk."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:  # checks the header against the size of the file
        names, notes = sorted(file.keys()), dict(file.metadata() or {})
    with path.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(length))

    def read(name: str) -> Any:
        entry = header[name]
        kind = MAPPED.get(entry["dtype"])
        if kind is None or 0 in entry["shape"]:
            with safe_open(path, framework="pt") as file:
                return file.get_tensor(name).clone()
        start = 8 + length + entry["data_offsets"][0]
        return np.memmap(path, kind, "r", start, tuple(entry["shape"]))

    return feature_files.named_arrays(names, read, json.loads(notes.pop("classes", "null")), notes)

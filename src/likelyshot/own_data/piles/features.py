"""Piles out of files of features, which may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from likelyshot.data.arrays import float_tensor, number_classes
from likelyshot.data.features import choose_split, open_features, read_labels, read_paths
from likelyshot.errors import InputError
from likelyshot.own_data.piles.pile import Listed, Numbered, Pile


def read_features(path: Path, labelled: bool, folders: Sequence[Path] = ()) -> Pile:
    """Read vectors, and their labels if they are wanted; those of .npy and .safetensors are mapped, not read.

    Items have the paths that the file keeps, and are found again within `folders`.
    """
    parts = open_features(path, mapped=True).parts
    part = parts[choose_split(None, parts)]()
    pile = vector_pile(part.vectors)
    paths = read_paths(part.paths)
    if paths is not None:
        if len(paths) != len(pile.items):
            got = f"{len(pile.items)} rows and {len(paths)} paths"
            raise InputError(f"expected one path per row, but got {got}: write the file again")
        pile = replace(pile, items=Listed(paths, folders))
    if not labelled:
        return pile
    if part.labels is None:
        raise InputError(f"expected {part.expected}, but found no labels: add them")
    numbers, names = number_classes(read_labels(part.labels), part.classes)
    if len(numbers) != len(pile.items):
        got = f"{len(pile.items)} rows and {len(numbers)} labels"
        raise InputError(f"expected one label per row, but got {got}: give as many labels as rows")
    items = [replace(item, label=names[number]) for item, number in zip(pile.items, numbers, strict=True)]
    return replace(pile, items=items)


def vector_pile(values: Any) -> Pile:
    """Make a pile of vectors (n, d), in half, single or double precision."""
    if not (isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32, np.float64)):
        tensor = float_tensor(values).cpu()
        values = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()  # unknown to numpy
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(f"expected vectors of shape (n, d), none zero, but got {values.shape}: reshape them")
    return Pile(Numbered(len(values)), values, [], "features")

"""Vectors and labels as people give them, as tensors and plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likelyshot.errors import InputError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MISSING = ("None", "nan", "<NA>", "NaT")


def float_tensor(values: Any) -> Tensor:
    """Make a tensor of floating point numbers, without a copy where that is possible.

    Integers and Python's numbers become float32. A masked array with masked entries is refused, since a tensor would
    hold whatever is below the mask.
    """
    is_list = isinstance(values, (list, tuple)) and len(values) > 0
    if any(np.ma.is_masked(part) for part in (values if is_list else (values,))):
        raise InputError("expected numbers, but got a masked array with masked entries: fill them, or drop the rows")
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
            raise InputError(f"expected one label, but got {str(value)[:80]} in row {row}: flatten or drop it")
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


def unicode(text: str) -> str:
    """Drop halves of surrogate pairs, which no file could hold."""
    return text.encode("utf-8", "replace").decode()


def in_order(keys: Iterable[Any]) -> list[Any]:
    """Sort numbers by size, and all else by its text."""
    keys = list(keys)
    return sorted(keys, key=None if all(isinstance(key, (int, float)) for key in keys) else str)

"""A reader of pickles that can only make plain containers and numpy arrays.

Few-shot repositories share their features as pickles, and a pickle may run any program when it is opened.
This reader has a stand-in of its own for the few globals that such pickles need, and refuses all others:

* containers: dict, list, tuple, set, frozenset, OrderedDict and defaultdict (both become dict);
* values: str, bytes, int, float, bool, None; numpy scalars become Python's;
* numpy arrays of bool, int, uint, float, complex, bytes or str (not object), read-only views of the data.

It is built on the unpickler in Python rather than the one in C, which allocates tens of gigabytes for the
five bytes of a LONG_BINPUT opcode with a large index. Numpy's own `__setstate__` never sees a file's content.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from likelyshot.errors import InputError

EXPECTED = "expected a pickle of plain containers and arrays, but it"
REMEDY = "save the features as safetensors or npz where the pickle was made"
SHARING = 16  # a legitimate pickle names each number about once: unfolded, at most this many values per byte
PLAIN_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|[SU][1-9][0-9]*")


def load(data: bytes) -> object:
    """Read a pickle of any protocol; anything but plain containers and arrays is an InputError.

    >>> load(pickle.dumps({"cat": [np.float32(0.5), 1]}))
    {'cat': [0.5, 1]}
    """
    try:
        content = _Unpickler(io.BytesIO(data), encoding="latin1").load()  # latin1: arrays from Python 2
        return _unfold(content, SHARING * len(data))
    except InputError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything, as the documentation of pickle says
        reason = f"{type(error).__name__}: {str(error)[:80]!a}"
        raise InputError(f"{EXPECTED} is damaged or of another kind ({reason}): {REMEDY}") from error


class _StandIn:
    """What a pickle gets in place of a global or array: no attributes to set, and never a key."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise TypeError("not a plain value")

    def __setstate__(self, state: Any) -> None:
        _refuse("a pickle that changes a function")


class _Global(_StandIn):
    """A function that a pickle may call."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self.call = call

    def __call__(self, *args: Any) -> object:
        return self.call(*args)


class _Dtype(_StandIn):
    __slots__ = ("name", "order")

    def __init__(self, name: Any, *_: Any) -> None:
        if not isinstance(name, str) or not PLAIN_DTYPE.fullmatch(name):
            _refuse(f"an array of dtype {name!a}")
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        order, *structure = state[1:5]  # (version, byte order, subarray, field names, fields, ...)
        if order not in ("<", ">", "|", "=") or structure != [None] * 3:
            _refuse("an array of a structured dtype")
        self.order = order


class _Array(_StandIn):
    __slots__ = ("array",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.array = _view(raw, dtype, shape, "F" if is_fortran else "C")


def _view(raw: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """Lay `shape` over the bytes, once they are known to be exactly as many as it needs."""
    raw = raw.encode("latin1") if isinstance(raw, str) else raw
    if not (isinstance(dtype, _Dtype) and isinstance(raw, (bytes, bytearray)) and isinstance(shape, tuple)):
        _refuse("an array without plain data")
    if not all(type(size) is int and size >= 0 for size in shape):
        _refuse(f"an array of shape {shape!a:.80}")
    plain = np.dtype(dtype.order + dtype.name)
    if math.prod(shape) * plain.itemsize != len(raw):
        _refuse(f"an array that claims shape {shape!a:.80} of {plain} but holds {len(raw)} bytes")
    array: np.ndarray[Any, Any] = np.ndarray(shape, plain, memoryview(raw).toreadonly(), order=order)
    if plain.kind == "U" and array.size:
        points = np.frombuffer(raw, np.dtype(dtype.order + "u4"))
        if points.max() > 0x10FFFF:
            _refuse("text that is not Unicode")
    return array


def _reconstruct(subtype: Any, *_: Any) -> _Array:
    if subtype is not _NDARRAY:
        _refuse("an array of another type than numpy.ndarray")
    return _Array()


def _frombuffer(raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> _Array:
    array = _view(raw, dtype, shape, "F" if order == "F" else "C")
    result = _Array()
    result.array = array if axes is None else array.transpose(axes)
    return result


def _scalar(dtype: Any, raw: Any) -> object:
    return _view(raw, dtype, (), "C").item()


def _encode(text: str, encoding: str = "") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        _refuse("text in another encoding than latin1")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    return dict(pairs)


def _defaultdict(factory: Any = None) -> dict[Any, Any]:
    if factory is not None and factory is not _LIST and factory is not _DICT:
        _refuse("a defaultdict of anything but lists and dicts")
    return {}


def _refuse(what: str, *_: Any) -> NoReturn:
    raise InputError(f"{EXPECTED} holds {what}, which is not read: {REMEDY}")


_NDARRAY = _Global(lambda *_: _refuse("a call of numpy.ndarray"))
_LIST = _Global(lambda *_: _refuse("a call of list"))
_DICT = _Global(_dict)

_BY_NAME = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Global(_reconstruct) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _Global(_scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Global(_frombuffer) for core in ("core", "_core")},
    **{(module, "list"): _LIST for module in ("builtins", "__builtin__")},
    **{(module, "dict"): _DICT for module in ("builtins", "__builtin__")},
    **{(module, "set"): _Global(set) for module in ("builtins", "__builtin__")},
    **{(module, "frozenset"): _Global(frozenset) for module in ("builtins", "__builtin__")},
    **{(module, "bytes"): _Global(_empty_bytes) for module in ("builtins", "__builtin__")},
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Global(_Dtype),
    ("_codecs", "encode"): _Global(_encode),
    ("collections", "OrderedDict"): _DICT,
    ("collections", "defaultdict"): _Global(_defaultdict),
}


class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _BY_NAME:
            _refuse(f"the global {f'{module}.{name}'!a:.80}")
        return _BY_NAME[module, name]

    def persistent_load(self, pid: Any) -> Any:
        _refuse("a persistent id")


def _unfold(content: object, limit: int) -> object:
    """Put the arrays in the places of their stand-ins; refuse cycles and endlessly repeated values."""
    seen: dict[int, tuple[object, object, int]] = {}  # id -> (kept alive, its replacement, values in it)

    def visit(value: Any) -> tuple[Any, int]:
        if isinstance(value, _Array):
            return value.array, value.array.size + 1
        if isinstance(value, _StandIn):
            _refuse("a bare function or dtype")
        if not isinstance(value, (list, tuple, dict)):
            return value, 1
        if id(value) in seen:
            _, replacement, count = seen[id(value)]
            return (_refuse("a container inside itself") if count == 0 else replacement), count
        seen[id(value)] = value, value, 0
        pairs = [visit(item) for item in (value.values() if isinstance(value, dict) else value)]
        items = [item for item, _ in pairs]
        count = 1 + sum(count for _, count in pairs)
        if count > limit:
            _refuse("the same values over and over")
        if isinstance(value, tuple):
            replacement = tuple(items)
        elif isinstance(value, list):
            value[:] = items
            replacement = value
        else:
            value.update(zip(list(value), items, strict=True))
            replacement = value
        seen[id(value)] = value, replacement, count
        return replacement, count

    return visit(content)[0]

from __future__ import annotations

import collections
import contextlib
import itertools
import operator
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from likelyshot.data import pickles
from likelyshot.errors import InputError

PROTOCOLS = range(6)
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "S3", "U4"]
DTYPES += [">i2", ">i4", ">u8", ">f2", ">f4", ">f8", ">c8", ">U4"]


class Call:
    """Pickles as a call of any function with any arguments, then BUILD with any state."""

    def __init__(self, function, *args, state=None):
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.parts


def refused(data: bytes, match: str = "expected a pickle") -> None:
    with pytest.raises(InputError, match=match):
        pickles.load(data)


def an_array(dtype: str) -> np.ndarray:
    numbers = np.arange(12) - (0 if dtype[0] == "u" else 3)
    return numbers.astype(dtype).reshape(3, 4)


def same(a, b) -> bool:
    # ours keep the byte order of the file, numpy's own are swapped as they are read
    return a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and a.shape == b.shape and bool((a == b).all())


def test_arrays_equal_those_of_pickle():
    for dtype, protocol in itertools.product(DTYPES, PROTOCOLS):
        array = an_array(dtype)
        views = [
            array,
            np.asfortranarray(array),
            array[::2, 1:],
            array[0],
            array[:0],
            array[1, 2, None].reshape(()),
        ]
        data = pickle.dumps(views, protocol=protocol)
        for ours, theirs in zip(pickles.load(data), pickle.loads(data), strict=True):
            assert same(ours, theirs), (dtype, protocol)


def test_transposed_arrays_of_three_axes():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for protocol, axes in itertools.product(PROTOCOLS, [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)]):
        loaded = pickles.load(pickle.dumps(array.transpose(axes), protocol))
        assert same(loaded, array.transpose(axes)), (protocol, axes)


def test_containers_and_scalars():
    by_class = collections.defaultdict(list, {np.int64(3): [np.ones(2)], "é\n": []})
    held = [
        {"a": (1, 2.5, None, True), "b": {1, 2}, "c": frozenset("xy"), "d": b"\x00\xff", "e": b"", 2**80: -1},
        collections.OrderedDict([("z", 1), ("y", 2)]),
        collections.defaultdict(dict, a={}),
        collections.defaultdict(None, b=1),
        [np.float32(0.5), np.int8(-1), np.bool_(True), np.str_("ü"), np.bytes_(b"x"), np.float64(1.5)],
        (),
    ]
    for protocol in PROTOCOLS:
        assert pickles.load(pickle.dumps(held, protocol)) == held, protocol
        loaded = pickles.load(pickle.dumps(by_class, protocol))
        assert type(loaded) is dict
        assert list(loaded) == [3, "é\n"], protocol


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=10,
    ),
    st.sampled_from(PROTOCOLS),
)
@settings(max_examples=80, deadline=None)
def test_plain_values_equal_those_of_pickle(held, protocol):
    assert pickles.load(pickle.dumps(held, protocol)) == held


def test_python_2_wrote_bytes_as_text():
    raw = np.array([1.5, -2.0], "<f4").tobytes()
    data = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02\x85"
        b"cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U"
        + bytes([len(raw)]) + raw + b"tb."
    )  # fmt: skip
    assert pickles.load(data).tolist() == [1.5, -2.0]


def test_a_shared_array_stays_one_array():
    array = np.ones(3)
    first, second = pickles.load(pickle.dumps([array, (array,)]))
    assert first is second[0]
    assert not first.flags.writeable


@pytest.mark.parametrize(
    ("function", "args", "name"),
    [
        (os.system, ("touch {}",), "system"),
        (eval, ("open({!r}, 'w')",), "eval"),
        (exec, ("open({!r}, 'w')",), "exec"),
        (open, ("{}", "w"), "open"),
        (getattr, ("text", "format"), "getattr"),
        (np.load, ("{}",), "load"),
        (subprocess.call, (["touch", "{}"],), "call"),
        (operator.attrgetter, ("a.b",), "attrgetter"),
        (__import__, ("os",), "__import__"),
        (bytearray, (10**12,), "bytearray"),
    ],
)
def test_functions_are_refused_by_name(function, args, name, tmp_path):
    trace = tmp_path / "trace"
    args = tuple(
        arg.replace("{!r}", repr(str(trace))).replace("{}", str(trace)) if isinstance(arg, str) else arg for arg in args
    )
    for protocol in PROTOCOLS:
        refused(pickle.dumps({"a": Call(function, *args)}, protocol), name)
        assert not trace.exists()


def test_dotted_names_and_instances_are_refused():
    refused(b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.", "ndarray.__class__")
    refused(b"(S'touch /tmp/x'\nios\nsystem\n.", "os.system")  # INST
    refused(b"(cos\nsystem\nS'x'\no.", "os.system")  # OBJ
    refused(pickle.dumps(np.random.default_rng(0)))
    refused(pickle.dumps(np.ma.masked_array([1.0, 2.0], [True, False])))
    refused(pickle.dumps(np.dtype("f4")), "bare")
    refused(pickle.dumps(np.ndarray), "bare")


def test_torch_storages_and_persistent_ids_are_refused():
    refused(pickle.dumps(torch.ones(2)), "torch")
    refused(b"\x80\x02X\x01\x00\x00\x00aQ.", "persistent id")
    refused(b"Pstorage\n.", "persistent id")


def test_reconstruct_wants_a_plain_array():
    refused(pickle.dumps(Call(np._core.multiarray._reconstruct, np.matrix, (0,), b"b")), "matrix")
    refused(pickle.dumps(Call(np._core.multiarray._reconstruct, dict, (0,), b"b")), "another type")
    refused(pickle.dumps(Call(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b")))  # never built
    refused(pickle.dumps(Call(np.ndarray, (10**12,))), "numpy.ndarray")


def array_with(shape, dtype, raw, fortran=False) -> bytes:
    state = (1, shape, dtype, fortran, raw)
    return pickle.dumps(Call(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b", state=state))


@pytest.mark.parametrize(
    ("shape", "raw"),
    [
        ((3,), b"1234"),
        ((10**12,), b"1234"),
        ((2**62, 4), b"1234"),
        ((-1, -1), b"1234"),
        ((0, 2**70), b""),
        ((True,), b"1234"),
        ((1.0,), b"1234"),
        (1, b"1234"),
        ((1,) * 80, b"1234"),
        ((1,), ["1234"]),
        ((1,), 4),
        ((1,), None),
        ((1,), "\u1234" * 4),
    ],
)
def test_arrays_whose_bytes_do_not_fit_are_refused(shape, raw):
    refused(array_with(shape, np.dtype("f4"), raw))


def test_only_plain_dtypes():
    assert pickles.load(array_with((1,), np.dtype("f4"), b"\0\0\0\0")).tolist() == [0.0]
    for dtype in ("O", "f4,i4", "M8[s]", "m8[s]", "V4", "g"):
        refused(pickle.dumps(np.zeros(2, dtype)), "dtype|plain data")
    refused(pickle.dumps(np.array([{"a": 1}, Call(os.system, "true")], dtype=object), 4))
    refused(array_with((1,), "f4", b"1234"))
    refused(array_with((1,), np.dtype("U1"), b"\xff\xff\xff\xff"), "Unicode")
    refused(pickle.dumps(Call(np.dtype, "f4", False, True, state=(3, "evil", None, None, None, -1, -1, 0))))
    refused(pickle.dumps(Call(np.dtype, "U99999999999", False, True)))
    refused(pickle.dumps(Call(np._core.multiarray.scalar, np.dtype("O"), "x")))
    refused(pickle.dumps(Call(np._core.multiarray.scalar, np.dtype("f8"), b"1")), "claims")


def test_the_stand_ins_cannot_be_changed():
    before = pickle.dumps(np.ones(2))
    for name in (
        b"numpy\ndtype",
        b"numpy\nndarray",
        b"_codecs\nencode",
        b"collections\nOrderedDict",
        b"builtins\nset",
    ):
        for state in (b"}S'call'\nNs", b"N}S'__class__'\nNs\x86"):  # a dict, and (None, dict of slots)
            refused(b"\x80\x02c" + name + b"\n" + state + b"b.")
        refused(b"\x80\x02c" + name + b"\n)\x81.")  # NEWOBJ
        refused(b"\x80\x02}c" + name + b"\nNs.")  # as a key
    assert pickles.load(before).tolist() == [1.0, 1.0]


def test_no_built_array_meets_the_state_of_a_pickle():
    made = pickle.dumps(np.ones(2), 5)[:-1]
    refused(made + b"}b.")
    refused(made + b"K\x01b.")
    refused(pickle.dumps(np.float64(1), 5)[:-1] + b"}S'a'\nK\x01sb.")


def test_other_calls_are_narrow():
    refused(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-7\x86R.", "latin1")
    refused(b"\x80\x02cbuiltins\nbytes\nJ\xff\xff\xff\x7f\x85R.")
    refused(pickle.dumps(collections.defaultdict(int)), "int")
    refused(pickle.dumps(collections.defaultdict(set)), "lists and dicts")
    refused(b"\x80\x02cbuiltins\nlist\n)R.", "call of list")


def nested(depth: int, width: int) -> list:
    held: list = [1.0] * width
    for _ in range(depth):
        held = [held] * width
    return held


def test_memory_is_safe():
    assert pickles.load(b"\x80\x02]r\xff\xff\xff\x7f.") == []  # a memo of 2 ** 31 places
    refused(b"\x80\x05\x96" + struct.pack("<Q", 2**50) + b"abc.")  # BYTEARRAY8
    refused(b"\x80\x04\x8e" + struct.pack("<Q", 2**50) + b"abc.")  # BINBYTES8
    refused(b"\x80\x04\x95" + struct.pack("<Q", 2**50) + b"abc.")  # FRAME
    refused(pickle.dumps(nested(9, 10)), "over and over")
    refused(pickle.dumps([np.ones(10_000)] * 10_000), "over and over")
    itself: list = []
    itself.append((itself,))
    refused(pickle.dumps(itself), "inside itself")
    refused(b"]" * 50_000 + b"a" * 49_999 + b".")  # far too deep to walk


def test_every_truncation_is_refused():
    for protocol in PROTOCOLS:
        data = pickle.dumps({"a": [np.ones(2, np.float32)], "b": np.arange(3)}, protocol)
        for end in range(len(data)):
            refused(data[:end])


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b"\x80\x04" + tail))
@settings(max_examples=300, deadline=None)
def test_random_bytes(data):
    with contextlib.suppress(InputError):
        pickles.load(data)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_pickles(data):
    whole = bytearray(
        pickle.dumps({1: [np.ones(2, np.float32)], "b": np.arange(3.0)}, data.draw(st.sampled_from(PROTOCOLS)))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InputError):
        pickles.load(bytes(whole))


def test_reading_needs_neither_torch_nor_pyarrow():
    code = "import sys, likelyshot.data.pickles; assert not {'torch', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

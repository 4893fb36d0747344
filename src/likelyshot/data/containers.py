"""What likelyshot keeps on disk: documents in JSON, and tensors with facts in safetensors, read through schemas.

A file that is missing, damaged or of another kind ends in an InputError that says which file, what is wrong with it and
what to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from likelyshot.data.files import write_whole
from likelyshot.errors import InputError

T = TypeVar("T")

#: A number of things, in a schema.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

#: Bytes of the largest document that is read: a result of ten million tasks has half of them.
LARGEST_DOCUMENT = 2 * 2**30


def write_document(path: str | Path, document: Any) -> Path:
    """Write a JSON document, whole or not at all. NaN and infinity are refused, since JSON has no such numbers."""
    return write_whole(path, _encode(document, f"cannot write {path}", indent=1) + b"\n")


def read_document(path: str | Path, schema: type[T], *, what: str, remedy: str) -> T:
    """Read a JSON document of the types that `schema` asks for.

    Args:
        path: The file.
        schema: A msgspec Struct, or any other type that msgspec decodes. Fields without a default are required.
        what: What the file should be, for error messages: "a result of likelyshot".
        remedy: What to do if it is something else: "make one with likelyshot evaluate".
    """
    with _explaining(path, what, remedy):
        size = Path(path).stat().st_size
        if size > LARGEST_DOCUMENT:
            raise ValueError(f"it has {size / 1e9:.1f} GB")
        data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark of UTF-8 that some editors add
        return msgspec.json.decode(data, type=schema)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> Path:
    """Write a plain safetensors file, whole or not at all. The same content always gives the same bytes.

    Args:
        path: The file.
        tensors: By name, on any device and in any layout.
        notes: The metadata of the file.
    """
    data = safetensors_bytes(_plain(tensors), dict(notes))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(notes.items()))  # safetensors writes the notes in any order
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return write_whole(path, b"".join((len(text).to_bytes(8, "little"), text, memoryview(data)[end:])))


def read_tensors(path: str | Path, *, what: str, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors file, to the CPU, and its notes. Arguments as in `read_document`."""
    with _explaining(path, what, remedy), safe_open(path, framework="pt") as file:
        # a view of the file would end with it
        return {name: file.get_tensor(name).clone() for name in sorted(file.keys())}, dict(file.metadata() or {})


def write_container(path: str | Path, tensors: Mapping[str, Tensor], facts: Any, *, form: str) -> Path:
    """Write tensors with facts and a digest of both to a safetensors file, whole or not at all.

    Args:
        path: The file.
        tensors: By name, on any device and in any layout.
        facts: Anything that JSON can hold.
        form: What kind of file this is and in which version, such as "likelyshot.checkpoint/1".
    """
    plain = _plain(tensors)
    text = _encode(facts, f"cannot write {path}").decode()
    return write_tensors(path, plain, {form: text, "digest": _digest(plain, text)})


def read_container(
    path: str | Path, schema: type[T], *, form: str, what: str, remedy: str
) -> tuple[dict[str, Tensor], T]:
    """Read what `write_container` wrote: tensors on the CPU, and facts of the types that `schema` asks for.

    The other arguments are as in `write_container` and `read_document`. A file whose digest does not match is refused.
    """
    tensors, notes = read_tensors(path, what=what, remedy=remedy)
    with _explaining(path, what, remedy):
        if form not in notes:
            kind = form.partition("/")[0]
            other = next((name for name in notes if name.startswith(f"{kind}/")), None)
            hint = f"it has version {other.partition('/')[2]}, not {form.partition('/')[2]}" if other else None
            raise ValueError(hint or "it is another kind of safetensors file")
        if notes.get("digest") != _digest(tensors, notes[form]):
            raise ValueError("it is damaged: its digest does not match what it holds")
        return tensors, msgspec.json.decode(notes[form], type=schema)


@contextmanager
def _explaining(path: str | Path, what: str, remedy: str) -> Iterator[None]:
    """Turn whatever reading a file can raise into an InputError, and refuse what is not a regular file.

    Opening a pipe could wait for ever.
    """
    try:
        if not Path(path).is_file():
            got = "is a folder" if Path(path).is_dir() else "is not a file" if Path(path).exists() else "does not exist"
            raise InputError(f"expected {what}, but {path} {got}: check the path, or {remedy}")
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror or error}): check the path") from None
    except (msgspec.MsgspecError, SafetensorError, ValueError, RecursionError, MemoryError, RuntimeError) as error:
        raise InputError(f"expected {what}, but {path} is not, or is damaged ({_reason(error)}): {remedy}") from None


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]


def _encode(document: Any, problem: str, indent: int | None = None) -> bytes:
    try:
        text = json.dumps(document, indent=indent, allow_nan=False, ensure_ascii=False, default=_plain_value)
    except ValueError:
        raise InputError(f"{problem}: it holds NaN or infinity, which JSON has no numbers for") from None
    return text.encode("utf-8", "replace")  # halves of surrogate pairs, as in odd file names, are not UTF-8


def _plain_value(value: Any) -> Any:
    """Give the Python value of a number or an array of numpy or torch."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    sha = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        value = tensors[name]
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()

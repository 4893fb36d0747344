"""Files that likelyshot writes and reads: whole or not at all, and what it wrote itself through schemas.

Documents are JSON, and tensors with facts are safetensors. A file that is missing, damaged or of another kind ends in
an InputError that says which file, what is wrong with it and what to do. Torch is imported only where tensors are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import reprlib
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from safetensors import SafetensorError, safe_open

from likelyshot.errors import InputError, nearest

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows, where temporary files of killed runs stay
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

#: Ending of the names of temporary files.
PARTIAL = ".likelyshot-partial"
#: A number of things, in a schema.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
#: Bytes of the largest document that is read: a result of ten million tasks has half of them.
LARGEST_DOCUMENT = 2 * 2**30
#: What msgspec calls a type or a bound, in plain words.
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}
UNKNOWN_KEY = r"Object contains unknown field `(.*)`"
MISSING_KEY = r"Object missing required field `(.*)`"
BOUNDS = {">=": "of at least", ">": "above", "<=": "of at most", "<": "below"}


def output_folder(path: str | Path, *, make: bool = True) -> Path:
    """Make a folder for results and check that files can be written to it.

    Args:
        path: The folder. Its parents are made too.
        make: Whether to make the folder. Without it, only check that it can be made.
    """
    folder = Path(path)
    _check_name(folder)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        existing = next(place for place in (folder, *folder.absolute().parents) if _exists(place))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"expected a folder for the output, but {folder} is a file: choose another folder") from None
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}): choose another folder") from None
    return folder


def output_file(path: str | Path, *, make_folder: bool = True) -> Path:
    """Check that a file can be written, before any work is done.

    Args:
        path: The file.
        make_folder: Whether its folder will be made, if it does not exist.
    """
    path = Path(path)
    _check_file(path)
    if not make_folder and not path.parent.is_dir():
        raise InputError(f"cannot write {path.name}: the folder {path.parent} does not exist, so create it first")
    output_folder(path.parent, make=False)
    return path


def _check_file(path: Path) -> None:
    """Refuse a path where a file cannot be put."""
    _check_name(path)
    with _writing(path):
        if path.is_dir():
            raise InputError(f"expected a file to write, but {path} is a folder: give the name of a file")
        if _exists(path) and path.exists() and not path.is_file():
            raise InputError(f"expected a file to write, but {path} is a device or a pipe: give the name of a file")
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # raises where links lead in a circle


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path} ({reason}): choose another place") from None


def _exists(place: Path) -> bool:
    """Whether something is there; a name that no file can have raises OSError, and a broken link exists."""
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Lend an empty temporary file in the folder of `path`, and remove it at the end unless it was renamed.

    The file is locked while it is in use. The lock of a process that was killed ends with it, which is how
    `remove_stale` knows what to remove.
    """
    while True:
        temporary = path.with_name(f"{_prefix(path)}{secrets.token_hex(4)}{PARTIAL}")
        with temporary.open("xb") as file:
            if not _lock(file, temporary):
                continue
            try:
                yield temporary
            finally:
                temporary.unlink(missing_ok=True)
            return


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Lend a temporary file that takes the place of `path` at the end, or is removed if anything fails.

    No reader ever sees half a file. Temporary files that a killed run left for the same path are removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    path = Path(path)
    _check_file(path)
    with _writing(path):
        remove_stale(path.parent, _prefix(path))
        with beside(path) as temporary:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)


def write_whole(path: str | Path, data: bytes | str) -> Path:
    """Write `data` to `path` through a temporary file, so that no reader ever sees half of it."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)


def remove_stale(folder: Path, prefix: str = ".") -> None:
    """Remove the temporary files in a folder that killed processes have left."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for file in list(folder.iterdir()):
            if file.name.startswith(prefix) and file.name.endswith(PARTIAL) and file.is_file():
                with contextlib.suppress(OSError), file.open("rb") as left:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while somebody writes
                    file.unlink()


def _check_name(path: Path) -> None:
    if "\0" in str(path):  # no file system has such names, and Python raises ValueError for them
        raise InputError(f"cannot write {str(path)!r}: its name has a null character, so choose another")


def _prefix(path: Path) -> str:
    return f".{os.fsencode(path.name)[:100].decode(errors='ignore')}."


def _lock(file: BinaryIO, temporary: Path) -> bool:
    """Lock a new file; False if another process has taken it for stale and removed it just before that."""
    if fcntl is None:
        file.close()  # Windows renames no open file
        return True
    with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there as stale
        fcntl.flock(file, fcntl.LOCK_EX)
    return os.path.samestat(os.fstat(file.fileno()), temporary.stat()) if temporary.exists() else False


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
    with explaining(path, what, remedy):
        data = _read_bytes(path).removeprefix(b"\xef\xbb\xbf")  # a mark of UTF-8 that some editors add
        return msgspec.json.decode(data, type=schema)


def read_lines(path: str | Path, schema: Any, *, what: str, remedy: str, first: Any = None) -> list[tuple[bytes, Any]]:
    """Read a file that has a JSON value in each line, and return each line with its value.

    A last line without an end is left out, since a run that was killed wrote only a part of it.

    Args:
        path: The file.
        schema: As in `read_document`, for each line.
        what: As in `read_document`.
        remedy: As in `read_document`.
        first: The schema of the first line, if it has another one.
    """
    with explaining(path, what, remedy):
        values = []
        for number, line in enumerate(_read_bytes(path).split(b"\n")[:-1], 1):
            try:
                values.append((line, msgspec.json.decode(line, type=first if first and number == 1 else schema)))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ValueError(f"line {number}: {plain_reason(error)}") from None
        return values


def _read_bytes(path: str | Path) -> bytes:
    size = Path(path).stat().st_size
    if size > LARGEST_DOCUMENT:
        raise ValueError(f"it has {size / 1e9:.1f} GB")
    return Path(path).read_bytes()


class Streamed(NamedTuple):
    """A tensor that is not in memory as a whole: `write_tensors` asks for its pieces and writes each as it comes.

    Args:
        dtype: Its type, as "float32".
        shape: Its shape.
        pieces: Arrays that hold all its numbers in order.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[Any]


#: What safetensors calls the types, and their bytes, in the order in which it puts tensors.
TYPES = {
    "int64": ("I64", 8),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float32": ("F32", 4),
    "int32": ("I32", 4),
    "bfloat16": ("BF16", 2),
    "float16": ("F16", 2),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor | Streamed], notes: Mapping[str, str]) -> Path:
    """Write a plain safetensors file, whole or not at all. The same content always gives the same bytes.

    Nothing is copied: what is streamed needs the memory of a piece.

    Args:
        path: The file.
        tensors: By name, on any device and in any layout.
        notes: The metadata of the file.
    """
    order = list(TYPES)
    types = {name: str(value.dtype).removeprefix("torch.") for name, value in tensors.items()}
    if unknown := next((kind for kind in types.values() if kind not in TYPES), None):
        raise InputError(f"cannot write {path}: safetensors files cannot hold tensors of {unknown}, so convert them")
    names = sorted(tensors, key=lambda name: (order.index(types[name]), name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(notes.items()))}
    end = 0
    for name in names:
        (kind, size), shape, start = TYPES[types[name]], list(tensors[name].shape), end
        end += size * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for piece in _bytes(tensors[name]):
                file.write(piece)
        if file.tell() != 8 + len(text) + end:
            raise InputError(
                f"cannot write {path}: a tensor has more or fewer numbers than its shape says, so start again"
            )
    return Path(path)


def _bytes(value: Tensor | Streamed) -> Iterator[Any]:
    """Give the bytes of a tensor, without a copy if it is on the CPU and contiguous."""
    import numpy as np
    import torch

    if isinstance(value, Streamed):
        for piece in value.pieces:
            yield np.ascontiguousarray(piece, value.dtype).data.cast("B")
    elif value.numel():
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: str | Path, *, what: str, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a safetensors file, to the CPU, and its notes. Arguments as in `read_document`."""
    with explaining(path, what, remedy), safe_open(path, framework="pt") as file:
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
    with explaining(path, what, remedy):
        if form not in notes:
            kind = form.partition("/")[0]
            other = next((name for name in notes if name.startswith(f"{kind}/")), None)
            hint = f"it has version {other.partition('/')[2]}, not {form.partition('/')[2]}" if other else None
            raise ValueError(hint or "it is another kind of safetensors file")
        if notes.get("digest") != _digest(tensors, notes[form]):
            raise ValueError("it is damaged: its digest does not match what it holds")
        return tensors, msgspec.json.decode(notes[form], type=schema)


@contextlib.contextmanager
def explaining(path: str | Path, what: str, remedy: str) -> Iterator[None]:
    """Turn whatever reading a file can raise into an InputError, and refuse what is not a regular file.

    Opening a pipe could wait forever.
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
        raise InputError(
            f"expected {what}, but {path} is something else or damaged ({plain_reason(error)}): {remedy}"
        ) from None


def plain_reason(error: Exception) -> str:
    """Say in plain words why a document cannot be read.

    >>> plain_reason(msgspec.ValidationError("Expected `int`, got `str` - at `$.tasks`"))
    'tasks is text, not a whole number'
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, msgspec.ValidationError):
        return str(error)[:200]
    problem, _, name = _located(str(error))
    if missing := re.fullmatch(MISSING_KEY, problem):
        return f"the key {'.'.join(filter(None, (name, missing[1])))!r} is missing"
    if unknown := re.fullmatch(UNKNOWN_KEY, problem, re.DOTALL):
        return f"the key {'.'.join(filter(None, (name, unknown[1])))[:80]!r} is unknown"
    kind, got = _expected(problem), re.search(r", got `(\w+)`", problem)
    if kind is None:
        return str(error)[:200]
    return f"{name or 'the content'} is {WORDS.get(got[1], got[1]) + ', ' if got else ''}not {kind}"


def _encode(document: Any, problem: str, indent: int | None = None) -> bytes:
    try:
        text = json.dumps(document, indent=indent, allow_nan=False, ensure_ascii=False, default=_plain_value)
    except ValueError:
        raise InputError(f"{problem}: it holds NaN or infinity, which JSON cannot express") from None
    return text.encode("utf-8", "replace")  # halves of surrogate pairs, as in odd file names, are not UTF-8


def _plain_value(value: Any) -> Any:
    """Give the Python value of a number or an array of numpy or torch."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    import torch

    sha = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        value = tensors[name]
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def convert(kind: type[T], table: Any, where: str) -> T:
    """Convert a table to a msgspec struct, or raise InputError.

    Args:
        kind: A subclass of msgspec.Struct.
        table: Nested dictionaries and lists, as tomllib and json give them.
        where: What the table is, for the error: "the recipe".

    >>> class Point(msgspec.Struct, forbid_unknown_fields=True):
    ...     height: float = 0.0
    >>> convert(Point, {"height": 2}, "the map")
    Point(height=2.0)
    >>> convert(Point, {"heigth": 2}, "the map")
    Traceback (most recent call last):
    likelyshot.errors.InputError: unknown key 'heigth' in the map: did you mean 'height'? Known: height
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InputError(_sentence(str(error), kind, table, where)) from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply: remove the inner tables and lists") from None


def _sentence(message: str, kind: Any, table: Any, where: str) -> str:
    """Say in plain words what msgspec says, with the value that was given."""
    problem, steps, name = _located(message)
    if unknown := re.fullmatch(UNKNOWN_KEY, problem, re.DOTALL):
        known = _field(kind, steps).__struct_fields__
        key = f"{name}.{unknown[1]}" if name else unknown[1]
        return f"unknown key {key[:80]!r} in {where}: {nearest(unknown[1][:80], known)}"
    if missing := re.fullmatch(MISSING_KEY, problem):
        key = ".".join(filter(None, (name, missing[1])))
        return f"the key {key!r} is missing in {where}: it is incomplete, or of another kind"
    value = table
    for key, index in steps:
        value = value[int(index)] if index else value[key]
    got = reprlib.repr(value)  # short, also of what is long or deep
    if problem.startswith("Invalid enum value"):
        options = [str(option) for option in get_args(_field(kind, steps))]
        return f"{name} in {where} has the unknown value {got}: {nearest(str(value)[:80], options)}"
    if expected := _expected(problem):
        return f"expected {expected} for {name} in {where}, got {got}: change it"
    return f"{name} in {where} has a wrong value, {got} ({problem}): change it"


def _located(message: str) -> tuple[str, list[tuple[str, str]], str]:
    """Split a message of msgspec into the problem, the keys and indices that lead to it, and a name of that place."""
    place = re.search(r" - at `\$((?:\.\w+|\[\d+\])*)(?:\[\.\.\.\])*`$", message)
    problem = message[: place.start()] if place else message
    steps = re.findall(r"\.(\w+)|\[(\d+)\]", place[1] if place else "")
    return problem, steps, ".".join(key for key, _ in steps if key)


def _expected(problem: str) -> str | None:
    """Say what msgspec expected, with its bounds; None if that is not what the problem is."""
    expected = re.match(r"Expected `([\w| ]+)`(?: (>=|>|<=|<) (\S+))?( of length (?:>= )?\d+)?", problem)
    if expected is None:
        return None
    bound = f" {BOUNDS[expected[2]]} {expected[3].removesuffix('.0')}" if expected[2] else ""
    word = " or ".join(WORDS.get(each, each) for each in expected[1].split(" | "))
    return f"{word}{bound}{(expected[4] or '').replace('>=', 'at least')}"


def _field(kind: Any, steps: list[tuple[str, str]]) -> Any:
    for key, _ in steps:
        kind = get_type_hints(kind)[key] if key else kind
    return kind


def locate(name: str, folders: Sequence[Path]) -> Path | str:
    """Find the file of that name within the folders, or say in a few words why it is not there."""
    if not name:
        return "no path"
    outside = False
    for folder in folders:
        path = folder / name
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a null in the name
            return "missing file"
        if not any(real.is_relative_to(allowed) for allowed in folders):
            outside = True
        elif os.path.isfile(real):  # Path.is_file raises for names that are too long  # noqa: PTH113
            return path
    return "outside the folder" if outside else "missing file"

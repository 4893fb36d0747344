"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from likelyshot.errors import InputError

try:
    import fcntl
except ImportError:  # Windows, where temporary files of killed runs stay
    fcntl = None  # type: ignore[assignment]

#: Ending of the names of temporary files.
PARTIAL = ".likelyshot-partial"


def output_folder(path: str | Path, *, make: bool = True) -> Path:
    """Make a folder for results and check that files can be written to it.

    Args:
        path: The folder. Its parents are made too.
        make: Whether to make the folder. Without it, only check that it can be made.
    """
    folder = Path(path)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"expected a folder for the output, but {folder} is a file: choose another folder") from None
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}): choose another folder") from None
    return folder


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
    try:
        if path.is_dir():
            raise InputError(f"expected a file to write, but {path} is a folder: give a file name")
        if path.exists() and not path.is_file():
            raise InputError(f"expected a file to write, but {path} is a device or a pipe: give a file name")
        remove_stale(path.parent, _prefix(path))
        with beside(path) as temporary:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path} ({reason}): choose another place") from None


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

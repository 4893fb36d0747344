"""Writing files whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from likelyshot.errors import InputError


def output_folder(path: str | Path, *, make: bool = True) -> Path:
    """Make a folder for results, or say why that cannot be; without `make`, only find out."""
    folder = Path(path)
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"expected a folder for the output, but {folder} is a file: name another folder") from None
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}): name another folder") from None
    return folder


def write_whole(path: str | Path, data: bytes | str) -> Path:
    """Write `data` to `path` through a temporary file beside it, so that no reader ever sees half of it."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"expected a file to write, but {path} is a folder: give a file name")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {path} ({error.strerror}): choose a place that can be written") from None
        raise
    return path


def write_json(path: str | Path, document: Any) -> Path:
    """Write a JSON document whole; NaN is refused, since it is not JSON."""
    return write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")

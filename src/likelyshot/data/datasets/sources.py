"""Where images are read from: a folder, or a zip archive read in place."""

from __future__ import annotations

import os
import threading
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from likelyshot.data.images import MAX_BYTES, SUFFIXES, UNSUPPORTED, WITHOUT_HEIC, ImageError, find_images, read_bytes
from likelyshot.errors import InputError, few


class Folder:
    """The images below a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """List the images, sorted, by their paths below the folder; those that need a package to be read too."""
        images, problems = find_images(self.path)
        images = sorted([*images, *(Path(problem.name) for problem in problems if problem.kind == WITHOUT_HEIC)])
        if wrong := [problem for problem in problems if problem.kind not in (UNSUPPORTED, WITHOUT_HEIC)]:
            got = f"{len(wrong)} that cannot be followed ({wrong[0].kind}: {few(one.name for one in wrong)})"
            raise InputError(f"expected files and folders in {self.path}, but got {got}: put files there instead")
        return [image.relative_to(self.path).as_posix() for image in images]

    def read(self, name: str) -> bytes:
        """Read one file."""
        return read_bytes(self.path / name)

    def stamps(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Give size and time of change of files, which show without reading them whether they have changed."""
        return [stamp_of(self.path / name) for name in names]


class Archive:
    """The images in a zip archive.

    Threads share one open file, one at a time; a forked or spawned process opens its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, zipfile.ZipFile, threading.Lock] | None = None

    def names(self) -> list[str]:
        """List the images, sorted; hidden files are passed over."""
        names = []
        for entry in self._open()[0].infolist():
            parts = entry.filename.split("/")
            if entry.filename.startswith("/") or ".." in parts:
                got = f"{entry.filename!r} in {self.path}"
                raise InputError(f"expected names that stay in the archive, but got {got}: pack it again")
            hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
            if entry.is_dir() or hidden or f".{parts[-1].rpartition('.')[2].lower()}" not in SUFFIXES:
                continue
            if entry.flag_bits & 1:
                raise InputError(f"expected an archive without a password, but {self.path} has one: pack it again")
            names.append(entry.filename)
        return sorted(set(names))

    def read(self, name: str) -> bytes:
        """Read one file; raise ImageError if it is damaged."""
        archive, lock = self._open()
        try:
            with lock:
                size = archive.getinfo(name).file_size
                if size > MAX_BYTES:
                    raise ImageError("too large", f"{size:,} bytes, at most {MAX_BYTES:,}", name)
                return archive.read(name)
        except KeyError:
            raise ImageError("missing file", name=name) from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError) as error:
            raise ImageError("damaged in the archive", str(error), name) from None

    def stamps(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Give size and time of change of the archive, whichever files in it are asked for."""
        return [stamp_of(self.path)]

    def _open(self) -> tuple[zipfile.ZipFile, threading.Lock]:
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            try:
                opened = (os.getpid(), zipfile.ZipFile(self.path), threading.Lock())
            except (zipfile.BadZipFile, OSError, ValueError) as error:
                raise InputError(f"cannot read the archive {self.path} ({error}): fetch or pack it again") from None
            self._opened = opened
        return opened[1:]

    def __reduce__(self) -> tuple[type[Archive], tuple[Path]]:
        return Archive, (self.path,)


Source = Folder | Archive


def stamp_of(path: Path) -> tuple[int, int]:
    """Give size and time of change of a file."""
    try:
        facts = path.stat()
    except OSError:  # reported when it is read
        return -1, -1
    return facts.st_size, facts.st_mtime_ns


def open_source(path: str | Path) -> Source:
    """Open a folder, or a zip archive."""
    path = Path(path)
    if path.is_dir():
        return Folder(path)
    if path.is_file() and (path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)):
        return Archive(path)
    got = "is another file" if path.exists() else "is not there"
    raise InputError(
        f"expected a folder of images or a zip archive, but {str(path)[:200]!r} {got}: name where the images are"
    )

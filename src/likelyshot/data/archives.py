"""Images in tar and zip archives, read in place."""

from __future__ import annotations

import functools
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from likelyshot.data.datasets.sources import Archive
from likelyshot.data.images import MAX_BYTES, SUFFIXES, UNSUPPORTED, ImageError
from likelyshot.data.items import Item, Problem
from likelyshot.errors import InputError

ARCHIVES = (".tar", ".zip")


@dataclass(frozen=True, slots=True)
class Member(Item):
    """An image in an archive.

    Args:
        archive: The file that it is in.
        offset: Where its bytes begin in a tar archive; -1 in a zip archive.
        size: How many bytes it has.
    """

    archive: Path = Path()
    offset: int = -1
    size: int = 0

    @property
    def inside(self) -> str:
        """Its name in the archive."""
        return self.name[len(str(self.archive)) + 1 :]


def list_archive(path: Path) -> tuple[list[Member], list[Problem]]:
    """List the images of an archive, and what else is in it; hidden files are passed over.

    Names are those of the archive and of the file in it: "photos.tar/cat/1.jpg". Nothing is unpacked.

    Args:
        path: A tar archive without compression, or a zip archive.
    """
    members: list[Member] = []
    problems: list[Problem] = []
    names: set[str] = set()
    try:
        for name, offset, size in _zip(path) if path.suffix.lower() == ".zip" else _tar(path):
            parts = [part for part in name.split("/") if part]
            if not parts or any(part == "__MACOSX" or (part[0] == "." and part != ".") for part in parts):
                continue
            full_name = f"{path}/{name}"
            suffix = Path(parts[-1]).suffix
            if suffix.lower() not in SUFFIXES:
                problems.append(Problem(full_name, UNSUPPORTED, suffix or "no suffix"))
            elif name in names:
                problems.append(Problem(full_name, "twice in the archive"))
            else:
                names.add(name)
                members.append(Member(full_name, archive=path, offset=offset, size=size))
    except (tarfile.TarError, zipfile.BadZipFile, OSError, ValueError, EOFError) as error:
        raise InputError(
            f"cannot read the archive {path} ({str(error)[:120]}): pack it again, a tar archive without compression"
        ) from None
    return sorted(members, key=lambda member: member.name), problems


def _zip(path: Path) -> Iterator[tuple[str, int, int]]:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.flag_bits & 1:
                raise InputError(f"expected an archive without a password, but {path} has one: pack it again")
            if not entry.is_dir():
                yield entry.filename, -1, entry.file_size


def _tar(path: Path) -> Iterator[tuple[str, int, int]]:
    with tarfile.open(path, "r:") as archive:
        while (entry := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it would keep a kilobyte of each
            if entry.isreg() and not entry.issparse():
                yield entry.name, entry.offset_data, entry.size


def read_member(member: Member) -> bytes:
    """Read the bytes of an image in an archive, from any thread or process; raise ImageError if that fails."""
    if member.size > MAX_BYTES:
        raise ImageError("too large", f"{member.size:,} bytes, at most {MAX_BYTES:,}", member.name)
    if member.offset < 0:
        data = _opened(member.archive).read(member.inside)
    else:
        try:
            with member.archive.open("rb") as file:
                file.seek(member.offset)
                data = file.read(member.size)
        except OSError as error:
            raise ImageError("unreadable archive", error.strerror or str(error), member.name) from None
        if len(data) < member.size:
            raise ImageError("damaged in the archive", "it ends too early", member.name)
    if not data:
        raise ImageError("empty file", name=member.name)
    return data


@functools.lru_cache(maxsize=16)
def _opened(path: Path) -> Archive:
    return Archive(path)

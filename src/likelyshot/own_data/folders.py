"""Sorting files into folders by class: copies or links, nothing is ever moved or overwritten."""

from __future__ import annotations

import errno
import filecmp
import hashlib
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from likelyshot.data.files import beside, output_folder, remove_stale
from likelyshot.data.items import Item, Problem
from likelyshot.errors import InputError

REJECTED = "_rejected"
LONGEST = 100  # bytes of the name of a folder
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # as Windows has them


def sort_into(
    folder: str | Path,
    items: Sequence[Item],
    predicted: Sequence[str],
    reject: Iterable[bool],
    *,
    link: bool,
    root: Path | None = None,
) -> tuple[int, list[Problem]]:
    """Copy or link every file to FOLDER/class/name, the rejected to FOLDER/_rejected; count them, and say what failed.

    A name that is taken gets a number, unless the same content is there already: then nothing is done. `root` is the
    folder of the pile, in which nothing may be put, since the next run would find it there.
    """
    folder = Path(folder)
    if not all(item.path for item in items):
        raise InputError("expected files to sort into folders, but the items have none: leave out copying and linking")
    places = {name: folder / safe for name, safe in folder_names(predicted).items()}
    for place in (folder, *places.values(), folder / REJECTED):
        if root is not None and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(root)):
            raise InputError(f"expected a folder outside the pile, but {place} lies in {root}: name another folder")
    output_folder(folder)
    for place in (*places.values(), folder / REJECTED):
        remove_stale(place)
    if link:
        _check_links(folder)
    taken: set[str] = set()
    open_numbers: dict[str, list[int]] = {}
    problems = []
    for item, name, rejected in zip(items, predicted, reject, strict=True):
        assert item.path is not None
        try:
            _place(item.path, folder / REJECTED if rejected else places[name], taken, open_numbers, link)
        except OSError as error:
            kind = "could not be linked" if link else "could not be copied"
            problems.append(Problem(item.name, kind, error.strerror or type(error).__name__))
    return len(items) - len(problems), problems


def folder_names(classes: Iterable[str]) -> dict[str, str]:
    """Give every class a folder name that any system takes, no two the same even where case does not count.

    A name that has to change carries a digest of what it was, so that it is the same in every run.

    >>> folder_names(["cat", "Cat", "a/b", "..", "_rejected"])
    {'Cat': 'Cat', '_rejected': '_rejected-d296ca42', 'cat': 'cat-77af778b', '..': '_-5ec1f7e7', 'a/b': 'a_b-c14cddc0'}
    """
    names: dict[str, str] = {}
    used = {REJECTED}
    for name in sorted(set(classes), key=lambda name: (_safe(name) != name, name)):  # the harmless keep theirs
        safe = _safe(name)
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        if safe != name or _folded(safe) in used:
            safe = f"{safe}-{digest[:8]}"
        while _folded(safe) in used:
            safe += "_"
        used.add(_folded(safe))
        names[name] = safe
    return names


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _safe(name: str) -> str:
    text = name.encode("utf-8", "replace").decode()
    text = re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f-\x9f\u2028\u2029]', "_", text)
    text = text.encode()[:LONGEST].decode("utf-8", "ignore")
    text = re.sub(r"^[. ]+|[. ]+$", "_", text)  # hidden here, cut off there
    return f"_{text}" if not text or RESERVED.fullmatch(text) else text


def _check_links(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".links.") as place:
        try:
            Path(place, "link").symlink_to("nothing")
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or "not implemented"
            raise InputError(f"cannot make symbolic links in {folder} ({why}): copy instead") from None


def _place(source: Path, folder: Path, taken: set[str], open_numbers: dict[str, list[int]], link: bool) -> None:
    """Put one file under the first free name, or find it there.

    `taken` are the places of this run; `open_numbers` those that files of a name have yet to try, all after the last.
    """
    folder.mkdir(exist_ok=True)
    if not source.is_file():
        raise FileNotFoundError(errno.ENOENT, "there is no such file any more")
    numbers = open_numbers.setdefault(_folded(str(folder / source.name)), [1])
    for number in numbers:  # which grows
        if number == numbers[-1]:
            numbers.append(number + 1)
        target = folder / (source.name if number == 1 else f"{source.stem}-{number}{source.suffix}")
        if _folded(str(target)) in taken:
            continue
        if _same(source, target, link) if os.path.lexists(target) else _make(source, target, link):
            taken.add(_folded(str(target)))
            numbers.remove(number)
            return


def _same(source: Path, target: Path, link: bool) -> bool:
    if link != target.is_symlink() or not target.is_file():
        return False
    return target.samefile(source) if link else filecmp.cmp(source, target, shallow=False)


def _make(source: Path, target: Path, link: bool) -> bool:
    """Make a copy or a link; False if something has come to that place in the meantime."""
    if link:
        try:
            target.symlink_to(source.absolute())
        except FileExistsError:
            return False
        return True
    with beside(target) as temporary:
        shutil.copy2(source, temporary)
        return _rename(temporary, target)


def _rename(source: Path, target: Path) -> bool:
    """Give a file its final name without overwriting, as a rename would; False if the name is taken."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            return False
        source.rename(target)
    return True

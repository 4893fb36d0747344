"""Answers about a large pile as a folder of Parquet files: what is finished is not done again; parts make a whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from likelyshot.data.files import Count, output_folder, read_document, write_document
from likelyshot.errors import InputError
from likelyshot.own_data.answers import Answers, Tally, check_answers_path, write_tables
from likelyshot.workers import Part

#: What says whose answers a folder holds; readers of Parquet folders pass over names that begin so.
MANIFEST = "_likelyshot.json"
#: Answers of one file, about: what a killed run does again.
FILE_ROWS = 2**16
#: What a file says in its schema: the identity of the folder, and which file it is.
STAMP = b"likelyshot.answers"


class _Manifest(msgspec.Struct):
    identity: str
    files: Count
    parts: Count
    format: Literal["likelyshot.answers/2"] = "likelyshot.answers/2"

    def stamp(self, number: int) -> bytes:
        """Tell a file of the folder from any other."""
        return f"{self.identity} {number}".encode()


def write_folder(
    folder: str | Path,
    chunks: Callable[[Sequence[int]], Iterator[Answers]],
    *,
    blocks: int,
    block_rows: int,
    identity: str,
    part: Part | None = None,
    tally: Tally | None = None,
    all_probabilities: bool = False,
) -> tuple[int, int]:
    """Write answers to a folder of Parquet files, each whole or not at all, and leave those that are there.

    Returns how many files were written, and how many were there already.

    Args:
        folder: The folder. One with the answers of another pile or model is refused.
        chunks: Gives the answers of blocks of these numbers, in order.
        blocks: How many blocks there are.
        block_rows: How many answers a block has.
        identity: Digest of what the answers follow from.
        part: Which part of the files to write. Default: all.
        tally: Counts all answers of this part, those that were there already too.
        all_probabilities: Add a column for every class.
    """
    together = max(1, FILE_ROWS // block_rows)
    count = -(-blocks // together)
    folder = output_folder(folder)
    parts = 1 if part is None else part.count
    manifest = _Manifest(identity, count, parts)
    _claim(folder, manifest)
    own_numbers = range(count) if part is None else part.of(count)
    earlier = [number for number in own_numbers if _file(folder, number, count).is_file()]
    missing = [number for number in own_numbers if number not in set(earlier)]
    for number in earlier:
        if tally is not None:
            table = _read(folder, manifest, number, ["predicted", "reject"])
            tally.add(table["predicted"].to_pylist(), table["reject"].to_pylist())
    numbers = [block for n in missing for block in range(n * together, min(blocks, (n + 1) * together))]
    if numbers:
        answers = chunks(numbers) if tally is None else tally.through(chunks(numbers))
        stream = zip(numbers, answers, strict=True)
        for number, group in itertools.groupby(stream, key=lambda pair: pair[0] // together):
            stamp = {STAMP: manifest.stamp(number)}
            tables = (piece.table(all_probabilities=all_probabilities) for _, piece in group)
            write_tables(_file(folder, number, count), (table.replace_schema_metadata(stamp) for table in tables))
    return len(missing), len(earlier)


def merge_answers(folder: str | Path, output: str | Path) -> int:
    """Write the answers of a folder as one table, and return how many there are; a missing part raises InputError.

    Args:
        folder: What `write_folder` wrote, by one process or by several.
        output: The table: .csv, .parquet or .jsonl.
    """
    folder = Path(folder)
    check_answers_path(output)
    manifest = _manifest(folder)
    _check_whole(folder, [_file(folder, number, manifest.files) for number in range(manifest.files)])
    count = 0

    def tables() -> Iterator[Any]:
        nonlocal count
        for number in range(manifest.files):
            table = _read(folder, manifest, number)
            count += len(table)
            yield table

    write_tables(output, tables())
    return count


def _check_whole(folder: Path, files: Sequence[Path]) -> None:
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    if missing:
        parts = _manifest(folder).parts
        whose = [n for n in range(1, parts + 1) if set(Part(n, parts).of(len(files))) & set(missing)]
        which = f"{'part' if len(whose) == 1 else 'parts'} {', '.join(map(str, whose))} of {parts}"
        what = "the rest is" if parts == 1 else f"{which} {'is' if len(whose) == 1 else 'are'}"
        again = "the command" if parts == 1 else f"--part {whose[0]}/{parts}"
        count = "1 is" if len(missing) == 1 else f"{len(missing)} are"
        raise InputError(
            f"expected {len(files)} files of answers in {folder}, but {count} missing, such as "
            f"{files[missing[0]].name}, so {what} not finished: run {again} again"
        )


def _claim(folder: Path, manifest: _Manifest) -> None:
    """Say whose answers a folder holds, unless they are those of others."""
    path = folder / MANIFEST
    if path.exists():
        before = _manifest(folder)
        if before.identity != manifest.identity or before.files != manifest.files:
            raise InputError(
                f"expected an empty folder, or one with answers about the same pile by the same model, but {folder} "
                "has others: choose another folder, or remove it"
            )
        if before.parts == manifest.parts:
            return
    elif any(file.suffix == ".parquet" for file in folder.iterdir()):
        raise InputError(f"expected an empty folder, but {folder} has other Parquet files: choose another folder")
    write_document(path, msgspec.to_builtins(manifest))


def _manifest(folder: Path) -> _Manifest:
    what = "a folder of answers of likelyshot"
    return read_document(folder / MANIFEST, _Manifest, what=what, remedy="write one with likelyshot classify -o FOLDER")


def _file(folder: Path, number: int, count: int) -> Path:
    return folder / f"answers-{number + 1:05d}-of-{count:05d}.parquet"


def _read(folder: Path, manifest: _Manifest, number: int, columns: list[str] | None = None) -> Any:
    from pyarrow import ArrowException, parquet

    path = _file(folder, number, manifest.files)
    again = "remove it, and run the command again, which writes it again"
    try:
        table = parquet.read_table(path, columns=columns, partitioning=None)
    except (ArrowException, OSError, KeyError) as error:
        raise InputError(f"cannot read {path} ({str(error)[:120]}): {again}") from None
    if (table.schema.metadata or {}).get(STAMP) != manifest.stamp(number):
        raise InputError(f"expected answers that were written to {folder}, but {path.name} is of another run: {again}")
    return table.replace_schema_metadata(None)

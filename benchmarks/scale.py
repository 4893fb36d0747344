"""Time and memory of piles larger than memory; what Ray costs; docs/scale.md has what this printed.

python -m benchmarks.scale                          # vectors: 10^5, 10^6 and 10^7 rows of 512 numbers in half precision
python -m benchmarks.scale --rows 100000 --kind parquet
python -m benchmarks.scale images --rows 1000000    # classify images in a tar archive, with a simulated encoder
python -m benchmarks.scale extract --rows 1000000   # extract images of a folder, with the same encoder
python -m benchmarks.scale ray --rows 1000000       # one pass over a pile by threads and by tasks of a local Ray

Vectors are classified by the command line, in a process of its own. Memory is the largest resident set of that process,
everything counted. Each number of rows needs 1,024 bytes a row of disk.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import platform
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

DIM, WAYS, SHOTS = 512, 5, 5
SHARD = 10**6
BLOCK = 20_000  # different rows of a shard
TIMES = 5  # of which the median counts


def make(folder: Path, rows: int, kind: str) -> None:
    """Write a labelled file and a pile in shards: exponential features around class means, of unequal classes."""
    draw = np.random.default_rng(0)
    centres = 0.6 + 0.8 * draw.random((WAYS, DIM), dtype=np.float32)
    labels = np.arange(WAYS * SHOTS) % WAYS
    support = draw.standard_exponential((len(labels), DIM), dtype=np.float32) * centres[labels]
    np.savez(folder / "labelled.npz", features=support, labels=labels)
    truth = draw.choice(WAYS, BLOCK, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    block = draw.standard_exponential((BLOCK, DIM), dtype=np.float32) * centres[truth]
    (folder / "pile").mkdir()
    for number, first in enumerate(range(0, rows, SHARD)):
        parts = _scaled(block, first, min(SHARD, rows - first))
        if kind == "npy":
            write_npy(folder / "pile" / f"{number:04d}.npy", parts, min(SHARD, rows - first))
        else:
            write_parquet(folder / "pile" / f"{number:04d}.parquet", parts)


def _scaled(block: np.ndarray, first: int, count: int) -> Iterator[np.ndarray]:
    """Give rows that differ from block to block by their lengths, which is quicker than to draw them anew."""
    for start in range(0, count, BLOCK):
        factor = 1 + ((first + start) // BLOCK) / 5_000
        yield (block[: count - start] * np.float32(factor)).astype(np.float16)


def write_npy(path: Path, parts: Iterator[np.ndarray], count: int) -> None:
    """Write parts as one array."""
    with path.open("wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (count, DIM)}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(part.data)


def write_parquet(path: Path, parts: Iterator[np.ndarray]) -> None:
    """Write parts as row groups, with a path for every row."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema({"path": pa.string(), "embedding": pa.list_(pa.float16(), DIM)})
    with parquet.ParquetWriter(path, schema) as writer:
        for number, part in enumerate(parts):
            cells = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), DIM)
            names = [f"{path.stem}/{number * BLOCK + row}.jpg" for row in range(len(part))]
            writer.write_table(pa.table({"path": names, "embedding": cells}, schema=schema))


def run(command: list[str]) -> tuple[float, float, float]:
    """Run a command; give seconds, CPU seconds, and the largest resident set in MB."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def vectors(sizes: list[int], kind: str, method: str, place: str | None) -> Table:
    """Classify piles of vectors by the command line."""
    table = headed(f"{method}, {DIM} numbers a row in half precision, {kind}")
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            make(Path(folder), rows, kind)
            options = ["-s", f"{folder}/labelled.npz", "-q", f"{folder}/pile", "-o", f"{folder}/answers", "-m", method]
            seconds, cpu, memory = run([sys.executable, "-m", "likelyshot", "classify", *options])
        row(table, rows, seconds, cpu, memory)
    return table


def images(sizes: list[int], what: str, method: str, place: str | None) -> Table:
    """Embed images with an encoder that takes no time, and classify those of an archive, or write a features file."""
    done = f"classify by {method}, a tar archive" if what == "images" else "extract, a folder"
    table = headed(f"{done} of images of 8 x 8 pixels, all different; simulated encoder of 1,280 numbers")
    for rows in sizes:
        with tempfile.TemporaryDirectory(dir=place) as folder:
            make_images(Path(folder), rows, archive=what == "images")
            os.environ["LIKELYSHOT_CACHE"] = f"{folder}/cache"
            command = [sys.executable, "-m", "benchmarks.scale", "embed", "--place", folder, "--method", method]
            seconds, cpu, memory = run(command)
        row(table, rows, seconds, cpu, memory)
    return table


def make_images(folder: Path, count: int, *, archive: bool) -> None:
    """Write labelled images in folders, and a pile of different ones in an archive or a folder."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "BMP")
    header = file.getvalue()[:-192]

    noise = np.random.default_rng(0).integers(0, 96, (3000, 64, 3)) + 128 * np.eye(3)[np.arange(3000) % 3][:, None]
    noise_bytes = [pixels.tobytes()[8:] for pixels in noise.astype(np.uint8)]

    def picture(number: int) -> bytes:
        return header + number.to_bytes(8, "little") + noise_bytes[number % 3000]

    for number in range(30):
        path = folder / "labelled" / str(number % 3) / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(10**9 + number))
    if not archive:
        for number in range(count):
            if number % 1000 == 0:
                (folder / "pile" / f"{number // 1000:04d}").mkdir(parents=True)
            (folder / "pile" / f"{number // 1000:04d}" / f"{number}.bmp").write_bytes(picture(number))
        return
    with (folder / "pile.tar").open("wb") as tar:
        for number in range(count):
            entry = tarfile.TarInfo(f"{number // 1000:04d}/{number}.bmp")
            data = picture(number)
            entry.size = len(data)
            tar.write(entry.tobuf() + data + bytes(-len(data) % 512))
        tar.write(bytes(1024))


def embed(folder: Path, method: str) -> None:
    """Classify or extract the images of a folder in this process, with a simulated encoder."""
    from likelyshot import callable_encoder
    from likelyshot.encoders.extract import extract
    from likelyshot.own_data.pipeline import classify

    def encode(pictures: list[Any]) -> np.ndarray:
        pixels = np.stack([np.asarray(picture.crop((0, 0, 8, 8)), np.float32).reshape(-1) for picture in pictures])
        return np.tile(pixels, 7)[:, :1280] + 1.0

    encoder = callable_encoder(encode, "simulated")
    if (folder / "pile.tar").exists():
        classify(folder / "labelled", folder / "pile.tar", encoder=encoder, method=method).save(folder / "answers")
    else:
        extract(folder / "pile", folder / "features.safetensors", encoder=encoder)


def overhead(rows: int, place: str | None) -> Table:
    """Compare the CPU time of passes over a pile by threads and by tasks of a local Ray."""
    import torch

    from likelyshot.data.shards import Shards, open_shard
    from likelyshot.machine import sent_to
    from likelyshot.own_data.scoring import transductive_prototypes
    from likelyshot.workers import Ray

    table = headed(f"two passes of mll_transductive over {rows:,} x {DIM} rows in half precision")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        make(Path(folder), rows, "npy")
        labelled = np.load(f"{folder}/labelled.npz")
        support, labels = torch.from_numpy(labelled["features"]), torch.from_numpy(labelled["labels"])
        pile = Shards([open_shard(path) for path in sorted(Path(folder, "pile").iterdir())])

        def passes() -> tuple[float, float, torch.Tensor]:
            started, before = time.perf_counter(), family_seconds()
            prototypes = transductive_prototypes(support, labels, pile, n_ways=WAYS, iterations=2)
            return time.perf_counter() - started, family_seconds() - before, prototypes

        passes()  # the file is in the system's cache
        before, started = family_seconds(), time.perf_counter()
        joined = Ray()
        with sent_to(joined):
            results = [passes()[2]]
        first = time.perf_counter() - started, family_seconds() - before
        runs: dict[str, list[tuple[float, float]]] = {"threads": [], "Ray": []}
        for _ in range(TIMES):  # in turns, since other programs make both slower
            for name, where in (("threads", contextlib.nullcontext()), ("Ray", sent_to(joined))):
                with where:
                    seconds, cpu, sums = passes()
                runs[name].append((seconds, cpu))
                results.append(sums)
        joined.close()
        assert all(torch.equal(sums, results[0]) for sums in results)
        middle = {name: np.median(each, axis=0) for name, each in runs.items()}
        for name, (seconds, cpu) in {"Ray, with its start": first, **middle}.items():
            more = f"{100 * (cpu / middle['threads'][1] - 1):+.0f} %" if name != "threads" else ""
            table.add_row(name, f"{seconds:.1f}", f"{2 * rows / seconds:,.0f}", f"{cpu:.1f}", more)
    return table


def family_seconds() -> float:
    """Sum the CPU seconds of this process and of all that descend from it."""
    parents, seconds = {}, {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.name)] = int(fields[1])
        seconds[int(place.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(seconds[pid] for pid in family) + ended.ru_utime + ended.ru_stime


def headed(title: str) -> Table:
    """Make a table."""
    table = Table(title=f"{title}; {date.today()}, {platform.machine()}, {os.cpu_count()} cores", title_justify="left")
    columns = ("rows", "seconds", "rows/s", "CPU seconds", "memory, MB")
    for column in ("", "seconds", "rows/s", "CPU seconds", "more CPU") if title.startswith("two") else columns:
        table.add_column(column, justify="right")
    return table


def row(table: Table, rows: int, seconds: float, cpu: float, memory: float) -> None:
    """Add a row, and print it at once."""
    cells = (f"{rows:,}", f"{seconds:.1f}", f"{rows / seconds:,.0f}", f"{cpu:.1f}", f"{memory:,.0f}")
    table.add_row(*cells)
    print(*cells, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["vectors", "images", "extract", "ray", "embed"], default="vectors")
    parser.add_argument("--rows", type=int, nargs="+", help="sizes of the piles")
    parser.add_argument("--kind", choices=["npy", "parquet"], default="npy")
    parser.add_argument("--method", default="mll", help="default: mll; classify itself takes likelihood_mixture")
    parser.add_argument("--place", help="folder for the piles; default: the system's for temporary files")
    options = parser.parse_args()
    if options.what == "embed":
        embed(Path(options.place), options.method)
    elif options.what == "vectors":
        Console().print(vectors(options.rows or [10**5, 10**6, 10**7], options.kind, options.method, options.place))
    elif options.what in ("images", "extract"):
        Console().print(images(options.rows or [10**4, 10**5], options.what, options.method, options.place))
    else:
        Console().print(overhead((options.rows or [10**6])[0], options.place))


if __name__ == "__main__":
    main()

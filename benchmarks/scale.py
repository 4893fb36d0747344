"""Time and memory of classifying a pile of 512 numbers a row, transductively, from a file.

python -m benchmarks.scale              # 10^4, 10^5 and 10^6 rows: the table of docs/own-data.md
python -m benchmarks.scale --quick      # 10^4 and 10^5

Memory is that of the process's own (RssAnon on Linux), less what it had before it began; the pages of the mapped file,
which the system gives back at will, are not counted.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

DIM, WAYS, SHOTS = 512, 5, 5


def own_memory() -> float:
    """The process's own resident memory in MB."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def make(folder: Path, rows: int) -> None:
    """Write a labelled file and a pile: exponential features around class means."""
    generator = np.random.default_rng(0)
    centres = 0.6 + 0.8 * generator.random((WAYS, DIM), dtype=np.float32)
    labels = np.arange(WAYS * SHOTS) % WAYS
    support = generator.standard_exponential((len(labels), DIM), dtype=np.float32) * centres[labels]
    np.savez(folder / "labelled.npz", features=support, labels=labels)
    pile = np.lib.format.open_memmap(folder / "pile.npy", mode="w+", dtype=np.float32, shape=(rows, DIM))
    truth = np.zeros(rows, dtype=np.int64)
    for start in range(0, rows, 10_000):
        part = slice(start, min(start + 10_000, rows))
        truth[part] = generator.choice(WAYS, part.stop - start, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        noise = generator.standard_exponential((part.stop - start, DIM), dtype=np.float32)
        pile[part] = noise * centres[truth[part]]
    pile.flush()
    np.save(folder / "truth.npy", truth)


def measure(folder: Path) -> None:
    """Classify the pile of a folder in this process, and print seconds, MB and accuracy."""
    from likelyshot.own_data.pipeline import classify

    np.random.default_rng(0).random((64, 64)) @ np.ones((64, 64))  # libraries start their threads
    before, peak, done = own_memory(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak.append(own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    result = classify(folder / "labelled.npz", folder / "pile.npy")
    result.save(folder / "predictions.parquet")
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    from pyarrow import parquet

    predicted = parquet.read_table(folder / "predictions.parquet", columns=["predicted"])["predicted"].to_numpy()
    right = (predicted == np.load(folder / "truth.npy").astype(str)).mean()
    print(f"{seconds} {max(peak) - before} {right}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the million")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
        return
    table = Table(title=f"{DIM} numbers a row, {WAYS} classes, {date.today()}, {platform.machine()}")
    for column in ("rows", "file, MB", "seconds", "rows/s", "own memory, MB", "accuracy"):
        table.add_column(column, justify="right")
    for rows in (10**4, 10**5) if arguments.quick else (10**4, 10**5, 10**6):
        with tempfile.TemporaryDirectory() as place:
            make(Path(place), rows)
            size = (Path(place) / "pile.npy").stat().st_size / 2**20
            command = [sys.executable, "-m", "benchmarks.scale", "--measure", place]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, memory, right = map(float, ran.stdout.split()[-3:])
        speed = f"{rows / seconds:,.0f}"
        table.add_row(f"{rows:,}", f"{size:,.0f}", f"{seconds:.1f}", speed, f"{memory:,.0f}", f"{right:.4f}")
    Console().print(table)


if __name__ == "__main__":
    main()

"""Lay out labelled photographs and a pile from CUB-200-2011, as in docs/own-data.md, or count what classify got right.

python tools/sample_pile.py IMAGES FOLDER                   writes FOLDER/labelled and FOLDER/pile
python tools/sample_pile.py --count predictions.csv         prints how many answers are right, after classify

IMAGES is the folder or zip archive of one folder of images per class.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from likelyshot.data.datasets import open_images

KNOWN = ("017.Cardinal", "035.Purple_Finch", "066.Western_Gull", "146.Forsters_Tern", "196.House_Wren")
UNKNOWN = "033.Yellow_billed_Cuckoo"
LABELLED, QUERIES, STRANGERS = 5, 20, 21


def lay_out(images: Path, folder: Path) -> None:
    """Write five labelled images of each known class, and a pile of twenty more, of strangers and of odd files."""
    rng = np.random.default_rng(0)
    opened = open_images(images)
    for name in (*KNOWN, UNKNOWN):
        label = opened.classes.index(name)
        paths = [path for path, other in zip(opened.names, opened.labels.tolist(), strict=True) if other == label]
        paths = [paths[i] for i in rng.permutation(len(paths))]
        labelled = LABELLED if name in KNOWN else 0
        for i, path in enumerate(paths[: labelled + (QUERIES if labelled else STRANGERS)]):
            place = folder / "labelled" / name if i < labelled else folder / "pile"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}-{Path(path).name}").write_bytes(opened.source.read(path))
    (folder / "labelled" / "empty class").mkdir()
    (folder / "pile" / "notes.txt").write_text("not an image")
    (folder / "pile" / "=evil,\n.jpg").write_bytes(b"")


def count(predictions: Path) -> None:
    """Print how many items of the known classes got theirs, and how many of either kind were rejected."""
    with predictions.open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if not Path(row["path"]).name.startswith(UNKNOWN)]
    right = sum(Path(row["path"]).name.startswith(row["predicted"]) for row in known)
    rejected = [sum(row["reject"].lower() == "true" for row in part) for part in (rows, known)]
    print(f"{right} of {len(known)} items with a known class got the right one.")
    print(f"Rejected: {rejected[0] - rejected[1]} of {len(rows) - len(known)} strangers, {rejected[1]} others.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, metavar="IMAGES FOLDER")
    parser.add_argument("--count", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.count:
        count(options.count)
    elif len(options.places) == 2:
        lay_out(*options.places)
    else:
        parser.error("expected IMAGES and FOLDER, or --count FILE")

"""Choose the settings of the CUB heads on the validation classes, with the same budget for each metric, and print them.

python tools/tune_heads.py FEATURES FOLDER

Every point of the grid is a run of the recipe cub_head_METRIC in a folder of its own; a second call goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

METRICS = ("euclidean", "cosine", "mll")
GRID = {
    "finetune.lr": ("3e-4", "1e-3", "3e-3"),
    "finetune.weight_decay": ("1e-2", "1.0"),
    "finetune.shots": ("1", "5"),
}


def main() -> None:
    """Run what is not there yet, and print a table of validation accuracies, best first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    print("| metric | " + " | ".join(key.removeprefix("finetune.") for key in GRID) + " | epoch | validation, % |")
    print("|---" * (len(GRID) + 3) + "|")
    for metric in METRICS:
        rows = []
        for values in itertools.product(*GRID.values()):
            folder = arguments.folder / "_".join((metric, *values))
            changes = [f"{key}={value}" for key, value in zip(GRID, values, strict=True)]
            changes += [f"data.features={arguments.features}", f"run.output={folder}"]
            if not (folder / "summary.json").exists():
                train(load_recipe(f"cub_head_{metric}", changes), resume=True)
            stage = json.loads((folder / "summary.json").read_text())["stages"]["finetune"]
            rows.append((stage["validation_accuracy"], metric, *values, stage["epoch"]))
        for accuracy, *cells in sorted(rows, key=lambda row: -row[0]):
            print("| " + " | ".join(map(str, cells)) + f" | {100 * accuracy:.2f} |", flush=True)


if __name__ == "__main__":
    main()

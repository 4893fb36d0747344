"""Collect the logs of runs for docs/results: recipe, environment and epochs of every run, and a figure.

python tools/training_log.py NAME TITLE RUN... -> docs/results/logs/NAME.jsonl, docs/images/NAME.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from likelyshot.data.files import output_folder, write_whole
from likelyshot.report.charts import Chart, Line, Panel
from likelyshot.report.figures import write_figure

DOCS = Path(__file__).parent.parent / "docs"


def read(run: Path) -> dict[str, Any]:
    """Read a run; paths are reduced to their last part."""
    recipe = json.loads((run / "recipe.json").read_text())
    for table, key, parts in (
        ("data", "path", 1),
        ("data", "features", 1),
        ("encoder", "weights", 2),
        ("run", "output", 1),
    ):
        recipe[table][key] = "/".join(Path(recipe[table][key]).parts[-parts:])
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    epochs = [
        {key: value for key, value in line.items() if key != "place"} for line in lines if line["event"] == "epoch"
    ]
    return {
        "run": run.name,
        "recipe": recipe,
        "environment": json.loads((run / "environment.json").read_text()),
        "summary": json.loads((run / "summary.json").read_text()),
        "epochs": epochs,
    }


def main(name: str, title: str, folders: list[str]) -> None:
    """Write the log and the figure."""
    runs = [read(Path(folder)) for folder in folders]
    text = "".join(json.dumps(run) + "\n" for run in runs)
    write_whole(output_folder(DOCS / "results" / "logs") / f"{name}.jsonl", text.encode())
    panels = []
    for stage in ("pretrain", "finetune"):
        marks = []
        for colour, run in enumerate(run for run in runs if any(line["stage"] == stage for line in run["epochs"])):
            epochs = [line for line in run["epochs"] if line["stage"] == stage]
            values = [[100 * line[key] for line in epochs] for key in ("validation_accuracy", "validation_ci95")]
            marks.append(Line(run["run"], [line["epoch"] for line in epochs], values[0], colour, values[1]))
        if marks:
            panels.append(Panel("epoch", "validation accuracy, %", marks, stage))
    caption = "Accuracy of 5-way 1-shot tasks of the validation classes after every epoch, with 95 % intervals."
    write_figure(DOCS / "images" / f"{name}.svg", Chart(name, title, caption, panels))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

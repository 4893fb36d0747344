"""Draw accuracy by imbalance from a table of `tools.ahead cells`: python -m tools.ahead_picture TABLE PICTURE."""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from likelyshot.methods.binding import titles

SHOWN = ("likelihood_mixture", "bavardage", "paddle", "protolp", "mll_transductive", "alpha_tim", "logistic")
COLOURS = ("#0b6e4f", "#c44536", "#3d5a80", "#8d6a9f", "#d08c2e", "#5f6b6d", "#999999")
MARKS = "osD^vPX"


def main() -> None:
    """Draw one panel per number of shots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    lines = [line.strip("| \n").split(" | ") for line in options.table.read_text().splitlines() if line.startswith("|")]
    head, rows = lines[0][1:], {line[0]: [float(cell.split()[0]) for cell in line[1:]] for line in lines[2:]}
    plt.rcParams.update({"svg.hashsalt": "ahead", "font.size": 9})
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
    for panel, shots in zip(panels, ("1-shot", "5-shot"), strict=True):
        places = [place for place, name in enumerate(head) if name.endswith(shots)]
        names = [head[place].split(",")[0].replace("dirichlet ", "Dirichlet ") for place in places]
        for method, colour, mark in zip(SHOWN, COLOURS, MARKS, strict=True):
            if method in rows:
                values = [rows[method][place] for place in places]
                width = 2.2 if method == SHOWN[0] else 1.2
                panel.plot(names, values, color=colour, marker=mark, linewidth=width, label=titles()[method])
        panel.set_title(shots)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("accuracy, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(options.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()

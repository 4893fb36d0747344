"""Draw a table of `tools.ahead cells` by imbalance, or by shots: python -m tools.ahead_picture TABLE PICTURE."""

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
    """Draw one panel per number of shots, over the imbalance; of one imbalance, one panel over the shots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    lines = [line.strip("| \n").split(" | ") for line in options.table.read_text().splitlines() if line.startswith("|")]
    rows = {line[0]: [float(cell.split()[0]) for cell in line[1:]] for line in lines[2:]}
    cells = [tuple(name.split(", ")) for name in lines[0][1:]]  # kind of imbalance, shots
    over_shots = len({kind for kind, _ in cells}) == 1
    groups = ["5 ways, " + cells[0][0]] if over_shots else list(dict.fromkeys(shots for _, shots in cells))
    plt.rcParams.update({"svg.hashsalt": "ahead", "font.size": 9})
    figure, panels = plt.subplots(
        1,
        len(groups),
        figsize=(2 + 3.2 * len(groups), 3.6 if len(groups) > 1 else 4.2),
        layout="constrained",
        squeeze=False,
    )
    for panel, group in zip(panels[0], groups, strict=True):
        places = [place for place, (_, shots) in enumerate(cells) if over_shots or shots == group]
        names = [cells[place][1 if over_shots else 0].replace("dirichlet", "Dirichlet") for place in places]
        for method, colour, mark in zip(SHOWN, COLOURS, MARKS, strict=True):
            if method in rows:
                values = [rows[method][place] for place in places]
                width = 2.2 if method == SHOWN[0] else 1.2
                panel.plot(names, values, color=colour, marker=mark, linewidth=width, label=titles()[method])
        panel.set_title(group.replace("dirichlet", "Dirichlet"))
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0, 0].set_ylabel("accuracy, %")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2 * len(groups), frameon=False
    )
    figure.savefig(options.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()

"""The options that commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Plan(str, Enum):
    """How the queries of a task are drawn."""

    dirichlet = "dirichlet"
    balanced = "balanced"


#: How the names of features files end.
SUFFIXES = (".safetensors", ".npz", ".npy", ".csv", ".tsv", ".parquet", ".pkl", ".pickle", ".plk", ".pt", ".pth")
KINDS = "Features: .safetensors, .npz, .npy, .csv, .tsv, .parquet, .pkl or .pt"
FeaturesArgument = Annotated[
    Path | None, typer.Argument(help=f"{KINDS}. Without it, the packaged ones of MLL.", show_default=False)
]
NetworksArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        help=f"{KINDS}; or three files, of the networks for euclidean, cosine and mll. Without any, the packaged ones.",
        show_default=False,
    ),
]
MethodOption = Annotated[list[str], typer.Option("--method", "-m", help="Methods, or 'all'; see likelyshot list.")]
WaysOption = Annotated[int, typer.Option(help="Classes per task.")]
ShotsOption = Annotated[list[int], typer.Option(help="Labelled examples per class; several make several tables.")]
QueryOption = Annotated[Plan, typer.Option("--query", help="Imbalanced (dirichlet) or balanced queries.")]
AlphaOption = Annotated[float, typer.Option(help="Concentration of the Dirichlet distribution: lower, less balanced.")]
TotalOption = Annotated[int, typer.Option(help="Queries per task, dirichlet.")]
PerClassOption = Annotated[int, typer.Option(help="Queries per class, balanced.")]
TasksOption = Annotated[int, typer.Option("--tasks", "-n", help="Number of tasks.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed: the same seed gives the same tasks.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps ...")]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="NAME=VALUE, for every method that has it; METHOD.NAME=VALUE for one."),
]
SplitOption = Annotated[str | None, typer.Option(help="Split of the features file to draw tasks from.")]
LabelsOption = Annotated[Path | None, typer.Option(help="Labels of a .npy file: .npy, or text with one a line.")]
ValOption = Annotated[
    list[Path] | None,
    typer.Option(help="Validation features, for combined; repeat it for several networks. Default: split val."),
]
BaseOption = Annotated[
    Path | None, typer.Option(help="Base features, for methods that centre on them. Default: the file's split train.")
]
CalibrationOption = Annotated[Path | None, typer.Option(help="A saved calibration, for combined.")]
NormaliseOption = Annotated[bool, typer.Option("--normalise/--no-normalise", help="L2-normalise the features first.")]
RectifyOption = Annotated[bool, typer.Option("--rectify", help="Split signed features into [relu(x), relu(-x)].")]
OverlapOption = Annotated[
    bool,
    typer.Option("--overlap", help="Legacy: draw queries that may repeat the support, as older code does."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, all else on error.")]

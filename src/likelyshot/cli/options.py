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
KINDS = "Features file: .safetensors, .npz, .npy, .csv, .tsv, .parquet, .pkl or .pt"
FeaturesArgument = Annotated[
    Path | None, typer.Argument(help=f"{KINDS}. Default: the packaged features.", show_default=False)
]
NetworksArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        help=f"{KINDS}. Or three files, made by networks trained with euclidean, cosine and mll. Default: the packaged "
        "features.",
        show_default=False,
    ),
]
MethodOption = Annotated[
    list[str], typer.Option("--method", "-m", help="One or more methods, or 'all'; likelyshot list shows them.")
]
WaysOption = Annotated[int, typer.Option(help="Number of classes per task.")]
ShotsOption = Annotated[
    list[int], typer.Option(help="Number of labelled examples per class; one table for each number.")
]
QueryOption = Annotated[
    Plan, typer.Option("--query", help="How many queries each class has: different numbers (dirichlet) or the same.")
]
AlphaOption = Annotated[float, typer.Option(help="With dirichlet: the lower, the less balanced.")]
TotalOption = Annotated[int, typer.Option(help="With dirichlet: number of queries per task.")]
PerClassOption = Annotated[int, typer.Option(help="With balanced: number of queries per class.")]
TasksOption = Annotated[int, typer.Option("--tasks", "-n", help="Number of tasks.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed: the same seed gives the same tasks.")]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps, ...")]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="NAME=VALUE for every method that has it, or METHOD.NAME=VALUE for one."),
]
SplitOption = Annotated[
    str | None, typer.Option(help="Split of the features file to draw tasks from. Default: test, or the only one.")
]
LabelsOption = Annotated[
    Path | None, typer.Option(help="File with the labels, if the features have none: .npy, or text with one per line.")
]
ValOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="Validation features: combined is calibrated and temperatures are fitted on them. Once for each features "
        "file. Default: the split val, unless it is tested."
    ),
]
BaseOption = Annotated[
    Path | None,
    typer.Option(
        help="Base features, for methods that need their mean or covariance. Default: the split train, unless it is "
        "tested."
    ),
]
CalibrationOption = Annotated[Path | None, typer.Option(help="Calibration that evaluate -o wrote, for combined.")]
NormaliseOption = Annotated[
    bool, typer.Option("--normalise/--no-normalise", help="Scale feature vectors to length one, where methods allow.")
]
RectifyOption = Annotated[
    bool, typer.Option("--rectify", help="Split signed features x into [relu(x), relu(-x)], which are not negative.")
]
OverlapOption = Annotated[
    bool,
    typer.Option("--overlap", help="Let queries repeat labelled examples, to compare with older code that does."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document to stdout; everything else goes to stderr.")
]

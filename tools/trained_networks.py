"""Fine-tune a network of CIFAR-FS with each method, from one first stage and with one budget; print the table.

python -m tools.trained_networks IMAGES STAGE1 FOLDER [--network conv4] [--seeds 0 1 2] [--tasks 2000]
    [--slow-tasks 500] [--adapted-tasks 100] [--epochs 3] [--episodes 100] [--validation-tasks 200]
    [--methods mll feat] [--set run.precision=bf16] [--train-only]

STAGE1 is best.safetensors of a run of cifar_fs_NETWORK_euclidean with finetune.epochs=0. Every run has a folder and
every cell of the table a file; a second call goes on. The epoch, and lambda_max of MLL, are chosen on the validation
classes. A seed is that of the episodes, and of a head's first weights. Every seed has its share of the tasks, one in
three of three seeds, so that the mean is over the seeds and over all tasks at the cost of one seed; in brackets stands
the difference to MLL of each seed, on its share. The last rows adapt the Conv4 of STAGE1 to every task, by entropy
minimisation, and are not trained; --adapted-tasks 0 leaves them out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.cells import each_seed, percent, shared_out

from likelyshot import Balanced, Dirichlet, Features, InputError, evaluate, load_head, sample_tasks
from likelyshot.encoders import networks
from likelyshot.methods import Method
from likelyshot.methods.binding import bind, needs, titles
from likelyshot.training.pool import encode_pool, open_data, read_pool
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

METHODS = ("mll", "euclidean", "cosine", "ridge", "svm", "feat", "anil", "ctm", "deepemd")
#: The head of MAML is a Conv4.
NETWORKS = {"conv4": (*METHODS, "maml"), "resnet12": METHODS}
#: What a method needs besides its recipe.
CHANGES = {
    "maml": ["finetune.head.batch_norm=false", "finetune.head.classifier_rate=0.1", "finetune.head_lr=1e-4"],
}
PARAMS: dict[str, dict[str, Any]] = {"deepemd": {"grid": 2}, "maml": {"normalise": False}}
SLOW = ("deepemd", "maml")
#: Rows whose parameters the title of the method does not fit.
TITLES = {"deepemd": "DeepEMD, four cells"}
LAMBDAS = (5.0, 10.0, 20.0, 40.0, 80.0)
#: Rows that adapt the first stage to every task: their titles, and parameters of entropy_min_network.
ADAPTED: dict[str, dict[str, Any]] = {
    "Stage 1, nearest prototype": {"steps": 0},
    "Stage 1, Entropy-min, classifier only": {"network_rate": 0.0},
    "Stage 1, Entropy-min, whole network": {},
}
SHOTS = (1, 5)
PLANS: dict[str, Balanced | Dirichlet] = {"balanced": Balanced(15), "Dirichlet(2)": Dirichlet(75, 2.0)}
COLUMNS = [(shots, title) for shots in SHOTS for title in PLANS]


def run_folder(arguments: argparse.Namespace, name: str, seed: int) -> Path:
    """Name the folder of a run."""
    return Path(arguments.folder / f"{arguments.network}_{name}_seed{seed}")


def train_network(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Train with a method, unless that is done."""
    place = run_folder(arguments, name, seed)
    if (place / "summary.json").exists():
        return
    start = "finetune.head_weights" if name == "maml" else "encoder.weights"
    changes = [f"data.path={arguments.images}", f"data.cache={arguments.folder / 'pixels'}"]
    changes += ["pretrain.epochs=0", f"{start}={arguments.stage1}", f"finetune.epochs={arguments.epochs}"]
    changes += [f"finetune.episodes={arguments.episodes}", f"validate.tasks={arguments.validation_tasks}"]
    changes += [*CHANGES.get(name, []), *arguments.set, f"run.seed={seed}", f"run.output={place}"]
    train(load_recipe(f"cifar_fs_{arguments.network}_{name}", changes), resume=True)


def bound(name: str, place: Path) -> Method:
    """Bind a method to its parameters and to the head of its run."""
    head = {"head": load_head(place / "best.safetensors")} if "head" in needs(name) else {}
    params = {"lambda_max": best_bound(place)} if name == "mll" else PARAMS.get(name, {})
    return bind(name, params, head)


def best_bound(place: Path) -> float:
    """Choose lambda_max on 1,000 tasks of the validation classes, 1-shot."""
    features = Features.load(place / "features.safetensors", split="val")
    tasks = sample_tasks(features.labels, n_tasks=1_000, query=Balanced(15), seed=1)
    accuracy = {bound: evaluate(bind("mll", {"lambda_max": bound}), features, tasks).mean for bound in LAMBDAS}
    print(f"lambda_max of {place.name}:", {key: f"{100 * mean:.2f}" for key, mean in accuracy.items()}, file=sys.stderr)
    return max(accuracy, key=lambda bound: accuracy[bound])


def pixels(images: Path) -> Features:
    """Read the test classes as pixels."""
    recipe = load_recipe("cifar_fs_conv4_maml", [f"data.path={images}"])
    return encode_pool(
        networks.build("flat", {"side": recipe.data.size}), read_pool(open_data(recipe.data, ("test",))["test"], recipe)
    )


def row(folder: Path, name: str, methods: list[Method], features: list[Features], n_tasks: int) -> list[Any]:
    """Score one method, of one or more seeds, in all columns; the files of its cells are named after it."""
    cells = []
    for shots, title in COLUMNS:
        tasks = sample_tasks(features[0].labels, n_tasks=n_tasks, shots=shots, query=PLANS[title], seed=0)
        tail = f"{shots}shot_{title.partition('(')[0].lower()}"
        paths = [folder / "cells" / f"{name}_{tail}_{part}of{len(methods)}.json" for part in range(len(methods))]
        cells.append(shared_out(methods, features, paths, tasks))
    return cells


def validation(places: Sequence[Path]) -> str:
    """Describe the best epochs of runs: their mean accuracy before and after, and which they are."""
    before, after, epochs = [], [], []
    for place in places:
        stage = json.loads((place / "summary.json").read_text())["stages"]["finetune"]
        log = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
        before += [line["validation_accuracy"] for line in log if line["event"] == "epoch" and line["epoch"] == 0][:1]
        after.append(stage["validation_accuracy"])
        epochs.append(str(stage["epoch"]))
    return f"{100 * np.mean(before):.1f} | {100 * np.mean(after):.1f} (epoch {', '.join(epochs)})"


def print_row(
    title: str,
    validated: str,
    cells: list[NDArray[np.float64]],
    reference: list[NDArray[np.float64]] | None,
    seeds: int,
) -> None:
    """Print a row of the table, with paired differences to MLL."""
    texts = []
    for number, accuracy in enumerate(cells):
        texts += [percent(accuracy), ""]
        if reference is not None and reference is not cells:
            gains = accuracy - reference[number][: len(accuracy)]
            texts[-1] = percent(gains, "+") + (f" ({each_seed(gains, seeds)})" if seeds > 1 else "")
    print(f"| {title} | {len(cells[0]):,} | {validated} | " + " | ".join(texts) + " |", flush=True)


def main() -> None:
    """Train, score, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("stage1", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="conv4")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--slow-tasks", type=int, default=500)
    parser.add_argument("--adapted-tasks", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--validation-tasks", type=int, default=200)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a change of every recipe")
    parser.add_argument("--train-only", action="store_true")
    arguments = parser.parse_args()
    names, seeds, folder = arguments.methods or NETWORKS[arguments.network], arguments.seeds, arguments.folder
    for seed in seeds:
        for name in names:
            try:
                train_network(name, seed, arguments)
            except InputError as error:
                print(f"{name}: {error}", flush=True)
    if arguments.train_only:
        return
    heads = [f"{shots}-shot, {title} | minus MLL" for shots, title in COLUMNS]
    print("| method | tasks | validation before | after | " + " | ".join(heads) + " |")
    print("|---" * (4 + 2 * len(COLUMNS)) + "|")
    reference = None
    for name in names:
        places = [run_folder(arguments, name, seed) for seed in seeds]
        if not all((place / "summary.json").exists() for place in places):
            continue
        features = [Features.load(place / "features.safetensors", split="test") for place in places]
        n_tasks = arguments.slow_tasks if name in SLOW else arguments.tasks
        cells = row(folder, f"{arguments.network}_{name}", [bound(name, place) for place in places], features, n_tasks)
        reference = cells if name == "mll" else reference
        print_row(TITLES.get(name, titles()[name]), validation(places), cells, reference, len(seeds))
    if arguments.adapted_tasks and arguments.network == "conv4":
        test, head = pixels(arguments.images), load_head(arguments.stage1)
        for number, (title, params) in enumerate(ADAPTED.items()):
            method = bind("entropy_min_network", {"normalise": False, **params}, {"head": head})
            cells = row(folder, f"adapted{number}", [method], [test], arguments.adapted_tasks)
            print_row(title, " | ", cells, reference, 1)


if __name__ == "__main__":
    main()

"""Fine-tune a Conv4 of CIFAR-FS with each method, from the same first stage and with the same budget; print the table.

python -m tools.trained_networks IMAGES STAGE1 FOLDER [--tasks 2000] [--slow-tasks 500] [--adapted-tasks 100]
    [--epochs 3] [--episodes 100] [--validation-tasks 200] [--methods mll feat] [--train-only]

STAGE1 is best.safetensors of a run of cifar_fs_conv4_euclidean with finetune.epochs=0. Every run has a folder and every
cell of the table a file; a second call goes on. The epoch, and lambda_max of MLL, are chosen on the validation classes.
The last rows adapt the network of STAGE1 to every task, by entropy minimisation, and are not trained; --adapted-tasks 0
leaves them out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tools.cells import scored

from likelyshot import Balanced, Dirichlet, Features, InputError, Result, evaluate, load_head, sample_tasks
from likelyshot.encoders import networks
from likelyshot.methods import Method
from likelyshot.methods.binding import bind, needs, titles
from likelyshot.training.pool import encode_pool, open_data, read_pool
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

METHODS = ("mll", "euclidean", "cosine", "ridge", "feat", "anil", "ctm", "deepemd", "maml")
#: What a method needs besides its recipe.
CHANGES = {"maml": ["finetune.head.batch_norm=false", "finetune.head_lr=1e-4"]}
PARAMS: dict[str, dict[str, Any]] = {"deepemd": {"grid": 2}}
SLOW = ("deepemd", "maml")
LAMBDAS = (5.0, 10.0, 20.0, 40.0, 80.0)
#: Rows that adapt the first stage to every task: their titles, and parameters of entropy_min_network.
ADAPTED: dict[str, dict[str, Any]] = {
    "Stage 1, nearest prototype": {"steps": 0},
    "Stage 1, Entropy-min, classifier only": {"network_rate": 0.0},
    "Stage 1, Entropy-min, whole network": {},
}
SHOTS = (1, 5)
PLANS = {"balanced": Balanced(15), "Dirichlet(2)": Dirichlet(75, 2.0)}
COLUMNS = [(shots, title) for shots in SHOTS for title in PLANS]


def train_network(name: str, arguments: argparse.Namespace) -> None:
    """Train with a method, unless that is done."""
    place = arguments.folder / name
    if (place / "summary.json").exists():
        return
    start = "finetune.head_weights" if name == "maml" else "encoder.weights"
    changes = [f"data.path={arguments.images}", f"data.cache={arguments.folder / 'pixels'}", f"run.output={place}"]
    changes += ["pretrain.epochs=0", f"{start}={arguments.stage1}", f"finetune.epochs={arguments.epochs}"]
    changes += [f"finetune.episodes={arguments.episodes}", f"validate.tasks={arguments.validation_tasks}"]
    train(load_recipe(f"cifar_fs_conv4_{name}", [*changes, *CHANGES.get(name, [])]), resume=True)


def bound(folder: Path, name: str) -> Method:
    """Bind a method to its parameters and to the head of its run."""
    head = {"head": load_head(folder / name / "best.safetensors")} if "head" in needs(name) else {}
    params = {"lambda_max": best_bound(folder / name)} if name == "mll" else PARAMS.get(name, {})
    return bind(name, params, head)


def best_bound(place: Path) -> float:
    """Choose lambda_max on 1,000 tasks of the validation classes, 1-shot."""
    features = Features.load(place / "features.safetensors", split="val")
    tasks = sample_tasks(features.labels, n_tasks=1_000, query=Balanced(15), seed=1)
    accuracy = {bound: evaluate(bind("mll", {"lambda_max": bound}), features, tasks).mean for bound in LAMBDAS}
    print("lambda_max of MLL:", {bound: f"{100 * mean:.2f}" for bound, mean in accuracy.items()}, file=sys.stderr)
    return max(accuracy, key=lambda bound: accuracy[bound])


def pixels(images: Path) -> Features:
    """Read the test classes as pixels."""
    recipe = load_recipe("cifar_fs_conv4_maml", [f"data.path={images}"])
    return encode_pool(
        networks.build("flat", {"side": recipe.data.size}), read_pool(open_data(recipe.data, ("test",))["test"], recipe)
    )


def cell(folder: Path, name: str, method: Method, features: Features, column: tuple[int, str], n_tasks: int) -> Result:
    """Score a method on the test classes, unless the file has the result."""
    shots, title = column
    tasks = sample_tasks(features.labels, n_tasks=n_tasks, shots=shots, query=PLANS[title], seed=0)
    return scored(
        method, features, folder / "cells" / f"{name}_{shots}shot_{title.partition('(')[0].lower()}.json", tasks
    )


def validation(folder: Path, name: str) -> str:
    """Describe the best epoch of a run."""
    stage = json.loads((folder / name / "summary.json").read_text())["stages"]["finetune"]
    log = [json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()]
    before = next(line["validation_accuracy"] for line in log if line["event"] == "epoch" and line["epoch"] == 0)
    return f"{100 * before:.1f} | {100 * stage['validation_accuracy']:.1f} (epoch {stage['epoch']})"


def print_row(title: str, validated: str, results: list[Result], reference: list[Result] | None) -> None:
    """Print a row of the table, with paired differences to MLL."""
    cells = []
    for number, result in enumerate(results):
        cells.append(f"{100 * result.mean:.2f} ± {100 * result.ci95:.2f}")
        cells.append("" if reference is None or result is reference[number] else str(result.minus(reference[number])))
    print(f"| {title} | {len(results[0].accuracy):,} | {validated} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Train, score, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("stage1", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--slow-tasks", type=int, default=500)
    parser.add_argument("--adapted-tasks", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--validation-tasks", type=int, default=200)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--train-only", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    for name in arguments.methods:
        try:
            train_network(name, arguments)
        except InputError as error:
            print(f"{name}: {error}", flush=True)
    if arguments.train_only:
        return
    heads = [f"{shots}-shot, {title} | minus MLL" for shots, title in COLUMNS]
    print("| method | tasks | validation before | after | " + " | ".join(heads) + " |")
    print("|---" * (4 + 2 * len(COLUMNS)) + "|")
    reference = None
    for name in arguments.methods:
        if not (folder / name / "summary.json").exists():
            continue
        features = Features.load(folder / name / "features.safetensors", split="test")
        n_tasks = arguments.slow_tasks if name in SLOW else arguments.tasks
        method = bound(folder, name)
        results = [cell(folder, name, method, features, column, n_tasks) for column in COLUMNS]
        reference = results if name == "mll" else reference
        print_row(titles()[name], validation(folder, name), results, reference)
    if arguments.adapted_tasks:
        features, head = pixels(arguments.images), load_head(arguments.stage1)
        for number, (title, params) in enumerate(ADAPTED.items()):
            method = bind("entropy_min_network", {"normalise": False, **params}, {"head": head})
            name = f"adapted{number}"
            results = [cell(folder, name, method, features, column, arguments.adapted_tasks) for column in COLUMNS]
            print_row(title, " | ", results, reference)


if __name__ == "__main__":
    main()

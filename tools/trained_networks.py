"""Fine-tune a Conv4 of CIFAR-FS with each method, from the same first stage and with the same budget; print the table.

python tools/trained_networks.py IMAGES STAGE1 FOLDER [--tasks 2000] [--slow-tasks 500] [--train-only]

STAGE1 is best.safetensors of a run of cifar_fs_conv4_euclidean with finetune.epochs=0. Every run has a folder and every
cell of the table a file; a second call goes on. The epoch is chosen on the validation classes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from likelyshot import Balanced, Dirichlet, Features, InputError, Result, evaluate, load_head, sample_tasks
from likelyshot.evaluation.evaluate import describe
from likelyshot.methods import Method
from likelyshot.methods.binding import bind, needs, titles
from likelyshot.training.recipes import load_recipe
from likelyshot.training.run import train

METHODS = ("euclidean", "cosine", "mll", "ridge", "feat", "anil", "ctm", "deepemd", "maml")
#: What a method needs besides its recipe.
CHANGES = {"maml": ["finetune.head.batch_norm=false", "finetune.head_lr=1e-4"]}
PARAMS: dict[str, dict[str, Any]] = {"deepemd": {"grid": 2}}
SLOW = ("deepemd", "maml")
EPOCHS, EPISODES, VALIDATION_TASKS = 3, 100, 200
SHOTS = (1, 5)
PLANS = {"balanced": Balanced(15), "Dirichlet(2)": Dirichlet(75, 2.0)}


def train_network(images: Path, stage1: Path, folder: Path, name: str) -> None:
    """Train with a method, unless that is done."""
    if (folder / name / "summary.json").exists():
        return
    start = "finetune.head_weights" if name == "maml" else "encoder.weights"
    changes = [f"data.path={images}", f"data.cache={folder / 'pixels'}", f"run.output={folder / name}"]
    changes += ["pretrain.epochs=0", f"{start}={stage1}", f"finetune.epochs={EPOCHS}", f"finetune.episodes={EPISODES}"]
    changes += [f"validate.tasks={VALIDATION_TASKS}", *CHANGES.get(name, [])]
    train(load_recipe(f"cifar_fs_conv4_{name}", changes), resume=True)


def bound(folder: Path, name: str) -> Method:
    """Bind a method to its parameters and to the head of its run."""
    head = {"head": load_head(folder / name / "best.safetensors")} if "head" in needs(name) else {}
    return bind(name, PARAMS.get(name, {}), head)


def cell(folder: Path, name: str, shots: int, title: str, n_tasks: int) -> Result:
    """Score a method on the test classes, by the network trained with it, unless the file has the result."""
    features = Features.load(folder / name / "features.safetensors", split="test")
    tasks = sample_tasks(features.labels, n_tasks=n_tasks, shots=shots, query=PLANS[title], seed=0)
    method, path = bound(folder, name), folder / "cells" / f"{name}_{shots}shot_{title.partition('(')[0].lower()}.json"
    known = Result.load(path) if path.exists() else None
    wanted = [tasks.digest, json.loads(json.dumps(describe(method)[1]))]
    if known is None or [known.config["tasks_digest"], known.config["params"]] != wanted:
        known = evaluate(method, features, tasks)
        known.save(path)
    return known


def validation(folder: Path, name: str) -> str:
    """Describe the best epoch of a run."""
    stage = json.loads((folder / name / "summary.json").read_text())["stages"]["finetune"]
    log = [json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()]
    before = next(line["validation_accuracy"] for line in log if line["event"] == "epoch" and line["epoch"] == 0)
    return f"{100 * before:.1f} | {100 * stage['validation_accuracy']:.1f} (epoch {stage['epoch']})"


def main() -> None:
    """Train, score, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("stage1", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", type=int, default=2_000)
    parser.add_argument("--slow-tasks", type=int, default=500)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--train-only", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    for name in arguments.methods:
        try:
            train_network(arguments.images, arguments.stage1, folder, name)
        except InputError as error:
            print(f"{name}: {error}", flush=True)
    if arguments.train_only:
        return
    (folder / "cells").mkdir(exist_ok=True)
    columns = [(shots, title) for shots in SHOTS for title in PLANS]
    heads = [f"{shots}-shot, {title} | minus MLL" for shots, title in columns]
    print("| method | validation before | after | " + " | ".join(heads) + " |")
    print("|---" * (3 + 2 * len(columns)) + "|")
    reference = {column: cell(folder, "mll", *column, arguments.tasks) for column in columns}
    for name in arguments.methods:
        if not (folder / name / "summary.json").exists():
            continue
        n_tasks = arguments.slow_tasks if name in SLOW else arguments.tasks
        cells = []
        for column in columns:
            result = reference[column] if name == "mll" else cell(folder, name, *column, n_tasks)
            cells.append(f"{100 * result.mean:.2f} ± {100 * result.ci95:.2f}")
            cells.append("" if name == "mll" else str(result.minus(reference[column])))
        print(f"| {titles()[name]} | {validation(folder, name)} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

"""What tools/trained.py and tools/trained_networks.py share: a cell of a table, scored once and kept in a file."""

from __future__ import annotations

import json
from pathlib import Path

from likelyshot import Features, Result, evaluate
from likelyshot.data.tasks import Tasks
from likelyshot.evaluation.evaluate import describe
from likelyshot.methods import Method


def scored(method: Method, features: Features, path: Path, tasks: Tasks) -> Result:
    """Evaluate a method, unless the file has its result on these tasks."""
    known = Result.load(path) if path.exists() else None
    wanted = [tasks.digest, json.loads(json.dumps(describe(method)[1]))]
    if known is None or [known.config["tasks_digest"], known.config["params"]] != wanted:
        known = evaluate(method, features, tasks)
        path.parent.mkdir(exist_ok=True)
        known.save(path)
    return known

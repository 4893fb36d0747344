"""Few-shot classification by likelihood.

The names below are imported on first use, so `import likelyshot` takes almost no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from likelyshot.data.features import Base, Features
    from likelyshot.data.results import Result
    from likelyshot.data.tasks import Balanced, Dirichlet, Tasks, sample_tasks
    from likelyshot.encoders.checkpoints import load_encoder
    from likelyshot.encoders.pretrained import callable_encoder, open_encoder
    from likelyshot.errors import InputError
    from likelyshot.estimators import (
        CombinedClassifier,
        FewShotClassifier,
        MLLClassifier,
        TransductiveMLLClassifier,
    )
    from likelyshot.evaluation.evaluate import calibrate, evaluate
    from likelyshot.heads import load_head
    from likelyshot.labelling import label, next_to_label
    from likelyshot.methods.calibration import Calibration
    from likelyshot.own_data import Classification, Model, classify, fit, predict

_HOME = {
    "callable_encoder": "encoders.pretrained",
    "open_encoder": "encoders.pretrained",
    "load_encoder": "encoders.checkpoints",
    "load_head": "heads",
    "InputError": "errors",
    "CombinedClassifier": "estimators",
    "FewShotClassifier": "estimators",
    "MLLClassifier": "estimators",
    "TransductiveMLLClassifier": "estimators",
    "calibrate": "evaluation.evaluate",
    "evaluate": "evaluation.evaluate",
    "label": "labelling",
    "next_to_label": "labelling",
    "Base": "data.features",
    "Features": "data.features",
    "Calibration": "methods.calibration",
    "Classification": "own_data",
    "Model": "own_data",
    "classify": "own_data",
    "fit": "own_data",
    "predict": "own_data",
    "Result": "data.results",
    "Balanced": "data.tasks",
    "Dirichlet": "data.tasks",
    "Tasks": "data.tasks",
    "sample_tasks": "data.tasks",
}

__all__ = [
    "Balanced",
    "Base",
    "Calibration",
    "Classification",
    "CombinedClassifier",
    "Dirichlet",
    "Features",
    "FewShotClassifier",
    "InputError",
    "MLLClassifier",
    "Model",
    "Result",
    "Tasks",
    "TransductiveMLLClassifier",
    "calibrate",
    "callable_encoder",
    "classify",
    "evaluate",
    "fit",
    "label",
    "load_encoder",
    "load_head",
    "next_to_label",
    "open_encoder",
    "predict",
    "sample_tasks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__

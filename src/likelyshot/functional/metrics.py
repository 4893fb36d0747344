"""These functions are in `likelyshot.functional.scores`; this module keeps older imports working."""

from likelyshot.functional.scores import (
    calibration_error,
    check_temperature,
    class_confusion,
    confusion_counts,
    decide,
    fit_temperature,
    probabilities,
    reliability_counts,
    task_metrics,
)

__all__ = [
    "calibration_error",
    "check_temperature",
    "class_confusion",
    "confusion_counts",
    "decide",
    "fit_temperature",
    "probabilities",
    "reliability_counts",
    "task_metrics",
]

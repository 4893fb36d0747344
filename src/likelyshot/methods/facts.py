"""What the package knows about a method beyond its code, and about the statistics that methods need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from likelyshot.methods.calibration import METRICS

#: Closed form: a formula scores every query on its own. Trained: the same after training on the support.
#: Transductive: the scores of a query may depend on the other queries.
Kind = Literal["closed form", "trained", "transductive"]


@dataclass(frozen=True)
class Variant:
    """A method with other parameters than its defaults, as a row of its own in `likelyshot reproduce --full`.

    Args:
        title: Name in tables.
        params: The parameters that differ from the defaults.
    """

    title: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """Facts about one method; the defaults hold for a method that is not ours.

    Args:
        title: Name in tables.
        kind: Whether a query is scored on its own, and how.
        published: Name in the paper's tables, where it differs from the title.
        non_negative: Whether the method needs non-negative features.
        several_networks: Whether it scores the features of several networks at once, if there are several.
        log_probabilities: Whether scores are log-probabilities, so that the unit of the temperature is 1, not the gap.
        temperature: Factor of the temperature's prior, in its unit; None for that of its kind.
        directions: Independent directions that its scores assume with one example in every class, where nothing can be
            held out: the temperature then follows those of the pile. None: it does not.
        runs: Runs with held-out examples that `likelyshot.confidence` allows, unless the method has a closed form.
        quick: Whether `likelyshot reproduce` shows it without --full.
        slow: Whether two cores solve fewer than 100 tasks per second: `reproduce --full` then takes fewer tasks.
        memory: Bytes that it allocates at its peak, as a multiple of those of the features, at least as many as
            `memory` in benchmarks/syncs.py measures. It sizes chunks on accelerators.
        rescales: Whether it multiplies what it has normalised by a number: `normalise=False` on unit vectors is then
            something else.
        double: Whether it computes in double precision, which some devices do not have.
        variants: Further rows of `reproduce --full`, by name.
    """

    title: str
    kind: Kind = "transductive"
    published: str = ""
    non_negative: bool = False
    several_networks: bool = False
    log_probabilities: bool = False
    temperature: float | None = None
    directions: float | None = None
    runs: int = 3
    quick: bool = False
    slow: bool = False
    memory: float = 5.0
    rescales: bool = False
    double: bool = False
    variants: Mapping[str, Variant] = field(default_factory=dict)


@dataclass(frozen=True)
class Statistic:
    """A keyword that a method needs from other data than the task.

    Args:
        source: What a user provides, in a table.
        words: What it is, in a sentence.
        remedy: How to provide it on the command line.
        python: How to get it in Python.
        base: The attribute of `likelyshot.data.features.Base` that holds it; empty if none does.
        params: Parameters that act through the statistic and not in the call of the method, with their defaults.
    """

    source: str
    words: str
    remedy: str
    python: str
    base: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


_BASE = "give base features (--base FILE), or a features file with a split called train, and test another of its splits"
STATISTICS = {
    "base_mean": Statistic(
        "base features", "the mean of base features", _BASE, "the mean feature vector of the base classes", base="mean"
    ),
    "base_within": Statistic(
        "base covariance",
        "the covariance within classes of base features",
        _BASE,
        "likelyshot.Base.of(base features).within",
        base="within",
    ),
    "calibration": Statistic(
        "validation features",
        "score statistics of validation classes",
        "give validation features (--val FILE), a saved calibration (--calibration FILE), or a features file with a "
        "split called val, and test another of its splits (--split test)",
        "likelyshot.calibrate(validation features, tasks)",
        params={"lambda_max": None, "normalise": True, "metrics": METRICS},
    ),
    "network_weights": Statistic(
        "validation features",
        "the accuracy of every network on validation classes",
        "give validation features of every network (--val FILE), or features files with a split called val, and test "
        "another of their splits (--split test)",
        "a number per network",
    ),
    "head": Statistic(
        "a trained head (none is packaged)",
        "a trained head",
        "train one with likelyshot train, and give the features that it writes, or --method NAME:CHECKPOINT",
        "likelyshot.load_head(path)",
    ),
}
#: The statistics of base classes.
BASE_STATISTICS = tuple(key for key, statistic in STATISTICS.items() if statistic.base)

"""One network, or one per metric: which features a method is scored on, and which statistics it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from likelyshot.data.features import Base, Features
from likelyshot.errors import InputError
from likelyshot.methods.binding import Statistics
from likelyshot.methods.calibration import METRICS, Calibration


@dataclass(frozen=True, eq=False)
class Network:
    """The features of a network, and what is known of its validation and base classes."""

    features: Features
    validation: Features | None = None
    base: Base | None = None


@dataclass(frozen=True, eq=False)
class Networks:
    """The same images by one network, or by one per metric, in the order of `metrics`.

    Of several, each metric is scored on its own network, `combined` on all of them, and every other method on the last.

    >>> import torch
    >>> sets = [Features.from_arrays(torch.rand(4, dim), [0, 0, 1, 1]) for dim in (2, 3, 4)]
    >>> networks = Networks([Network(features) for features in sets])
    >>> [networks.of(name)[0].dim for name in ("cosine", "mll", "tim")]
    [3, 4, 4]
    """

    members: Sequence[Network]
    metrics: tuple[str, ...] = METRICS
    shared: Statistics = field(default_factory=Statistics)  # seed, device and calibration for all of them

    def __post_init__(self) -> None:
        first, *others = (member.features for member in self.members)
        if others and len(self.members) != len(self.metrics):
            raise InputError(
                f"expected one network, or one for each of {', '.join(self.metrics)}, but got {len(self.members)}: "
                "give as many files, in this order"
            )
        for sets in ([first, *others], [member.validation for member in self.members if member.validation]):
            for other in sets[1:]:
                if other.classes != sets[0].classes or not other.labels.equal(sets[0].labels):
                    raise InputError(
                        "expected the same images in the same order from every network, but their labels differ: "
                        "extract all features from the same data"
                    )

    @property
    def digests(self) -> list[str]:
        """The digests of all the features."""
        return [member.features.digest for member in self.members]

    def of(self, method: str) -> tuple[Features | list[Features], Statistics]:
        """Give the features that a method is scored on, and its statistics."""
        if len(self.members) > 1 and method == "combined":
            return [member.features for member in self.members], self._statistics[-1]
        own = self.metrics.index(method) if len(self.members) > 1 and method in self.metrics else -1
        return self.members[own].features, self._statistics[:-1][own]

    @cached_property
    def _statistics(self) -> list[Statistics]:
        """Those of each network, and of all of them together."""
        found = [replace(self.shared, validation=one.validation, base=one.base, _made={}) for one in self.members]
        held = [one.validation for one in self.members if one.validation is not None]
        together = replace(self.shared, validation=held if len(held) == len(self.members) else None, _made={})
        return [*found, together]

    def calibrations(self) -> list[tuple[int, Calibration]]:
        """Give the calibrations that were made, with their shots."""
        return [made for statistics in self._statistics for made in statistics.made()]

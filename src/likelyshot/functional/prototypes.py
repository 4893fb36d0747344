"""These functions are in `likelyshot.functional.scores`; this module keeps older imports working."""

from likelyshot.functional.scores import class_means, one_hot, shrunk_means

__all__ = ["class_means", "one_hot", "shrunk_means"]

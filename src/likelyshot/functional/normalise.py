"""These functions are in `likelyshot.functional.scores`; this module keeps older imports working."""

from likelyshot.functional.scores import l2_normalise, rectify

__all__ = ["l2_normalise", "rectify"]

"""Your own data: a few labelled examples, a pile of the rest, and answers with probabilities."""

from likelyshot.own_data.model import Model
from likelyshot.own_data.pipeline import Classification, classify, fit, predict

__all__ = ["Classification", "Model", "classify", "fit", "predict"]

"""These functions are in `likelyshot.functional.scores`; this module keeps older imports working."""

from likelyshot.functional.scores import calibration_error, check_temperature, fit_temperature, probabilities

__all__ = ["calibration_error", "check_temperature", "fit_temperature", "probabilities"]

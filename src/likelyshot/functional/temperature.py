"""These functions are in `likelyshot.functional.metrics`; this module keeps older imports working."""

from likelyshot.functional.metrics import calibration_error, check_temperature, fit_temperature, probabilities

__all__ = ["calibration_error", "check_temperature", "fit_temperature", "probabilities"]

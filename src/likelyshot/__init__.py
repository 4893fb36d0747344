"""Few-shot classification by likelihood."""

__version__ = "0.1.0"

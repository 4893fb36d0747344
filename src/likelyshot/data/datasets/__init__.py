"""Data sets of images: class folders, zip archives of them, and tables `filename,label`; their splits; their pixels."""

from likelyshot.data.datasets.decoding import Decoded, decoded, refuse_unreadable
from likelyshot.data.datasets.image_set import ImageSet, open_images, open_splits
from likelyshot.data.datasets.pixel_cache import cached

__all__ = ["Decoded", "ImageSet", "cached", "decoded", "open_images", "open_splits", "refuse_unreadable"]

"""Data sets of images: class folders, zip archives of them, and tables `filename,label`; their splits; their pixels."""

from likelyshot.datasets.decoding import Decoded, batches, decoded
from likelyshot.datasets.image_set import ImageSet, open_images

__all__ = ["Decoded", "ImageSet", "batches", "decoded", "open_images"]

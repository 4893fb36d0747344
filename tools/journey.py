"""Count the files of the package that a command passes through: python tools/journey.py [--list].

Every command runs twice on made data, and the functions of the second run are traced, in all threads. So what runs
while modules are imported does not count, and neither do class bodies.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import likelyshot
from likelyshot.cli import main

PACKAGE = Path(likelyshot.__file__).parent


@contextlib.contextmanager
def traced() -> Iterator[set[str]]:
    """Collect the files of the package whose functions run."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(PACKAGE)):
            files.add(str(Path(code.co_filename).relative_to(PACKAGE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def call(arguments: Sequence[str]) -> None:
    """Run the command line in this process, without what it prints."""
    sys.argv = ["likelyshot", *arguments]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as stop:
        if stop.code:
            raise SystemExit(f"{arguments[0]} failed: {printed.getvalue()}") from None


def make_data(folder: Path) -> None:
    """Write features with three splits, and images of two colours."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(40)
    centres = torch.rand(8, 12, generator=generator)
    tensors = {}
    for split in ("train", "val", "test"):
        tensors[f"{split}.features"] = torch.rand(len(labels), 12, generator=generator) * centres[labels] + 1e-3
        tensors[f"{split}.labels"] = labels.clone()
    save_file(tensors, folder / "F.safetensors")
    numbers = np.random.default_rng(0)
    for name, colour in (("blue", (40, 60, 200)), ("red", (210, 50, 40))):
        for place, count in ((folder / "A" / name, 4), (folder / "B", 12)):
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = np.array(colour) + numbers.normal(0, 25, (32, 32, 3))
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(place / f"{name}{number}.png")
    recipe = """
        [data]
        features = "F.safetensors"
        [encoder]
        name = "relu_head"
        params = { dim = 8, rectify = true }
        [finetune]
        epochs = 1
        episodes = 2
        [validate]
        tasks = 10
        [run]
        output = "run"
        """
    (folder / "R.toml").write_text(recipe)


COMMANDS = {
    "evaluate": "evaluate F.safetensors --method mll --tasks 50",
    "classify": "classify --support A --query B --no-cache -o p.csv",
    "train": "train R.toml --accelerator cpu",
    "reproduce": "reproduce --tasks 10 --fresh -o r",
}


def journey(command: str) -> list[str]:
    """List the files that a command passes through."""
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            make_data(Path(folder))
            os.chdir(folder)
            with traced() as files:
                call(command.split())
            os.chdir("/")
    return sorted(files)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files too")
    parser.add_argument("commands", nargs="*", help=", ".join(COMMANDS))
    options = parser.parse_args()
    os.environ["LIKELYSHOT_CACHE"] = tempfile.mkdtemp()
    for name in options.commands or COMMANDS:
        visited = journey(COMMANDS[name])
        rest = [file for file in visited if not file.startswith(("functional/", "methods/"))]
        print(f"{name}: {len(visited)} files, {len(rest)} of them neither methods nor mathematics")
        for file in visited if options.list else ():
            print(f"  {file}")

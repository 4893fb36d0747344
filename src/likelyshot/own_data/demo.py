"""Pictures to try `classify` on, drawn here: symbols in many colours, sizes and angles, on noisy grounds."""

from __future__ import annotations

import colorsys
import csv
import functools
import io
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from likelyshot.data.files import output_folder, write_whole
from likelyshot.errors import InputError
from likelyshot.own_data.answers import Answers

SIDE = 160  # pixels of a picture
LABELLED = 5  # examples of each class
#: The symbol of each class and its number of pictures in the pile, which is imbalanced.
DRAWINGS = {
    "umbrella": ("☂", 26),
    "aeroplane": ("✈", 18),
    "anchor": ("⚓", 12),
    "knight": ("♞", 9),
    "telephone": ("☎", 6),
}
#: Pictures of the pile that belong to none of the classes.
OTHERS = {"music": ("♫", 3), "scissors": ("✂", 3)}
NOTE = "README.txt"
TEXT = """This folder was made by `likelyshot classify --demo`. You can delete it.

labelled/       a few pictures of each class, in a folder per class
pile/           pictures without labels
truth.csv       what they show, which classify does not read
"""


@dataclass(frozen=True)
class Demo:
    """The folder of the demonstration, and what is in it."""

    folder: Path
    truth: dict[str, str]  # what a picture of the pile shows, by file name

    @property
    def labelled(self) -> Path:
        """The folder of labelled pictures."""
        return self.folder / "labelled"

    @property
    def pile(self) -> Path:
        """The folder of pictures without labels."""
        return self.folder / "pile"

    def score(self, answers: Answers) -> str:
        """Say how many answers are right, and how many pictures of no class are rejected."""
        true_names = [self.truth.get(Path(name).name, "") for name in answers.names]
        known = [row for row, name in enumerate(true_names) if name in DRAWINGS]
        others = [row for row, name in enumerate(true_names) if name in OTHERS]
        predicted, reject = answers.predicted, np.asarray(answers.reject, dtype=bool)
        right = sum(predicted[row] == true_names[row] for row in known)
        return (
            f"{right} of the {len(known)} pictures of the {len(DRAWINGS)} classes got the right class. "
            f"{reject[known].sum()} of these {len(known)} were rejected, wrongly, and {reject[others].sum()} of the "
            f"{len(others)} pictures of other things, rightly."
        )


def draw_demo(folder: str | Path, seed: int = 0) -> Demo:
    """Draw labelled pictures, and a pile without labels, into a folder; pictures that are there stay as they are.

    Args:
        folder: A new or empty folder, or one of an earlier demonstration.
        seed: The same seed gives the same pictures.
    """
    folder = output_folder(folder, make=False)
    note = folder / NOTE
    is_demo = note.is_file() and note.read_bytes() == TEXT.encode()
    if folder.is_dir() and any(folder.iterdir()) and not is_demo:
        raise InputError(f"expected a new or empty folder, but {folder} has other files: name another (--demo-folder)")
    random = Random(seed)
    order = [name for name, (_, count) in (DRAWINGS | OTHERS).items() for _ in range(count)]
    random.shuffle(order)
    truth = {f"{number:03}.jpg": name for number, name in enumerate(order, 1)}
    demo = Demo(folder, truth)
    pictures = {demo.labelled / name / f"{number}.jpg": name for name in DRAWINGS for number in range(1, LABELLED + 1)}
    pictures |= {demo.pile / name: label for name, label in truth.items()}
    output_folder(folder)
    write_whole(folder / NOTE, TEXT.encode())
    for path, name in pictures.items():
        if not path.exists():
            chance = Random(f"{seed} {path.relative_to(folder).as_posix()}")
            write_whole(output_folder(path.parent) / path.name, draw((DRAWINGS | OTHERS)[name][0], chance))
    lines = io.StringIO()
    csv.writer(lines).writerows([("path", "label"), *((f"pile/{name}", label) for name, label in truth.items())])
    write_whole(folder / "truth.csv", lines.getvalue().encode())
    return demo


def draw(symbol: str, random: Random) -> bytes:
    """Draw one symbol as a JPEG: any colour, size, angle and place, on a ground of two colours with noise."""
    hue = random.random()
    light = random.random() < 0.6
    bright, dark = (random.uniform(0.75, 0.95), random.uniform(0.1, 0.4))
    ground = [_colour(hue + random.uniform(-0.1, 0.1), 0.35, bright if light else dark / 1.2) for _ in range(2)]
    ink = _colour(hue + random.uniform(0.3, 0.7), 0.8, dark if light else bright)
    angle = random.uniform(0, 2 * math.pi)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    along = ((x - 0.5) * math.cos(angle) + (y - 0.5) * math.sin(angle) + 0.71)[..., None] / 1.42
    noise = np.random.default_rng(random.getrandbits(32)).normal(0, random.uniform(4, 14), (SIDE, SIDE, 3))
    pixels = (1 - along) * ground[0] + along * ground[1]
    image = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
    mask = Image.new("L", (280, 280))
    ImageDraw.Draw(mask).text((140, 140), symbol, fill=255, font=_font(), anchor="mm")
    mask = mask.rotate(random.uniform(-25, 25), Image.Resampling.BICUBIC)
    mask = mask.crop(mask.getbbox())
    size = random.uniform(0.5, 0.85) * SIDE / max(mask.size)
    mask = mask.resize((max(1, round(mask.width * size)), max(1, round(mask.height * size))), Image.Resampling.LANCZOS)
    place = (random.randint(0, SIDE - mask.width), random.randint(0, SIDE - mask.height))
    image.paste(tuple(int(part) for part in ink), place, mask)
    if random.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 1.5)))
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=88)
    return packed.getvalue()


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    """Open DejaVu Sans, which comes with matplotlib."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), 160)


def _colour(hue: float, saturation: float, value: float) -> NDArray[np.float64]:
    return np.array(colorsys.hsv_to_rgb(hue % 1, saturation, value)) * 255

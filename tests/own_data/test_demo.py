"""The pictures of the demonstration, and the demonstration itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from PIL import Image

from likelyshot import classify
from likelyshot.errors import InputError
from likelyshot.own_data.demo import DRAWINGS, LABELLED, OTHERS, draw, draw_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return draw_demo(tmp_path_factory.mktemp("demo") / "new")


def test_every_class_has_labelled_pictures_and_the_pile_tells_nothing(demo):
    assert {folder.name: len(list(folder.iterdir())) for folder in demo.labelled.iterdir()} == dict.fromkeys(
        DRAWINGS, LABELLED
    )
    assert Counter(demo.truth.values()) == {name: count for name, (_, count) in (DRAWINGS | OTHERS).items()}
    assert sorted(path.name for path in demo.pile.iterdir()) == sorted(demo.truth)
    assert not any(name in file for name in DRAWINGS for file in demo.truth)
    with Image.open(demo.pile / "001.jpg") as image:
        assert (image.size, image.mode) == ((160, 160), "RGB")


def test_the_same_seed_draws_the_same(demo, tmp_path):
    again = draw_demo(tmp_path / "again")
    for path in [*demo.pile.iterdir(), *demo.labelled.rglob("*.jpg"), demo.folder / "truth.csv"]:
        assert path.read_bytes() == (again.folder / path.relative_to(demo.folder)).read_bytes()
    assert draw("☂", Random(0)) != draw("☂", Random(1))


def test_nothing_foreign_is_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    with pytest.raises(InputError, match="has other files: name another"):
        draw_demo(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]
    changed = draw_demo(tmp_path / "demo").labelled / "anchor" / "1.jpg"
    changed.write_bytes(b"my own anchor")
    draw_demo(tmp_path / "demo")
    assert changed.read_bytes() == b"my own anchor"


def test_the_default_encoder_tells_the_symbols_apart(demo):
    answers = classify(demo.labelled, demo.pile, cache=None).answers
    pairs = zip(answers.names, answers.predicted, strict=True)
    right = sum(demo.truth[Path(name).name] == found for name, found in pairs)
    assert right >= 66  # of 71 that can be right
    assert demo.score(answers).startswith(f"{right} of the 71 pictures of the 5 classes got the right class. ")

"""What a notebook shows of answers: small, with pictures, and names as they are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from likelyshot import classify
from likelyshot.data.items import Item
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.notebook import answers_html

NASTY = "<script>alert(1)</script>\udce9"


def make(n):
    first = np.linspace(0.9, 0.6, n)
    names = [f"{i}.png" for i in range(n)]
    return Answers(names, [NASTY, "dog"], np.stack([first, 1 - first], 1), np.arange(n) == 1, np.zeros(n))


def test_the_table_is_short_and_escaped():
    html = answers_html("<b>", make(30), [Item(f"{i}", text=NASTY * 99) for i in range(30)])
    assert html.count("<tr>") == 21
    assert "The first 20 of 30 are shown." in html
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert html.startswith("<p>&lt;b&gt;</p>")
    assert html.count("<td>rejected</td>") == 1
    assert html.count('<div style="overflow-x: auto"><table>') == 1  # a long name makes no page wider
    html.encode()
    assert "are shown" not in answers_html("", make(20))
    assert answers_html("", make(0)).count("<tr>") == 1


def test_what_is_nearly_certain_is_not_said_to_be_certain():
    answers = Answers(["a", "b"], ["x", "y"], np.array([[0.9997, 0.0003], [0.2, 0.8]]), np.zeros(2, bool), np.zeros(2))
    assert re.findall(r"<td>([^<]+\xa0%)</td>", answers_html("", answers)) == ["over 99\xa0%", "80\xa0%"]


def test_pictures_are_small_and_what_cannot_be_read_is_said(tmp_path):
    Image.new("RGB", (500, 250), "red").save(tmp_path / "0.png")
    items = [Item("0.png", path=tmp_path / "0.png"), Item("1.png", path=tmp_path / "1.png")]
    html = answers_html("", make(2), items)
    assert re.findall(r'width="(\d+)" height="(\d+)"', html) == [("64", "32")]
    assert "<td>missing file</td>" in html


def test_a_classification_says_little_until_it_is_asked(tmp_path):
    for name in ("dark/1", "dark/2", "light/1", "light/2"):
        (tmp_path / "labelled" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "black" if "dark" in name else "white").save(tmp_path / "labelled" / f"{name}.png")
    tone = callable_encoder(lambda images: [[1.0, np.asarray(image).mean() + 1] for image in images], "tone")
    found = classify(tmp_path / "labelled", tmp_path / "labelled", encoder=tone, cache=None)
    assert repr(found) == f"Classification(4 items, 2 classes, method {found.method})"
    assert "answers" not in vars(found)
    assert repr(found.answers) == "Answers(4 items, 2 classes, 0 rejected)"
    assert found._repr_html_().count("<img ") == 4
    assert found.answers._repr_html_().count("<img ") == 0
    frame = found.to_pandas(all_probabilities=True)
    assert frame["predicted"].tolist() == found.answers.predicted
    assert frame["probability of dark"].tolist() == pytest.approx(found.answers.probabilities[:, 0].tolist(), abs=1e-5)

"""The gallery shows the right items in the right order, stays small, and shows names as they are."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.own_data import gallery
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.gallery import gallery_html, write_gallery

NASTY = "</title></script><script>alert(1)</script><img src=x onerror=alert(1)> & \" ' \u202e"


class Reader(HTMLParser):
    """The page as a browser takes it: elements with their attributes, and the texts of each section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.section = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.section = dict(attrs)["id"] if tag == "section" else self.section

    def handle_data(self, data):
        self.texts.setdefault(self.section, []).append(data)


def texts_of(n: int) -> list[Item]:
    return [Item(f"row {i}", text=f"text {i}") for i in range(n)]


def make(probability: list[float], reject: list[bool] | None = None, novelty: list[float] | None = None) -> Answers:
    """Answers over two classes, the first of which has these probabilities."""
    first = np.array(probability)
    reject = reject or [False] * len(first)
    names = [f"row {i}" for i in range(len(first))]
    return Answers(names, ["x", "y"], np.stack([first, 1 - first], 1), np.array(reject), np.array(novelty or first))


def sections(html: str) -> dict[str, str]:
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', html, re.DOTALL))


def shown(html: str) -> dict[str, list[str]]:
    """The names of the cards in every section, in order."""
    return {name: re.findall(r'title="([^"]*)"', body) for name, body in sections(html).items() if name != "settings"}


def test_what_needs_a_look_comes_first_and_cards_are_sorted_by_certainty():
    answers = make(
        [0.6, 0.95, 0.2, 0.7, 0.09, 0.99, 0.01],
        [False, False, False, False, False, True, True],
        [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 3.0],
    )
    cards = shown(gallery_html(texts_of(7), answers))
    assert list(cards) == ["rejected", "unsure", "c0", "c1"]
    assert cards == {
        "rejected": ["row 6", "row 5"],
        "unsure": ["row 0", "row 3", "row 2"],
        "c0": ["row 1", "row 3", "row 0"],
        "c1": ["row 4", "row 2"],
    }


def test_probabilities_are_said_in_words():
    probabilities = np.array([[0.61, 0.29, 0.1], [0.999, 0.001, 0.0], [0.3, 0.2, 0.5], [0.9, 0.1, 0.0]])
    names = [f"row {i}" for i in range(4)]
    answers = Answers(names, ["ale", "tea", "gin"], probabilities, np.array([0, 0, 0, 1], bool), np.ones(4))
    html = gallery_html(texts_of(4), answers)
    told = {name: re.findall(r'<span class="sure">([^<]+)<', part) for name, part in sections(html).items()}
    assert {name: [text.replace("\xa0", " ") for text in texts] for name, texts in told.items()} == {
        "rejected": ["most like ale"],
        "unsure": ["50 % gin; next: ale 30 %", "61 % ale; next: tea 29 %"],
        "c0": ["over 99 % this class", "61 % this class; next: tea 29 %"],
        "c2": ["50 % this class; next: ale 30 %"],
    }


def test_how_strange_a_rejected_item_is_is_said_in_words():
    answers = make([0.9] * 200, [False] * 197 + [True] * 3, [*range(198), 198.0, 198.0])
    told = re.findall(r'<span class="sure">([^<]+)<', sections(gallery_html(texts_of(200), answers))["rejected"])
    assert [text.replace("\xa0", " ") for text in told] == [
        "stranger than 99 % of the pile; most like x",
        "stranger than 99 % of the pile; most like x",
        "stranger than 98 % of the pile; most like x",
    ]
    alone = gallery_html(texts_of(1), make([0.9], [True], [5.0]))
    assert re.findall(r'<span class="sure">([^<]+)<', alone) == ["most like x"]


def test_an_answer_under_below_90_percent_never_reads_as_90_percent():
    html = gallery_html(texts_of(5), make([0.2, 0.896, 0.8999, 0.9, 0.894])).replace("\xa0", " ")
    told = re.findall(r'<span class="sure">([\d.]+ %)', sections(html)["unsure"])
    assert told == ["80 %", "89 %", "89.6 %", "89.9 %"]
    assert re.findall(r'<span class="sure">([\d.]+ %)', sections(html)["c0"]) == ["90 %", "89.9 %", "89.6 %", "89 %"]


def test_long_names_break_after_underscores_and_stay_text():
    answers = Answers(["row 0"], ["Painted_Bunting<b>_"], np.ones((1, 1)), np.zeros(1, bool), np.zeros(1))
    html = gallery_html(texts_of(1), answers)
    assert html.count("<bdi>Painted_<wbr>Bunting&lt;b&gt;_<wbr></bdi>") == 2  # bar, heading


def test_labelled_examples_are_at_the_head_of_their_class():
    labelled = [Item(f"example {i}", "xy"[i % 2], text=f"like {i}") for i in range(40)]
    html = gallery_html(texts_of(3), make([0.95, 0.96, 0.01]), labelled=labelled)
    cards = shown(html)
    assert cards["c0"] == [f"example {i}" for i in range(0, 16, 2)] + ["row 1", "row 0"]
    assert cards["c1"] == [f"example {i}" for i in range(1, 16, 2)] + ["row 2"]


def test_more_of_a_class_are_shown_on_request():
    answers = make([0.95] * 70)
    assert len(shown(gallery_html(texts_of(70), answers))["c0"]) == 60
    assert len(shown(gallery_html(texts_of(70), answers, per_class=100))["c0"]) == 70
    hint = "To see more of each class, add --gallery-per-class 70 to the command."
    assert hint in gallery_html(texts_of(70), answers, command="likelyshot classify")
    assert hint not in gallery_html(texts_of(70), answers)  # made from Python
    assert hint not in gallery_html(texts_of(70), answers, command="likelyshot classify", per_class=70)
    with pytest.raises(InputError, match="1 item per class or more, but got 0"):
        gallery_html(texts_of(70), answers, per_class=0)


@pytest.mark.parametrize(
    ("per_class", "expected"), [(1, [9]), (2, [9, 0]), (3, [9, 8, 0]), (4, [9, 8, 1, 0]), (10, None)]
)
def test_of_many_only_the_ends_are_shown_and_that_is_said(monkeypatch, per_class, expected):
    monkeypatch.setattr(gallery, "PER_CLASS", per_class)
    answers = make([0.6 + i / 100 for i in range(10)])
    html = gallery_html(texts_of(10), answers)
    assert shown(html)["c0"] == [f"row {i}" for i in (expected or range(9, -1, -1))]
    assert ("All are shown" in html) == (expected is None)
    if expected:
        assert f"{per_class} are shown" in html
        assert "Shown: the " in html


def test_a_page_stays_bounded_however_many_classes(monkeypatch):
    monkeypatch.setattr(gallery, "MOST", 20)
    chance = np.random.default_rng(0)
    for classes, rejected in ((3, 0.0), (15, 0.3), (40, 0.3)):
        n = 400
        names = [f"row {i}" for i in range(n)]
        probabilities = chance.dirichlet([0.3] * classes, n)
        reject = chance.random(n) < rejected
        answers = Answers(names, [f"k{i}" for i in range(classes)], probabilities, reject, chance.random(n))
        html = gallery_html(texts_of(n), answers)
        cards = shown(html)
        cards.pop("unsure", None)
        assert 0 < sum(map(len, cards.values())) <= 20
        assert len(cards) == len(set(answers.best[~reject].tolist())) + bool(rejected)
        assert ("None is shown" in html) == (classes == 40)
        assert not rejected or cards["rejected"]


def test_bars_and_counts_are_those_of_the_answers():
    answers = make([0.9, 0.8, 0.7, 0.4, 0.5], [False, False, False, False, True])
    html = gallery_html(texts_of(5), answers)
    rows = re.findall(
        r'<tr><th scope="row">.*?<bdi>(\w)</bdi>.*?rect width="([\d.]+)".*?>([\d.]+)\xa0%<.*?>(\d+)</td></tr>',
        html,
        re.DOTALL,
    )
    assert rows == [("x", "100.00", "70.0", "3"), ("y", f"{100 * 0.3 / 0.7:.2f}", "30.0", "1")]
    assert "5 items in 2 classes; 1 is rejected" in html
    assert '<a href="#rejected">Rejected: 1</a>' in html
    assert "<small>1 item that looks like none of the classes</small>" in html


def test_a_class_that_nothing_was_taken_for_has_a_bar_but_no_section():
    html = gallery_html(texts_of(2), make([0.9, 0.8]))
    assert list(shown(html)) == ["c0"]
    assert "<bdi>y</bdi>" in html
    assert 'href="#c1"' not in html


@pytest.mark.parametrize("reject", [[True, True], [False, False]])
def test_everything_or_nothing_can_be_rejected(reject):
    html = gallery_html(texts_of(2), make([0.9, 0.2], reject))
    assert list(shown(html)) == (["rejected"] if reject[0] else ["unsure", "c0", "c1"])


def test_a_pile_of_nothing_makes_a_page():
    answers = Answers([], ["x"], np.empty((0, 1)), np.empty(0, bool), np.empty(0))
    assert "0 items in 1 class;" in gallery_html([], answers)


def test_thumbnails_are_small_upright_and_inside(tmp_path):
    chance = np.random.default_rng(0)
    items = []
    for i, size in enumerate([(1000, 500), (20, 900), (8, 8)]):
        Image.fromarray(chance.integers(0, 255, (*size[::-1], 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        items.append(Item(f"{i}.png", path=tmp_path / f"{i}.png"))
    told = []
    html = gallery_html(items, make([0.9, 0.8, 0.7]), progress=told.append)
    pictures = re.findall(r'<img src="data:image/jpeg;base64,([^"]+)" width="(\d+)" height="(\d+)" alt=""', html)
    sizes = [Image.open(io.BytesIO(base64.b64decode(data))).size for data, _, _ in pictures]
    assert sizes == [(320, 160), (7, 320), (8, 8)]
    assert [(int(width), int(height)) for _, width, height in pictures] == sizes
    assert html.count('loading="lazy" decoding="async"') == 3
    assert sum(told) == 3


def test_what_cannot_be_read_has_a_placeholder(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG nothing")
    (tmp_path / "b.png").write_bytes(b"")
    items = [Item("a", path=tmp_path / "a.png"), Item("b", path=tmp_path / "b.png"), Item("c", path=tmp_path / "c.png")]
    html = gallery_html([*items, Item("d")], make([0.9, 0.8, 0.7, 0.6]))
    kinds = re.findall(r'<div class="none">([^<]+)</div>', html)
    assert kinds == ["damaged image", "empty file", "missing file", "no picture, only an embedding"]


def test_names_are_text_everywhere(tmp_path):
    item = Item(NASTY, path=tmp_path / "none.png")
    items = [item, Item(NASTY, text=NASTY)]
    answers = Answers(
        [NASTY] * 2, [NASTY, "caf\udce9"], np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([False, True]), np.ones(2)
    )
    path = write_gallery(tmp_path / "g.html", items, answers, command=NASTY, notes=[NASTY])
    read = Reader(path.read_text("utf-8"))
    tags = [tag for tag, _ in read.tags]
    assert tags.count("script") == tags.count("style") == tags.count("title") == 1
    assert "img" not in tags
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on") or name == "style"]
    assert (
        sum(text.count(NASTY) for texts in read.texts.values() for text in texts) == 6
    )  # note, bar, menu, heading, text, command
    assert [attributes["title"] for _, attributes in read.tags if "title" in attributes] == [NASTY] * 2
    assert "caf\\udce9" in path.read_text("utf-8")


def test_long_texts_are_cut():
    html = gallery_html([Item("row 0", text="é" * 1000)], make([0.9]))
    assert re.search(r'<p class="text" dir="auto">é{400}…</p>', html)


def test_the_policy_admits_one_style_and_one_script_by_hash():
    html = gallery_html(texts_of(1), make([0.9]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        code = html[html.index(f"<{tag}>") + len(tag) + 2 : html.index(f"</{tag}>")]
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert rules[rule] == [f"'sha256-{digest}'"]
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["img-src"] == ["data:"]
    assert not re.search(r"https?://|@import|url\(|innerHTML|eval", html)


def test_the_same_answers_make_the_same_page(tmp_path):
    Image.new("RGB", (300, 200), "red").save(tmp_path / "a.jpg")
    items = [Item("a", path=tmp_path / "a.jpg")] * 9
    answers = make([0.9] * 9)
    assert gallery_html(items, answers) == gallery_html(items, answers)


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(InputError, match="one item for every answer, got 2 items and 1 answer"):
        gallery_html(texts_of(2), make([0.9]))
    with pytest.raises(InputError, match="is a folder"):
        write_gallery(Path(tmp_path), texts_of(1), make([0.9]))

"""The gallery in a browser: drawn under its own policy, turned by keyboard, and no wider than a phone."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from PIL import Image

from likelyshot.data.items import Item
from likelyshot.own_data.answers import Answers
from likelyshot.own_data.gallery import write_gallery
from likelyshot.own_data.piles import read_labelled

NASTY = "<img src=x onerror=alert(1)></script><script>alert(1)</script>" + "x" * 200


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    chance = np.random.default_rng(0)
    items = []
    for i in range(12):
        Image.fromarray(chance.integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        items.append(Item(f"pile/{i}.png", path=folder / f"{i}.png"))
    items += [Item(NASTY, path=folder / "none.png"), Item("row 14", text=NASTY)]
    first = np.linspace(0.95, 0.55, 14)
    names = [item.name for item in items]
    probabilities = np.stack([first, (1 - first) * 0.75, (1 - first) * 0.25], 1)
    reject = np.arange(14) % 6 == 5
    answers = Answers(names, [NASTY, "cat", "dog"], probabilities, reject, np.arange(14.0))
    return write_gallery(folder / "g.html", items, answers, command=NASTY, notes=[NASTY])


def contrast(tab, pseudo):
    """The contrast, by WCAG, of the text of the first field with its ground, of which both are opaque."""
    style = f"getComputedStyle(document.querySelector('.right'), {pseudo!r})"
    texts = [
        tab.evaluate(f"{style}.color"),
        tab.evaluate("getComputedStyle(document.querySelector('.right')).backgroundColor"),
    ]
    shades = []
    for text in texts:
        parts = [int(part) / 255 for part in re.findall(r"\d+", text)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        shades.append(np.dot(linear, [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(shades) / min(shades)


@pytest.mark.parametrize("dark", [False, True])
def test_what_an_empty_field_says_can_be_read(open_page, page, dark):
    assert contrast(open_page(page, dark=dark), "::placeholder") >= 4.5


@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_drawn_and_nothing_complains(open_page, page, width, dark):
    tab = open_page(page, width, dark)
    tab.evaluate(
        "for (const image of document.images) image.loading = 'eager'"
    )  # lazy ones wait until they are scrolled to
    decoded = "Promise.all([...document.images].map(image => image.decode())).then(() => document.images.length)"
    assert tab.evaluate(decoded) == 12
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light is not dark
    bars = tab.evaluate("[...document.querySelectorAll('rect')].map(bar => bar.getBoundingClientRect().width)")
    shares = [float(text.rstrip(" %")) for text in tab.locator("td.number:nth-child(3)").all_text_contents()]
    assert bars[0] > 20
    np.testing.assert_allclose(np.array(bars) / bars[0], np.array(shares) / shares[0], atol=0.02)


def test_the_order_turns_by_keyboard_and_the_rejected_stay(open_page, page):
    tab = open_page(page)

    def names(section):
        return tab.evaluate(f"[...document.querySelectorAll('{section} .name')].map(name => name.title)")

    def pressed():
        return tab.evaluate("[...document.querySelectorAll('.order button')].map(button => button.ariaPressed)")

    certain, rejected = names("#c0"), names("#rejected")
    assert (len(certain), len(rejected), pressed()) == (12, 2, ["true", "false"])
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.value === 'least'"):
            break
    tab.keyboard.press("Space")
    assert (names("#c0"), pressed()) == (certain[::-1], ["false", "true"])
    tab.keyboard.press("Space")
    assert names("#c0") == certain[::-1]
    tab.get_by_role("button", name="Most certain first").click()
    assert (names("#c0"), pressed()) == (certain, ["true", "false"])
    assert names("#rejected") == rejected


@pytest.mark.parametrize("width", [390, 1280])
def test_a_card_enlarges_and_gives_its_path(open_page, page, width):
    tab = open_page(page, width)
    card = tab.locator("#c0 .card").first
    card.locator(".open").click()
    large = tab.locator("#large")
    assert large.is_visible()
    assert large.locator(".path").text_content() == card.locator(".name").get_attribute("title")
    assert large.locator("img").get_attribute("src") == card.locator("img").get_attribute("src")
    assert large.locator(".sure").text_content() == card.locator(".sure").text_content()
    assert large.locator("h2").text_content() == tab.locator("#c0 h2 bdi").text_content()  # which "this class" means
    assert large.locator("img").get_attribute("alt") == card.locator(".name").get_attribute("title")
    tab.get_by_role("button", name="Copy the path").click()
    large.locator("[role=status]:not(:empty)").wait_for()
    tab.keyboard.press("Escape")
    assert not large.is_visible()


def test_a_long_text_enlarges(open_page, tmp_path):
    text = "long\n" + "<b>text</b> " * 60 + "end"
    items = [Item("row 1", text=text), Item("row 2", text="short")]
    answers = Answers(["row 1", "row 2"], ["x"], np.ones((2, 1)), np.zeros(2, bool), np.zeros(2))
    labelled = [Item("row 9", "x", text=text)]
    tab = open_page(write_gallery(tmp_path / "g.html", items, answers, labelled=labelled, correctable=False), 390)
    assert tab.get_by_role("button", name="Whole text of row 1").count() == 1
    assert tab.get_by_role("button", name="Whole text of row 2").count() == 0
    large = tab.locator("#large")
    for row in (1, 9):
        tab.get_by_role("button", name=f"Whole text of row {row}").click()
        assert large.locator(".text").text_content() == text
        assert large.locator(".path").text_content() == f"row {row}"
        assert large.locator("#copy").text_content() == "Copy the text"
        tab.keyboard.press("Escape")
        assert not large.is_visible()


def test_tab_backwards_reaches_nothing_that_the_menu_hides(open_page, page):
    tab = open_page(page, 390)
    tab.locator(".card .right").last.focus()
    hidden = """() => {
        const [at, menu] = [document.activeElement, document.querySelector(".menu")];
        return !menu.contains(at) && at.getBoundingClientRect().top < menu.getBoundingClientRect().bottom;
    }"""
    for _ in range(20):
        tab.keyboard.press("Shift+Tab")
        assert not tab.evaluate(hidden)


def test_on_paper_there_are_pictures_in_dark_ink_and_nothing_to_press(open_page, page):
    tab = open_page(page, dark=True)
    tab.emulate_media(media="print", color_scheme="dark")
    ink = "getComputedStyle(document.body).color"
    assert tab.evaluate(ink) == "rgb(28, 31, 35)"
    for what in (".menu", "#corrections", "#c0 .right"):
        assert tab.locator(what).first.is_hidden(), what
    assert tab.locator("#c0 img").first.is_visible()


def test_long_names_of_classes_do_not_stretch_the_cards(open_page, tmp_path):
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    name = "a long name " * 40
    answers = Answers(["a"], ["x", name], np.array([[0.6, 0.4]]), np.zeros(1, bool), np.zeros(1))
    tab = open_page(write_gallery(tmp_path / "g.html", [Item("a", path=tmp_path / "a.png")], answers), 390)
    assert tab.locator("#c0 .card").bounding_box()["height"] < 400
    tab.locator("#c0 .open").click()
    assert name in tab.locator("#large .sure").text_content()
    assert tab.locator("#large .sure").bounding_box()["height"] > 250  # whole


@pytest.mark.parametrize("width", [390, 1280])
def test_the_menu_of_classes_stays(open_page, page, width):
    tab = open_page(page, width)
    tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    top = tab.evaluate("document.querySelector('.menu').getBoundingClientRect().top")
    bottom = tab.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
    assert top == 0 or bottom < 200
    links = tab.locator(".menu nav a").evaluate_all("links => links.map(link => link.hash)")
    assert links == ["#rejected", "#c0"]


def test_corrections_become_a_table_of_labelled_examples(open_page, page, tmp_path):
    tab = open_page(page)
    fields = tab.locator("#c0 .card .right")
    assert fields.count() > 4
    fields.nth(0).fill("owl, barn")
    fields.nth(1).fill("dog")
    fields.nth(2).fill("cat")
    fields.nth(2).fill("")
    fields.nth(2).blur()
    button = tab.get_by_role("button", name="Save corrections (2)")
    with tab.expect_download() as download:
        button.click()
    download.value.save_as(tmp_path / "corrections.csv")
    names = [tab.locator("#c0 .card:has(.right) .name").nth(place).get_attribute("title") for place in (0, 1)]
    with (tmp_path / "corrections.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    predicted = tab.locator("#c0 h2 bdi").inner_text()
    assert rows[0] == ["path", "label", "predicted"]
    assert rows[1:] == [[names[0], "owl, barn", predicted], [names[1], "dog", predicted]]
    told = "likelyshot classify --support LABELLED corrections.csv --query PILE"
    assert tab.locator("#told-command").inner_text().strip() == told
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    assert [item.label for item in read_labelled(tmp_path / "corrections.csv").items] == ["owl, barn", "dog"]


@pytest.mark.parametrize("width", [390, 1280])
def test_corrections_are_saved_from_the_menu_and_not_lost(open_page, page, complaints, width):
    tab = open_page(page, width)
    save = tab.locator("#save-from-menu")
    assert save.is_hidden()
    field = tab.locator("#c0 .card .right").nth(3)
    field.fill("dog")
    field.blur()
    assert save.text_content() == "Save (1)"
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    leaves = "window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"
    assert tab.evaluate(leaves) is False
    with tab.expect_download() as download:
        save.click()
    assert download.value.suggested_filename == "corrections.csv"
    assert tab.locator("#told-command").is_visible()
    assert tab.evaluate(leaves) is True


def test_corrected_texts_become_a_table_of_labelled_examples(open_page, tmp_path):
    texts = ["=a parcel, late", 'two\nlines "so"', "long " * 100, "x" * 30_000, "gone"]
    items = [Item(f"row {i + 1}", text=text) for i, text in enumerate(texts)]
    probabilities = np.array([[0.95, 0.05], [0.94, 0.06], [0.7, 0.3], [0.92, 0.08], [0.05, 0.95]])
    answers = Answers([item.name for item in items], ["late", "lost"], probabilities, np.zeros(5, bool), np.zeros(5))
    command = "likelyshot classify -s mine.csv -q pile.csv --text-column words --label-column kind --gallery g.html"
    tab = open_page(write_gallery(tmp_path / "g.html", items, answers, command=command), 390)
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    fields = tab.locator("#c0 .card .right")
    assert fields.count() == 3  # one is too long for the page
    for place, label in enumerate(("lost", "found, again", "lost")):
        fields.nth(place).fill(label)
    fields.nth(2).blur()
    assert tab.locator("#unsure .right").input_value() == "lost"  # the same text
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save corrections (3)").click()
    download.value.save_as(tmp_path / "corrections.csv")
    told = tab.locator("#told-command").inner_text().strip()
    assert told.startswith("likelyshot classify -s mine.csv corrections.csv -q pile.csv")
    (tmp_path / "mine.csv").write_text("words,kind\nwhere is it,late\nlost for good,lost\n")
    both = [tmp_path / "mine.csv", tmp_path / "corrections.csv"]
    read = read_labelled(both, text_column="words", label_column="kind")
    assert [(item.text, item.label) for item in read.items[2:]] == [
        (texts[0], "lost"),
        (texts[1], "found, again"),
        (texts[2], "lost"),
    ]


def test_a_page_about_vectors_has_nothing_to_correct(open_page, tmp_path):
    items = [Item("row 1", text="a"), Item("row 2", text="b")]
    answers = Answers(
        ["row 1", "row 2"], ["x", "y"], np.array([[0.9, 0.1], [0.2, 0.8]]), np.zeros(2, bool), np.zeros(2)
    )
    tab = open_page(write_gallery(tmp_path / "g.html", items, answers, correctable=False))
    assert tab.locator(".right").count() == 0
    assert tab.locator("#save-corrections").is_hidden()
    assert tab.locator("#correct").is_visible()


def test_the_command_of_the_labelling_page_is_told(open_page, page):
    tab = open_page(page)
    assert tab.locator("#told-command").is_hidden()
    tab.get_by_role("button", name="Correct these in the labelling page").click()
    assert tab.locator("#told-command").inner_text().strip() == "likelyshot label PILE --support LABELLED"

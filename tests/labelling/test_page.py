"""The labelling page in a browser: labelled by keyboard and mouse, reloaded, opened twice, and on a phone."""

from __future__ import annotations

import os
import re

import numpy as np
from playwright.sync_api import expect

from painted import COLOURS, LETTERS, paint

NASTY = "<img src=x onerror=alert(1)>.png"


def wait_screen(tab, least):
    expect(tab.locator("html")).to_have_attribute("data-screen", re.compile(f"^[{least}-9]$"))


def labels_of(client):
    things, values = client.server.desk.things, client.server.desk.labels.values
    return {things.numbers[key]: value.name for key, value in values.items() if value.kind == "label"}


def current(tab):
    return int(tab.evaluate("document.querySelector('.card.current').dataset.number"))


def colour(tab, number):
    return tab.locator(f".card[data-number='{number}']").get_attribute("aria-label").split("/")[-1].split()[0]


def digit(tab):
    """Press the digit of the colour of the current item, and give the item."""
    number = current(tab)
    tab.keyboard.press(str(1 + list(COLOURS).index(colour(tab, number))))
    return number


def test_label_by_keyboard_undo_redo_and_a_round(fresh, open_tab):
    client = fresh(COLOURS)
    tab = open_tab(client.server.address)
    assert tab.locator(".card").count() == 24
    done = {number: colour(tab, number) for number in [digit(tab) for _ in range(6)]}
    expect(tab.locator("#counts")).to_contain_text("6 of 30 labelled")
    assert labels_of(client) == done
    last = list(done)[-1]
    tab.keyboard.press("u")
    expect(tab.locator("#counts")).to_contain_text("5 of 30 labelled")
    assert last not in labels_of(client)
    for _ in range(3):
        tab.keyboard.press("u")
    expect(tab.locator("#counts")).to_contain_text("2 of 30 labelled")
    for _ in range(4):
        tab.keyboard.press("r")
    expect(tab.locator("#counts")).to_contain_text("6 of 30 labelled")
    assert labels_of(client) == done
    expect(tab.locator("#expected")).to_contain_text("Expected accuracy on the whole pile now:")
    tab.keyboard.press("g")
    wait_screen(tab, 2)
    expect(tab.locator("h2", has_text="Are these all").first).to_be_visible()
    group = tab.locator("section", has=tab.locator("h2", has_text="Are these all")).first
    first = int(group.locator(".card").first.get_attribute("data-number"))
    name = group.locator("h2").inner_text().split("Are these all ")[1].split("?")[0]
    group.locator(".card").first.click()  # struck off
    expect(group.locator(".card").first).to_have_attribute("aria-selected", "false")
    rest = [int(card.get_attribute("data-number")) for card in group.locator(".card").all()][1:]
    tab.keyboard.press("Enter")
    expect(group.locator(".card").nth(1)).to_have_class("card labelled")
    expect(tab.locator("#undo")).to_be_enabled()
    expect(tab.locator("#counts")).to_contain_text(f"{6 + len(rest)} of 30 labelled")
    found = labels_of(client)
    assert all(found[number] == name for number in rest)
    assert first not in found
    assert client.server.desk.labels.values[client.server.desk.things.keys[first]].kind == "not"


def test_new_classes_none_skip_and_several_at_once(fresh, open_tab):
    client = fresh()
    tab = open_tab(client.server.address)
    expect(tab.locator("#classes")).to_contain_text(
        "No class yet: select an item, type the name of its class into the field"
    )
    one = current(tab)
    tab.keyboard.press("c")
    tab.keyboard.type("kingfisher")
    tab.keyboard.press("Enter")
    expect(tab.locator("#classes button")).to_have_text("1 kingfisher 1")
    expect(tab.get_by_role("button", name="kingfisher, 1 label", exact=True)).to_be_visible()  # to a screen reader
    expect(tab.get_by_role("listbox", name="A varied selection of the pile")).to_be_visible()
    expect(tab.get_by_role("option", name="labelled kingfisher")).to_be_visible()
    two = current(tab)
    assert two != one
    tab.locator(".card.current").focus()
    tab.keyboard.press("n")
    expect(tab.locator("#counts")).to_contain_text("1 of no class")
    tab.keyboard.press("s")
    expect(tab.locator("#counts")).to_contain_text("1 skipped")
    cards = tab.locator(".card:not(.labelled)")
    chosen = [int(cards.nth(place).get_attribute("data-number")) for place in (5, 6, 8)]
    for number in chosen:
        tab.locator(f".card[data-number='{number}']").click()
    tab.locator("#classes button").first.click()
    expect(tab.locator("#counts")).to_contain_text("4 of 30 labelled")
    assert set(labels_of(client)) == {one, *chosen}
    tab.keyboard.press("u")  # one click, one undo
    expect(tab.locator("#counts")).to_contain_text("1 of 30 labelled")
    tab.keyboard.press("?")
    expect(tab.locator("#help")).to_be_visible()
    tab.keyboard.press("u")
    tab.keyboard.press("Escape")
    expect(tab.locator("#help")).to_be_hidden()
    expect(tab.locator("#counts")).to_contain_text("1 of 30 labelled")


def test_reloaded_and_in_two_tabs_the_labels_are_the_same(fresh, open_tab):
    client = fresh(COLOURS)
    one = open_tab(client.server.address)
    two = open_tab(client.server.address)
    digit(one)
    digit(one)
    expect(two.locator("#counts")).to_contain_text("2 of 30 labelled")
    digit(two)
    expect(one.locator("#counts")).to_contain_text("3 of 30 labelled")
    one.keyboard.press("u")  # takes back the click of the other tab
    expect(two.locator("#counts")).to_contain_text("2 of 30 labelled")
    one.reload()
    wait_screen(one, 1)
    expect(one.locator("#counts")).to_contain_text("2 of 30 labelled")
    assert len(labels_of(client)) == 2


def test_classes_are_renamed_and_merged_by_keyboard_and_mouse_and_undone(fresh, open_tab):
    client = fresh(COLOURS)
    tab = open_tab(client.server.address)
    done = {number: colour(tab, number) for number in [digit(tab) for _ in range(6)]}
    expect(tab.locator("#counts")).to_contain_text("6 of 30 labelled")
    tab.keyboard.press("m")
    expect(tab.locator("#renaming")).to_be_visible()
    tab.locator("#old-name").select_option("red")
    tab.keyboard.press("Tab")
    tab.keyboard.type("crimson")
    expect(tab.locator("#renaming-effect")).to_contain_text("red is called crimson from now on")
    tab.keyboard.press("Enter")
    expect(tab.locator("#renaming")).to_be_hidden()
    expect(tab.locator("#classes")).to_contain_text("3 crimson")
    expect(tab.locator("#classes")).not_to_contain_text("red")
    assert labels_of(client) == {number: name.replace("red", "crimson") for number, name in done.items()}
    tab.get_by_role("button", name="Rename or merge").click()
    tab.locator("#old-name").select_option("crimson")
    tab.locator("#new-name").fill("blue")
    expect(tab.locator("#renaming-effect")).to_contain_text("become one class, blue")
    tab.get_by_role("button", name="Merge", exact=True).click()
    expect(tab.locator("#classes button")).to_have_count(2)
    merged = {number: {"red": "blue"}.get(name, name) for number, name in done.items()}
    assert labels_of(client) == merged
    assert {row.split(",")[1] for row in client.server.desk.labels.output.read_text().splitlines()[1:]} <= {
        "blue",
        "green",
    }
    tab.reload()
    wait_screen(tab, 1)
    expect(tab.locator("#classes button")).to_have_count(2)
    tab.keyboard.press("u")
    expect(tab.locator("#classes button")).to_have_count(3)
    tab.keyboard.press("u")
    expect(tab.locator("#classes")).to_contain_text("3 red")
    assert labels_of(client) == done
    tab.keyboard.press("r")
    expect(tab.locator("#classes")).to_contain_text("3 crimson")


def test_on_a_phone_nothing_is_wider_than_the_screen_in_light_and_dark(fresh, open_tab):
    client = fresh([*COLOURS, "a class with a name that goes on and on" * 3])
    tab = open_tab(client.server.address, width=375)
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    tab.locator(".card").nth(2).click()  # a tap that a busy machine makes slow would be a long press
    tab.locator("#classes button").first.click()
    expect(tab.locator("#counts")).to_contain_text("1 of 30 labelled")
    tab.get_by_role("button", name="Rename or merge").click()
    expect(tab.locator("#do-rename")).to_be_in_viewport()
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")):
        tab.emulate_media(color_scheme=scheme)
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def test_on_a_phone_every_answer_is_in_reach_at_the_last_item(fresh, open_tab):
    client = fresh([f"class number {number}" for number in range(12)])
    tab = open_tab(client.server.address, width=390)
    tab.locator(".card").last.click()
    for name in ("None of these", "Skip", "No label"):
        assert tab.evaluate(
            """name => {
                const button = [...document.querySelectorAll("button")].find(found => found.textContent === name);
                const box = button.getBoundingClientRect();
                return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === button;
            }""",
            name,
        )
    tab.get_by_role("button", name="None of these").click()
    expect(tab.locator("#counts")).to_contain_text("1 of no class")
    assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    expect(tab.get_by_role("heading", level=1)).to_have_text("Label a pile")  # to a screen reader


def test_long_names_break_after_underscores_and_empty_fields_can_be_read(fresh, open_tab):
    client = fresh(["Yellow_headed_Blackbird"])
    tab = open_tab(client.server.address)
    tab.keyboard.press("1")
    for place in ("#classes button bdi", ".card.labelled .says bdi"):
        expect(tab.locator(place)).to_have_text("Yellow_headed_Blackbird")
        expect(tab.locator(place).locator("wbr")).to_have_count(2)
    ink = "getComputedStyle(document.querySelector('#class-name'), '::placeholder').color"
    for scheme, colour in (("light", "rgb(85, 91, 99)"), ("dark", "rgb(166, 173, 182)")):  # 6.2 and 6.9 to 1
        tab.emulate_media(color_scheme=scheme)
        assert tab.evaluate(ink) == colour


def test_hostile_names_are_shown_as_they_are_and_unreadable_files_say_why(serve, tmp_path, open_tab):
    for name in (NASTY, "gone.png", "broken.png"):
        paint(tmp_path / "pile" / name, "red", 1)
    client = serve(tmp_path / "pile", classes=["</script><script>alert(1)</script>"])
    (tmp_path / "pile" / "gone.png").unlink()
    (tmp_path / "pile" / "broken.png").write_bytes(b"\x89PNG nonsense")
    tab = open_tab(client.server.address)
    expect(tab.locator(".name", has_text=NASTY)).to_be_visible()
    for name, why in (("gone", "missing file"), ("broken", "damaged image")):
        expect(tab.locator(".card", has_text=name).locator(".none")).to_have_text(why)
    tab.locator(".card", has_text="gone").click()
    tab.keyboard.press("1")
    expect(tab.locator("#counts")).to_contain_text("1 of 3 labelled")
    tab.keyboard.press("v")
    expect(tab.locator("#large")).to_be_visible()
    assert tab.locator("script").count() == 1


def test_texts(serve, tmp_path, open_tab):
    rows = [f"{number},{word} & <b>{word}</b> {number}" for number in range(30) for word in ("apple", "zoo")]
    (tmp_path / "texts.csv").write_text("id,text\n" + "\n".join(rows) + "\n")
    client = serve(tmp_path / "texts.csv", encoder=LETTERS, classes=["fruit", "animals"])
    tab = open_tab(client.server.address)
    expect(tab.locator(".card .text").first).to_contain_text("<b>")
    tab.keyboard.press("1")
    expect(tab.locator("#counts")).to_contain_text("1 of 60 labelled")
    assert (tmp_path / "labels.csv").read_text().splitlines()[0] == "name,text,label"


def test_a_click_that_cannot_be_saved_is_taken_back_on_the_page(fresh, open_tab, monkeypatch):
    client = fresh(["x"])
    tab = open_tab(client.server.address)

    def full(file):
        raise OSError(28, "No space left on device")

    real = os.fsync
    monkeypatch.setattr("likelyshot.labelling.journal.os.fsync", full)
    number = current(tab)
    tab.keyboard.press("1")
    expect(tab.locator("#banner")).to_contain_text("No space left on device")
    expect(tab.locator(f".card[data-number='{number}']")).not_to_have_class("labelled")
    monkeypatch.setattr("likelyshot.labelling.journal.os.fsync", real)
    tab.locator(f".card[data-number='{number}']").click()
    tab.keyboard.press("1")
    expect(tab.locator("#counts")).to_contain_text("1 of 30 labelled")
    expect(tab.locator("#banner")).to_be_hidden()


def test_a_hundred_thousand_items_scroll_with_few_in_the_page(serve, tmp_path, open_tab):
    chance = np.random.default_rng(0)
    np.save(tmp_path / "pile.npy", chance.random((100_000, 4), dtype=np.float32) + 0.1)
    client = serve(tmp_path / "pile.npy", classes=["x", "y"])
    tab = open_tab(client.server.address)
    assert tab.locator(".card").count() == 24
    tab.get_by_role("button", name="All items").click()
    expect(tab.locator("#found")).to_have_text("100,000 items")
    slowest = tab.evaluate(
        """async () => {
            const height = document.documentElement.scrollHeight;
            let slowest = 0, before = performance.now(), most = 0;
            for (let step = 0; step < 60; step++) {
                scrollTo(0, height * step / 60);
                await new Promise(done => requestAnimationFrame(done));
                const now = performance.now();
                slowest = Math.max(slowest, now - before);
                before = now;
                most = Math.max(most, document.querySelectorAll('#list .card').length);
            }
            return [slowest, most];
        }"""
    )
    assert slowest[1] < 300
    assert slowest[0] < 5000  # milliseconds of a frame: with all cards in the page, it would be minutes
    tab.evaluate("scrollTo(0, 0)")
    tab.locator("#list .card", has_text="row 1").first.focus()
    tab.keyboard.press("End")
    expect(tab.locator("#list .card.current", has_text="row 100000")).to_be_visible()
    tab.locator("#list .card", has_text="row 99999").click()
    tab.keyboard.press("2")
    expect(tab.locator("#counts")).to_contain_text("1 of 100,000 labelled")
    assert labels_of(client) == {99_998: "y"}
    tab.locator("#search").fill("row 4242")
    expect(tab.locator("#found")).to_have_text("11 items")


def test_a_pile_of_one_item_and_one_class_only(serve, tmp_path, open_tab):
    paint(tmp_path / "pile" / "only.png", "red", 1)
    client = serve(tmp_path / "pile", classes=["red"])
    tab = open_tab(client.server.address)
    expect(tab.locator("#expected")).to_contain_text("Label items of two classes")
    tab.keyboard.press("1")
    expect(tab.locator("#screen")).to_contain_text("Nothing is left to label")
    expect(tab.locator("#expected")).to_contain_text("one more class")
    assert labels_of(client) == {0: "red"}


def test_exports_and_accepted_predictions_from_the_page(fresh, open_tab):
    client = fresh(COLOURS)
    tab = open_tab(client.server.address)
    for _ in range(9):
        digit(tab)
    expect(tab.locator("#counts")).to_contain_text("9 of 30 labelled")
    tab.get_by_role("button", name="Export").click()
    tab.get_by_role("button", name="Hugging Face").click()
    expect(tab.locator("#done")).to_contain_text("metadata.csv has 9 rows")
    tab.locator("#above").fill("60")
    tab.get_by_role("button", name="Write predictions").click()
    expect(tab.locator("#done")).to_contain_text("apart from your labels")
    folder = client.server.desk.folder
    assert len((folder / "labels.csv").read_text().splitlines()) == 10
    assert (folder / "labels.predicted.csv").exists()

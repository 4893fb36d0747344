"""What `explore` found, as a page: the choosers work, by keyboard too, and class names stay text."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from likelyshot import Features
from likelyshot.evaluation.explore import explore, explore_map
from likelyshot.report.explore_charts import feature_chart, rates_chart
from likelyshot.report.explore_page import explore_page, explore_summary, write_explore_page
from likelyshot.report.html import ImageMap, Page, Section, render_page, write_page

PLOT = "document.querySelector('#histograms .plot')"
FEATURE = "document.querySelector('#histograms-feature')"
BOX = "document.querySelectorAll('#histograms input[type=checkbox]')"


@pytest.fixture(scope="session")
def mapped(tmp_path_factory, exploration):
    """An exploration whose map has two pictures, one that cannot be read, and hostile names."""
    folder = tmp_path_factory.mktemp("pictures")
    count = len(exploration["map"]["names"])
    pictures: list[Path | None] = [None] * count
    for place, colour in ((0, "red"), (1, "blue")):
        pictures[place] = folder / f"{colour}.png"
        Image.new("RGB", (300, 200), colour).save(folder / f"{colour}.png")
    pictures[2] = folder / "broken.png"
    (folder / "broken.png").write_bytes(b"no image")
    names = ["<img src=x onerror=alert(1)>", *(f"photos/{i}.png" for i in range(1, count))]
    data = {**exploration, "map": {**exploration["map"], "names": names}}
    return data, pictures


@pytest.fixture(scope="session")
def file(mapped, tmp_path_factory):
    data, pictures = mapped
    path = tmp_path_factory.mktemp("page") / "explore.html"
    return write_explore_page(path, data, command="likelyshot explore F", pictures=pictures)


@pytest.fixture
def tab(open_once, file):
    """The page as it is when it has been opened: every test shares its window."""
    window, complaints = open_once(file)
    first = window.evaluate(f"window.first ??= [Number({FEATURE}.value), [...{BOX}].map(box => box.checked)]")
    window.emulate_media(color_scheme="light")
    window.locator("#histograms-filter").fill("")
    window.evaluate(f"[...{BOX}].filter(box => box.checked).forEach(box => box.click())")
    window.evaluate(f"[...{BOX}].forEach((box, i) => {json.dumps(first[1])}[i] && box.click())")
    set_feature(window, first[0])
    yield window
    assert complaints == []


def set_feature(tab, value):
    tab.locator("#histograms-feature").fill(str(value))
    tab.locator("#histograms-feature").dispatch_event("change")
    return int(tab.locator("#histograms-feature").input_value())


def chosen(tab):
    return tab.evaluate(f"[...{BOX}].filter(box => box.checked).map(box => Number(box.value))")


def test_the_summary_says_what_was_found(exploration):
    families = {
        **exploration["families"],
        "best_by_likelihood": [0.1, 0.05, 0.5, 0.2, 0.05, 0.1],
        "behind": {"median": 0.08, "median_zero_inflated": 0.02},
    }
    changed = {
        "zeros": {"share": 0.213},
        "families": families,
        "between": {**exploration["between"], "p_below_0.01": 0.875},
    }
    text = " ".join(explore_summary({**exploration, **changed}))
    for fact in ("1,200 images of 20 classes", "21.3 %", "gamma", "50.0 %", "0.08 nats", "87.5 %", "73 %"):
        assert fact in text


def test_exponential_winners_are_said_so(exploration):
    families = {**exploration["families"], "best_by_likelihood": [0.6, 0.1, 0.1, 0.1, 0.05, 0.05]}
    assert "the exponential fits best in 60.0 %" in " ".join(explore_summary({**exploration, "families": families}))


def test_a_real_exploration_makes_a_page(features, monkeypatch):
    monkeypatch.setattr("likelyshot.evaluation.explore.MOST_ON_MAP", 60)
    data = explore(features, tasks=20)
    page = explore_page(data, command="likelyshot explore F.npz")
    assert [section.title for section in page.sections[:2]] == ["Map of the images", "One feature, class by class"]
    assert page.settings["tasks"] == "20"
    assert page.settings["features"] == str(features.vectors.shape[1])
    assert len(render_page(page)) < 3_000_000
    assert feature_chart(data).panels


def test_features_of_zeros_are_not_shown_first(exploration):
    rates = np.frombuffer(base64.b64decode(exploration["rates"]), "<f4").reshape(20, 12).copy()
    rates[:, :9] = 0
    half_dead = {**exploration, "rates": base64.b64encode(rates.tobytes()).decode()}
    axes = {panel.x for panel in feature_chart(half_dead).panels}
    assert axes == {"value of feature 27", "value of feature 30", "value of feature 33"}


@pytest.fixture(params=[375, 1200])
def sized(request, open_page, file):
    """A window of the width of a phone, and the one that the other tests share."""
    if request.param == 1200:
        return 1200, request.getfixturevalue("tab")
    return request.param, open_page(file, request.param)


def test_it_loads_in_silence_fits_and_hostile_class_names_stay_text(sized, exploration):
    width, tab = sized
    assert tab.locator(".plot[role=img][aria-label]").count() == tab.locator(".plot:has(.main-svg)").count() == 12
    assert all(len(text) > 20 for text in tab.locator("figure:not(:has(table)) figcaption").all_text_contents())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    outside = "found.getBoundingClientRect().right > innerWidth && !found.closest('.scroll, .plot, .choices')"
    assert tab.evaluate(f"[...document.querySelectorAll('main *')].filter(found => {outside}).length") == 0
    hostile = exploration["classes"][:4]
    tab.evaluate(f"[...{BOX}].filter(box => box.checked).forEach(box => box.click())")
    tab.evaluate(f"[0, 1, 2, 3].forEach(i => {BOX}[i].click())")
    assert chosen(tab) == [0, 1, 2, 3]
    assert tab.locator("#histograms .choices label").all_text_contents()[:4] == hostile
    assert tab.locator("#histograms .choices label").nth(3).locator("wbr").count() == hostile[3].count("_") > 0
    legend = tab.locator("#histograms .legendtext").all_text_contents()
    ticks = tab.locator("#rates .ytick text").all_text_contents()
    for name, entry, tick in zip(hostile, legend, ticks, strict=False):
        assert entry.startswith(name[:20])
        assert tick.startswith(name[:11])
    tab.evaluate(f"Plotly.Fx.hover({PLOT}, [{{curveNumber: 3, pointNumber: 0}}])")
    assert hostile[1][:20] in tab.evaluate(f"{PLOT}.querySelector('.hoverlayer').textContent")
    heat = tab.locator("#rates .nsewdrag")
    box = heat.bounding_box()
    heat.hover(position={"x": box["width"] / 2, "y": box["height"] * 1.5 / 20})  # the second of twenty rows
    expect(tab.locator("#rates .hoverlayer")).to_contain_text(hostile[1])
    assert tab.locator("main img:not(.card > img), main script:not([type]), .plot a[href], .plot b, svg a").count() == 0


def test_the_histogram_is_that_of_the_data(tab, exploration):
    shown = tab.evaluate(f"{PLOT}.data.map(t => ({{x: [...t.x], y: [...t.y], name: t.name}}))")
    expected = feature_chart(exploration).panels[0].marks
    assert len(shown) == len(expected) == 6
    for steps, line, want_steps, want_line in zip(shown[::2], shown[1::2], expected[::2], expected[1::2], strict=True):
        np.testing.assert_allclose(steps["x"], want_steps.edges, rtol=1e-6)
        np.testing.assert_allclose(steps["y"][:-1], want_steps.heights, rtol=1e-6)
        np.testing.assert_allclose(line["y"], want_line.y, rtol=1e-5)
        area = np.dot(steps["y"][:-1], np.diff(steps["x"]))
        assert area == pytest.approx(1, rel=1e-6)


def test_the_chooser_changes_the_plot(tab):
    before = tab.evaluate(f"{PLOT}.data[0].y.join()")
    first = int(tab.locator("#histograms-feature").input_value())
    other = set_feature(tab, 0 if first else 33)
    assert other == (0 if first else 33)
    assert tab.evaluate(f"{PLOT}.data[0].y.join()") != before
    assert f"Feature {other}," in tab.locator("#histograms [role=status]").text_content()
    assert f"value of feature {other}" in tab.evaluate(f"{PLOT}.textContent")
    tab.get_by_role("button", name="Random feature").click()
    assert int(tab.locator("#histograms-feature").input_value()) != other


def test_only_features_in_the_page_are_shown(tab):
    set_feature(tab, 0)
    assert set_feature(tab, 1) == 3  # features 0, 3, ..., 33 are there: upwards to the next
    assert set_feature(tab, 2) == 0  # downwards
    assert set_feature(tab, 99) == 33
    assert set_feature(tab, -5) == 0


def test_at_most_five_classes_which_keep_their_colours(tab):
    assert len(chosen(tab)) == 3
    colour = tab.evaluate(f"{PLOT}.data.at(-1).line.color")
    first = tab.evaluate(f"{PLOT}.data[1].name.split(':')[0]")
    tab.evaluate(f"[...{BOX}].find(box => box.labels[0].textContent === '{first}').click()")
    assert tab.evaluate(f"{PLOT}.data.length") == 4
    assert tab.evaluate(f"{PLOT}.data.at(-1).line.color") == colour
    tab.evaluate(f"[...{BOX}].filter(box => !box.checked).slice(0, 3).forEach(box => box.click())")
    assert len(chosen(tab)) == 5
    assert tab.evaluate(f"[...{BOX}].filter(box => box.disabled).length") == 15
    tab.evaluate(f"[...{BOX}].filter(box => box.checked).forEach(box => box.click())")
    assert chosen(tab) == []
    assert "No class is chosen" in tab.locator("#histograms [role=status]").text_content()
    tab.evaluate(f"{BOX}[7].click()")
    assert tab.evaluate(f"{PLOT}.data.length") == 2


def test_the_filter_hides_other_classes(tab):
    tab.locator("#histograms-filter").fill("CLASS 1")
    assert tab.locator(".choices > div:not([hidden])").all_text_contents() == [
        "class 1",
        *(f"class {i}" for i in range(10, 16)),
    ]
    assert tab.evaluate("document.querySelector('.choices > div[hidden]').offsetHeight") == 0


def test_dark_mode_changes_ground_and_plots_at_once(tab):
    def look():
        ground = "getComputedStyle(document.body).backgroundColor"
        return tab.evaluate(f"[{ground}, {PLOT}.layout.font.color, {PLOT}.data[1].line.color]")

    light = look()
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function(f"colour => {PLOT}.layout.font.color !== colour", arg=light[1])
    assert all(a != b for a, b in zip(light, look(), strict=True))


def test_the_keyboard_reaches_and_works_every_control(tab):
    tab.evaluate("document.body.tabIndex = -1; document.body.focus()")  # so that the first Tab starts at the top
    reached = []
    for _ in range(16):
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"histograms-feature", "Random feature", "histograms-filter"} <= set(reached)
    while not tab.evaluate("document.activeElement.type === 'checkbox'"):
        tab.keyboard.press("Tab")
    box = tab.evaluate("Number(document.activeElement.value)")
    before = box in chosen(tab)
    tab.keyboard.press("Space")
    assert (box in chosen(tab)) is not before
    tab.locator("#histograms-feature").focus()
    feature = tab.evaluate("Number(document.activeElement.value)")
    tab.keyboard.press("ArrowUp")
    assert tab.evaluate("Number(document.activeElement.value)") in (feature + 3, 33)


def test_a_chart_can_be_saved_as_an_image(tab):
    assert tab.evaluate(f"Plotly.toImage({PLOT}, {{format: 'png'}})").startswith("data:image/png;base64,")
    assert tab.evaluate(f"[...{PLOT}.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)") == [
        "Download plot as a PNG",
        "Reset axes",
    ]


def test_a_few_outliers_do_not_take_all_the_colours(exploration):
    between = exploration["between"]
    rates = [[50.0, *row[1:]] if number == 0 else row for number, row in enumerate(between["log10_rate"])]
    heat = rates_chart({**exploration, "between": {**between, "log10_rate": rates}}).panels[0].marks[0]
    assert heat.span[1] < 5
    assert heat.span[0] < heat.span[1]


def test_the_map_shows_the_picture_that_is_pointed_at(tab):
    card = tab.locator(".map .card")
    expect(card).to_contain_text("<img src=x onerror=alert(1)>")  # as text
    assert card.locator("img").get_attribute("src").startswith("data:image/jpeg;base64,")
    first = card.locator("img").get_attribute("src")
    tab.locator(".map .area").focus()
    tab.keyboard.press("ArrowRight")
    expect(card).to_contain_text("photos/1.png")
    assert card.locator("img").get_attribute("src") != first
    tab.keyboard.press("ArrowRight")
    expect(card.locator("img")).to_be_hidden()  # what cannot be read has its name only
    tab.locator(".map circle").nth(1).hover(force=True)
    expect(card).to_contain_text("class:")
    expect(card).not_to_contain_text("photos/2.png")
    tab.locator(".map select").select_option(label="class 0")
    tab.locator(".map .area").focus()
    for _ in range(4):
        expect(card).to_contain_text("class: class 0")
        tab.keyboard.press("ArrowRight")
    assert (
        len(set(tab.evaluate("[...document.querySelectorAll('.map circle')].map(dot => dot.getAttribute('fill'))"))) > 2
    )


def test_sections_fold_and_links_open_them(tab):
    fold = tab.locator("#section-4 > details")
    fold.locator("summary").click()
    assert fold.get_attribute("open") is None
    tab.locator('nav a[href="#section-4"]').click()
    assert fold.get_attribute("open") is not None
    headings = tab.locator("h2, h3").all_text_contents()
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize(("width", "count", "radius"), [(390, 1000, 2.5), (1200, 1000, 5), (390, 60, 5)])
def test_many_points_on_a_phone_are_smaller(open_page, tmp_path, width, count, radius):
    x, y = np.random.default_rng(0).random((2, count)).tolist()
    data = {"x": x, "y": y, "labels": [0] * count, "names": [f"{i}" for i in range(count)], "classes": ["pile"]}
    part = ImageMap("map", "caption", {**data, "pictures": [""] * count})
    tab = open_page(write_page(tmp_path / "page.html", Page("p", [], [Section("s", [], [part])], {}, "c")), width)
    assert float(tab.locator(".map circle").first.get_attribute("r")) == pytest.approx(radius, abs=0.3)


def test_numbers_below_zero_have_a_minus_sign(exploration):
    table = explore_page(exploration, command="c").sections[-1].parts[-1]
    cells = [cell for row in table.rows for cell in row]
    assert any(cell.startswith("−") for cell in cells)
    assert not any(cell.startswith("-") for cell in cells)


def test_a_map_without_classes_is_a_page(tmp_path):
    features = Features.from_arrays(np.random.default_rng(0).normal(size=(30, 5)), ["pile"] * 30)
    page = explore_page(explore_map(features), command="c")
    assert [section.title for section in page.sections] == ["Map of the images"]
    assert page.summary[0].startswith("30 images, 5 features each")
    assert all(page.settings.values())  # nothing stands without a value
    assert not any("_" in name for name in page.settings)
    assert 'aria-label="Sections"' not in render_page(page)  # one section needs no list of them


def test_pictures_of_a_map_have_a_limit(mapped, monkeypatch):
    data, pictures = mapped
    everything = explore_page(data, command="c", pictures=pictures).sections[0].parts[0].data["pictures"]
    assert [bool(uri) for uri in everything[:3]] == [True, True, False]
    monkeypatch.setattr("likelyshot.report.explore_page.MAP_BYTES", len(everything[0]) + 10)
    shown = explore_page(data, command="c", pictures=pictures).sections[0].parts[0].data["pictures"]
    assert [bool(uri) for uri in shown[:2]] == [True, False]

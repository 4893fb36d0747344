"""What `explore` found, as a page: the choosers work, by keyboard too, and class names stay text."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from likelyshot.evaluation.explore import explore
from likelyshot.report.explore_page import explore_page, explore_summary, feature_chart, write_explore_page
from likelyshot.report.html import render_page

PLOT = "document.querySelector('#histograms .plot')"
BOX = "document.querySelectorAll('#histograms input[type=checkbox]')"


@pytest.fixture(scope="session")
def file(exploration, tmp_path_factory):
    return write_explore_page(
        tmp_path_factory.mktemp("page") / "explore.html", exploration, command="likelyshot explore F"
    )


@pytest.fixture
def tab(browser, file):
    return browser.open(file)


def set_feature(tab, value):
    tab.enter("#histograms-feature", value, "change")
    return tab.run("Number(document.querySelector('#histograms-feature').value)")


def chosen(tab):
    return tab.run(f"[...{BOX}].filter(box => box.checked).map(box => Number(box.value))")


def test_the_summary_says_what_was_found(exploration):
    text = " ".join(explore_summary(exploration))
    for fact in ("1,200 images of 20 classes", "21.3 %", "gamma", "50.0 %", "0.08 nats", "87.5 %", "95.0 %", "73 %"):
        assert fact in text


def test_exponential_winners_are_said_so(exploration):
    families = {**exploration["families"], "best_by_likelihood": [0.6, 0.1, 0.1, 0.1, 0.05, 0.05]}
    assert "the exponential fits best in 60.0 %" in " ".join(explore_summary({**exploration, "families": families}))


def test_a_real_exploration_makes_a_page(features):
    data = explore(features, tasks=20)
    page = explore_page(data, command="likelyshot explore F.npz")
    assert page.sections[0].title == "One feature, class by class"
    assert page.settings["tasks"] == "20"
    assert len(render_page(page)) < 3_000_000
    assert feature_chart(data).panels


def test_features_of_zeros_are_not_shown_first(exploration):
    rates = np.frombuffer(base64.b64decode(exploration["rates"]), "<f4").reshape(20, 12).copy()
    rates[:, :9] = 0
    half_dead = {**exploration, "rates": base64.b64encode(rates.tobytes()).decode()}
    axes = {panel.x for panel in feature_chart(half_dead).panels}
    assert axes == {"value of feature 27", "value of feature 30", "value of feature 33"}


@pytest.mark.parametrize("width", [375, 1200])
def test_it_loads_in_silence_and_fits(browser, file, width):
    browser.open(file, width)
    assert browser.complaints == []
    assert len(browser.texts(".plot[role=img][aria-label]")) == len(browser.texts(".plot:has(.main-svg)")) == 12
    assert all(len(text) > 20 for text in browser.texts("figure:not(:has(table)) figcaption"))
    assert browser.run("document.documentElement.scrollWidth") <= width
    outside = "found.getBoundingClientRect().right > innerWidth && !found.closest('.scroll, .plot, .choices')"
    assert browser.run(f"[...document.querySelectorAll('main *')].filter(found => {outside}).length") == 0


def test_the_histogram_is_that_of_the_data(tab, exploration):
    shown = tab.run(f"{PLOT}.data.map(t => ({{x: [...t.x], y: [...t.y], name: t.name}}))")
    expected = feature_chart(exploration).panels[0].marks
    assert len(shown) == len(expected) == 6
    for steps, line, want_steps, want_line in zip(shown[::2], shown[1::2], expected[::2], expected[1::2], strict=True):
        np.testing.assert_allclose(steps["x"], want_steps.edges, rtol=1e-6)
        np.testing.assert_allclose(steps["y"][:-1], want_steps.heights, rtol=1e-6)
        np.testing.assert_allclose(line["y"], want_line.y, rtol=1e-5)
        area = np.dot(steps["y"][:-1], np.diff(steps["x"]))
        assert area == pytest.approx(1, rel=1e-6)


def test_the_chooser_changes_the_plot(tab):
    before = tab.run(f"{PLOT}.data[0].y.join()")
    first = tab.run("Number(document.querySelector('#histograms-feature').value)")
    other = set_feature(tab, 0 if first else 33)
    assert other == (0 if first else 33)
    assert tab.run(f"{PLOT}.data[0].y.join()") != before
    assert f"Feature {other}," in tab.run("document.querySelector('#histograms [role=status]').textContent")
    assert f"value of feature {other}" in tab.run(f"{PLOT}.textContent")
    tab.run("document.querySelector('#histograms button').click()")
    assert tab.run("Number(document.querySelector('#histograms-feature').value)") != other
    assert tab.complaints == []


def test_only_features_in_the_page_are_shown(tab):
    set_feature(tab, 0)
    assert set_feature(tab, 1) == 3  # features 0, 3, ..., 33 are there: upwards to the next
    assert set_feature(tab, 2) == 0  # downwards
    assert set_feature(tab, 99) == 33
    assert set_feature(tab, -5) == 0


def test_at_most_five_classes_which_keep_their_colours(tab):
    assert len(chosen(tab)) == 3
    colour = tab.run(f"{PLOT}.data.at(-1).line.color")
    first = tab.run(f"{PLOT}.data[1].name.split(':')[0]")
    tab.run(f"[...{BOX}].find(box => box.labels[0].textContent === '{first}').click()")
    assert tab.run(f"{PLOT}.data.length") == 4
    assert tab.run(f"{PLOT}.data.at(-1).line.color") == colour
    tab.run(f"[...{BOX}].filter(box => !box.checked).slice(0, 3).forEach(box => box.click())")
    assert len(chosen(tab)) == 5
    assert tab.run(f"[...{BOX}].filter(box => box.disabled).length") == 15
    tab.run(f"[...{BOX}].filter(box => box.checked).forEach(box => box.click())")
    assert chosen(tab) == []
    assert "No class is chosen" in tab.run("document.querySelector('#histograms [role=status]').textContent")
    tab.run(f"{BOX}[7].click()")
    assert tab.run(f"{PLOT}.data.length") == 2
    assert tab.complaints == []


def test_the_filter_hides_other_classes(tab):
    tab.enter("#histograms-filter", "CLASS 1", "input")
    assert tab.texts(".choices > div:not([hidden])") == ["class 1", *(f"class {i}" for i in range(10, 16))]
    assert tab.run("document.querySelector('.choices > div[hidden]').offsetHeight") == 0


@pytest.mark.parametrize("width", [375, 1200])
def test_hostile_class_names_stay_text(browser, file, exploration, width):
    tab = browser.open(file, width)
    hostile = exploration["classes"][:4]
    tab.run(f"[...{BOX}].filter(box => box.checked).forEach(box => box.click())")
    tab.run(f"[0, 1, 2, 3].forEach(i => {BOX}[i].click())")
    assert chosen(tab) == [0, 1, 2, 3]
    assert tab.texts("#histograms .choices label")[:4] == hostile
    legend, ticks = tab.texts("#histograms .legendtext"), tab.texts("#rates .ytick text")
    for name, entry, tick in zip(hostile, legend, ticks, strict=False):
        assert entry.startswith(name[:20])
        assert tick.startswith(name[:11])
    tab.run(f"Plotly.Fx.hover({PLOT}, [{{curveNumber: 3, pointNumber: 0}}])")
    assert hostile[1][:20] in tab.run(f"{PLOT}.querySelector('.hoverlayer').textContent")
    tab.point("#rates .nsewdrag", 1.5 / 20)  # the second of twenty rows
    tab.until(lambda: hostile[1] in tab.texts("#rates .hoverlayer")[0], "the label of the cell", 10)
    assert tab.run("document.querySelectorAll('main img, main script, .plot a[href], .plot b, svg a').length") == 0
    assert tab.complaints == []


def test_dark_mode_changes_ground_and_plots_at_once(browser, file):
    def look():
        ground = "getComputedStyle(document.body).backgroundColor"
        return browser.run(f"[{ground}, {PLOT}.layout.font.color, {PLOT}.data[1].line.color]")

    browser.open(file, dark=False)
    light = look()
    browser.dark(True)
    browser.until(lambda: look()[1] != light[1], "the plots to be drawn anew", 10)
    assert all(a != b for a, b in zip(light, look(), strict=True))
    assert browser.complaints == []


def test_the_keyboard_reaches_and_works_every_control(tab):
    reached = []
    for _ in range(10):
        tab.key("Tab")
        reached.append(tab.run("document.activeElement.id || document.activeElement.textContent"))
        assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"histograms-feature", "Random feature", "histograms-filter"} <= set(reached)
    while not tab.run("document.activeElement.type === 'checkbox'"):
        tab.key("Tab")
    box = tab.run("Number(document.activeElement.value)")
    before = box in chosen(tab)
    tab.key(" ", " ")
    assert (box in chosen(tab)) is not before
    tab.run("document.querySelector('#histograms-feature').focus()")
    feature = tab.run("Number(document.activeElement.value)")
    tab.key("ArrowUp")
    assert tab.run("Number(document.activeElement.value)") in (feature + 3, 33)


def test_a_chart_can_be_saved_as_an_image(tab):
    assert tab.run(f"Plotly.toImage({PLOT}, {{format: 'png'}})").startswith("data:image/png;base64,")
    assert tab.complaints == []
    assert tab.run(f"[...{PLOT}.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)") == [
        "Download plot as a PNG",
        "Reset axes",
    ]

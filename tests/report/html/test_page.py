"""The page is whole, runs nothing but its own script, and shows texts as they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from playwright.sync_api import expect

from likelyshot.errors import InputError
from likelyshot.report.charts import Bars, Chart, Heat, Intervals, Line, Panel, Points, Steps, side_by_side
from likelyshot.report.html import Page, Section, TextTable, render_page, write_page

NASTY = "</script><script>alert(1)</script><!-- & \u2028\u2029 \\ \" ' <b>é"

INTERVALS = [
    Intervals("a", ["2020-01-01", NASTY], [1, 2], [0.5, 0.2], 0),
    Intervals("b", ["2020-01-01", NASTY], [None, 3], [0, 0.2], 2),
]


@pytest.fixture(scope="module")
def page() -> Page:
    marks = [Steps("steps", [0, 1, 2], [1, 3]), Line("line", [0, 2], [0, 3], 1)]
    chart = Chart(
        "all-marks",
        "All marks",
        "One of every kind.",
        [
            Panel("x", "y", marks, NASTY),
            Panel("x", "", [Bars("bars", ["2020-01-01", NASTY], [1, 2]), Line("rule", [1, 1], [-0.5, 1.5], 1)]),
            Panel("x", "", [Heat("unit", ["1", NASTY], ["7", "8"], [[None, 1.0], [2.0, 3.0]])]),
            Panel("x", "", [Heat("unit", ["1", "2"], ["7", "8"], [[None, 1.0], [2.0, 3.0]], write=True)]),
            Panel("x", "", [*INTERVALS, Line("", [2, 2], [-0.6, 1.6], None)]),
            Panel("ms", "%", [Points("p", [0.05, 30], [80, 90], [1, 2], [NASTY, "two"], [True, False])], log_x=True),
            Panel("x", "y", [Line("swept", [1, 2], [80, 90], 7, [1, 2])]),
        ],
    )
    table = TextTable(NASTY, ["name", "value"], [[NASTY, "1"]])
    return Page(NASTY, [NASTY], [Section(NASTY, [NASTY], [chart, table])], {NASTY: NASTY}, NASTY)


@pytest.fixture(scope="module")
def file(page, tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page") / "page.html", page)


class Reader(HTMLParser):
    """The page as a browser takes it: elements with their attributes, and all text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("script", "style"):
            self.text.append(data)


def test_the_page_names_only_itself_and_hostile_names_are_text(page):
    html = render_page(page)
    assert render_page(page) == html
    assert len(html) < 2_500_000
    read = Reader(html)
    tags = [tag for tag, _ in read.tags]
    assert tags.count("script") == 3  # the look of charts, plotly, our own
    assert tags.count("style") == tags.count("title") == 1
    assert not {"img", "b", "iframe", "link", "object"} & set(tags)
    attributes = [pair for _, attributes in read.tags for pair in attributes.items()]
    assert not [name for name, _ in attributes if name.startswith("on") or name in ("src", "style")]
    assert all(value.startswith("#") for name, value in attributes if name == "href")
    assert not re.search(r"https?://|@import|url\(", html[: html.index('id="plotly"')])
    # title twice, summary, heading, paragraph, panel, caption, row, command, setting and value
    assert sum(text == NASTY for text in read.text) == 11
    panels = [json.loads(value) for name, value in attributes if name == "data-panel"]
    assert [panel["title"] for panel in panels] == [NASTY, *[""] * 6]
    assert panels[1]["marks"][0]["labels"] == ["2020-01-01", NASTY]


def test_bytes_that_are_not_utf_8_are_shown_as_escapes(tmp_path):
    odd = Page("caf\udce9", [], [Section("s", [], [Chart("c", "", "", [Panel("caf\udce9", "", [])])])], {}, "")
    html = write_page(tmp_path / "page.html", odd).read_text("utf-8")
    assert "<h1>caf\\udce9</h1>" in html
    assert '"x":"caf\\udce9"' in html


def test_the_policy_admits_two_scripts_by_hash(page):
    html = render_page(page)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    script = html[html.rindex("<script>") + 8 : html.rindex("</script>")]
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert len(rules["script-src"]) == 2
    assert f"'sha256-{own}'" in rules["script-src"]
    assert set(rules) == {"default-src", "base-uri", "form-action", "script-src", "style-src", "img-src"}
    assert "unsafe-eval" not in policy


def test_our_script_never_makes_markup(page):
    html = render_page(page)
    script = html[html.rindex("<script>") :]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_a_folder_is_refused(page, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_page(tmp_path, page)


@pytest.mark.parametrize(("width", "dark"), [(375, False), (1200, True)])
def test_every_mark_is_drawn_and_nothing_complains(open_page, file, width, dark):
    tab = open_page(file, width, dark)
    assert tab.locator(".plot:has(.main-svg)").count() == 7
    assert tab.evaluate("document.title") == NASTY
    for query in (
        "h1",
        "#summary li",
        "h2",
        "section > details > p",
        "h4",
        "figure:has(table) figcaption",
        "tbody th",
        "pre code",
    ):
        assert tab.locator(query).all_text_contents()[0] == NASTY, query
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_labels_that_look_like_dates_stay_names(open_once, file):
    tab, complaints = open_once(file)
    labels = tab.locator(".plot .ytick text").all_text_contents()
    assert "2020-01-01" in labels
    assert "1" in labels
    assert any(label.startswith("</script><script>") for label in labels)
    assert complaints == []


def test_the_policy_stops_scripts_and_eval(open_once, file):
    tab, complaints = open_once(file)
    tab.evaluate("document.body.append(make('script', 'window.broken = 1'))")
    assert tab.evaluate("typeof window.broken") == "undefined"
    tab.evaluate("setTimeout('window.broken = 1', 0)")
    assert tab.evaluate("new Promise(done => setTimeout(() => done(typeof window.broken), 50))") == "undefined"
    assert len(complaints) == 2
    assert all("Content Security Policy" in complaint for complaint in complaints)
    complaints.clear()


def plot(number):
    return f"document.querySelectorAll('.plot')[{number}]"


def test_intervals_points_and_bands_show_their_data(open_once, file):
    tab, complaints = open_once(file)
    intervals = tab.evaluate(f"{plot(4)}.data.slice(0, 2).map(t => [t.x, t.y, t.error_x.array])")
    for (x, y, half), mark, places in zip(intervals, INTERVALS, side_by_side(INTERVALS), strict=True):
        assert (x, half) == (mark.values, mark.half)
        assert y == pytest.approx(places)  # where figures put them
    tab.evaluate(f"Plotly.Fx.hover({plot(4)}, [{{curveNumber: 1, pointNumber: 1}}])")
    assert NASTY[:20] in tab.evaluate(f"{plot(4)}.querySelector('.hoverlayer').textContent")

    assert tab.evaluate(f"{plot(5)}.layout.xaxis.type") == "log"
    assert {"0.1", "1", "10"} <= set(tab.evaluate(f"[...{plot(5)}.querySelectorAll('.xtick')].map(t => t.textContent)"))
    labels = tab.evaluate(f"[...{plot(5)}.querySelectorAll('.textpoint')].map(t => t.textContent)")
    assert any(label.startswith("</script>") for label in labels)
    assert "two" not in labels

    band, line = tab.evaluate(f"{plot(6)}.data.map(t => ({{x: t.x, y: t.y, mode: t.mode, fill: t.fill || ''}}))")
    assert (band["x"], band["y"], band["fill"]) == ([1, 2, 2, 1], [81, 92, 88, 79], "toself")
    assert (line["x"], line["y"], line["mode"]) == ([1, 2], [80, 90], "lines+markers")
    assert complaints == []


def test_the_values_of_bars_have_as_many_decimals_as_each_other(open_page, tmp_path):
    chart = Chart("c", "", "caption", [Panel("x", "", [Bars("", ["a", "b", "c"], [100.0, 54.5, 0.0])])])
    tab = open_page(write_page(tmp_path / "page.html", Page("p", [], [Section("s", [], [chart])], {}, "c")))
    assert tab.locator(".plot .bartext").all_text_contents() == ["100.0", "54.5", "0.0"]


@pytest.mark.parametrize(("dark", "ground"), [(False, "#ffffff"), (True, "#14171a")])
def test_a_hollow_mark_covers_the_line_of_its_interval(open_page, tmp_path, dark, ground):
    marks = [Intervals("", ["a", "b"], [1, None], [0.5, 0], 0), Intervals("", ["a", "b"], [None, 2], [0, 0.5], 1, True)]
    marks.append(Points("", [1], [1], [1], ["a"], [False], 1, hollow=True))
    chart = Chart("c", "", "caption", [Panel("x", "", marks)])
    tab = open_page(write_page(tmp_path / "page.html", Page("p", [], [Section("s", [], [chart])], {}, "c")), dark=dark)
    colours = tab.evaluate(f"{plot(0)}.data.map(found => found.marker.color)")
    assert colours[1:] == [ground, ground]
    assert colours[0].startswith("rgba")


def test_on_paper_charts_and_texts_are_dark(open_page, file):
    tab = open_page(file, dark=True)
    ink = f"[getComputedStyle(document.body).color, {plot(0)}.layout.font.color, {plot(0)}.data[1].line.color]"
    on_screen = tab.evaluate(ink)
    assert on_screen[:2] == ["rgb(230, 232, 235)", "#e6e8eb"]
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate(ink) == ["rgb(28, 31, 35)", "#1c1f23", "rgba(213, 94, 0, 1)"]
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate(ink) == on_screen
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate(ink)[0] == "rgb(28, 31, 35)"  # also where no script runs


def test_the_names_of_rows_stay_while_a_table_is_scrolled(open_page, tmp_path):
    long = "A_class_with_a_name_" * 9
    table = TextTable("t", ["name", *("a heading" for _ in range(9))], [["MLL", *["12.34 ± 0.56"] * 9], [long] * 10])
    tab = open_page(write_page(tmp_path / "page.html", Page("p", [], [Section("s", [], [table])], {}, "c")), 390)
    tab.evaluate("document.querySelector('.scroll').scrollLeft = 300")
    boxes = [found.bounding_box() for found in tab.locator("tbody th").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] < 250 for box in boxes)
    assert tab.locator("tbody th").nth(1).locator("wbr").count() == 45  # a line may break after an underscore
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def alike(count):
    charts = [Chart(f"c-{i}", "", "caption", [Panel("x", "y", [Line("", [0, 1], [0, i + 1])])]) for i in range(count)]
    return [Section(f"{NASTY} {i}", [], [chart], choice="Setting") for i, chart in enumerate(charts)]


def shown(tab):
    return tab.evaluate("[...document.querySelectorAll('main > section')].map(s => s.offsetHeight > 0)")


def test_many_sections_that_are_alike_are_chosen_from_a_list(open_page, tmp_path):
    sections = [Section("first", [], []), *alike(6), Section("last", [], [])]
    tab = open_page(write_page(tmp_path / "page.html", Page("p", [], sections, {}, "c")))
    assert shown(tab) == [True, True, *[False] * 5, True, True]
    assert tab.locator("label[for=choice]").all_text_contents() == ["Setting"]
    assert tab.locator("#choice option").all_text_contents() == [f"{NASTY} {i}" for i in range(6)]
    assert tab.locator(".plot:has(.main-svg)").count() == 1
    tab.locator("#choice").select_option("3")
    assert shown(tab) == [True, *[False] * 3, True, *[False] * 2, True, True]
    assert tab.evaluate("document.querySelector('#c-3 .plot').data[0].y") == [0, 4]
    assert tab.evaluate("document.querySelector('#c-3 .plot').offsetWidth") > 500
    tab.locator('nav a[href="#section-7"]').click()
    expect(tab.locator("#section-7")).to_be_visible()
    assert tab.evaluate("document.querySelector('#choice').value") == "5"
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("() => document.querySelector('#c-5 .plot').layout.font.color === '#e6e8eb'")
    while tab.evaluate("document.activeElement.id") != "choice":
        tab.keyboard.press("Tab")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    tab.keyboard.press("ArrowUp")
    expect(tab.locator("#section-6")).to_be_visible()
    tab.set_viewport_size({"width": 1200, "height": 300})
    tab.locator("#section-8 summary").focus()
    choice = "document.querySelector('.choice').getBoundingClientRect().bottom"
    for _ in range(3):
        tab.keyboard.press("Shift+Tab")  # back to what the list of settings would hide
        assert tab.evaluate(f"document.activeElement.getBoundingClientRect().top >= {choice}")

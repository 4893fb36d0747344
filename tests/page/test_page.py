"""The page is whole, runs nothing but its own script, and shows texts as they are."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from likelyshot.charts import Bars, Chart, Heat, Line, Panel, Steps, Table
from likelyshot.errors import InputError
from likelyshot.page import Page, Section, in_script, render, write_page

NASTY = "</script><script>alert(1)</script><!-- & \u2028\u2029 \\ \" ' <b>é"


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
        ],
    )
    table = Table(NASTY, ["name", "value"], [[NASTY, "1"]])
    return Page(NASTY, [NASTY], [Section(NASTY, [NASTY], [chart, table])], {NASTY: NASTY}, NASTY)


def test_json_in_a_script_survives_and_cannot_end_it():
    text = in_script({NASTY: [NASTY]})
    assert json.loads(text) == {NASTY: [NASTY]}
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_page_names_only_itself(page):
    html = render(page)
    assert render(page) == html
    assert len(html) < 2_500_000
    assert re.findall(r"<(\w+)", html[: html.rindex("<script>") + 8]) == [
        *("html", "head", "meta", "meta", "meta", "meta", "title", "style", "body", "noscript", "p", "main", "footer"),
        *("script", "script", "script"),
    ]
    assert not re.search(r"(?i)\s(src|href)=|https?://|@import|url\(", html[: html.index('id="data"')])


def test_the_policy_admits_two_scripts_by_hash(page):
    html = render(page)
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
    html = render(page)
    script = html[html.rindex("<script>") :]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_a_folder_is_refused(page, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_page(tmp_path, page)


@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_every_mark_is_drawn_and_nothing_complains(browser, page, tmp_path, width, dark):
    browser.open(write_page(tmp_path / "page.html", page), width, dark)
    assert browser.complaints == []
    assert browser.run("document.querySelectorAll('.plot .main-svg').length") >= 4
    assert browser.run("document.title") == NASTY
    for query in (
        "h1",
        "#summary li",
        "h2",
        "section > p",
        "h4",
        "figure:has(table) figcaption",
        "tbody th",
        "pre code",
    ):
        assert browser.texts(query)[0] == NASTY, query
    assert browser.run("document.documentElement.scrollWidth") <= width


def test_labels_that_look_like_dates_stay_names(browser, page, tmp_path):
    browser.open(write_page(tmp_path / "page.html", page))
    labels = browser.texts(".plot .ytick text")
    assert "2020-01-01" in labels
    assert "1" in labels
    assert any(label.startswith("</script><script>") for label in labels)


def test_the_policy_stops_scripts_and_eval(browser, page, tmp_path):
    browser.open(write_page(tmp_path / "page.html", page))
    browser.run("document.body.append(make('script', 'window.broken = 1'))")
    assert browser.run("typeof window.broken") == "undefined"
    browser.run("setTimeout('window.broken = 1', 0)")
    assert browser.run("new Promise(done => setTimeout(() => done(typeof window.broken), 50))") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)

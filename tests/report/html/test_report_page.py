"""What `report` found, as a page: the verdict on top, tables, charts, and names that stay text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from likelyshot import Result
from likelyshot.evaluation.sweep import Sweep
from likelyshot.report import compare_results
from likelyshot.report.charts import COLOURS
from likelyshot.report.report_charts import method_colours, setting_charts
from likelyshot.report.report_page import report_page, report_summary, write_report_figures, write_report_page

IMAGE = "<img src=x onerror=alert(1)>"
LINK = '<a href="javascript:alert(1)">x</a>'
GAINS = {"mll_transductive": 0.04, "mll": 0.0, "euclidean": 0.0001, IMAGE: -0.02, "combined": -0.01, "tim": 0.03}


def made(method, gain, shots=1, query=None, n=200) -> Result:
    common, own = np.random.default_rng(0), np.random.default_rng(len(method))
    accuracy = (0.8 + gain + common.normal(0, 0.05, 1000) + own.normal(0, 0.01, 1000))[:n]
    bins = {"count": [5, 400, 600], "confidence": [1.0, 240.0, 540.0], "correct": [1, 220, 560]}
    config = {
        "params": {"lambda_max": 40.0, "long": "x" * 900},
        "ways": 5,
        "shots": shots,
        "query": query or {"plan": "dirichlet", "total": 75, "alpha": 2.0},
        "seed": 7,
        "tasks_digest": f"first {n}",
        "range": [0, n, 1],
        "features": [{"digest": "0123456789abcdef", "dim": 4, "file": LINK, "split": "test"}],
    }
    return Result(
        method,
        accuracy,
        accuracy,
        accuracy,
        common.uniform(0.2, 0.9, 1000)[:n] if query is None else np.full(n, 0.2),
        {"temperature": 2.0, "fitted": True, **bins},
        [
            {"true": IMAGE, "predicted": LINK, "wrong": 30, "queries": 40},
            {"true": "a", "predicted": "b", "wrong": 1, "queries": 40},
        ],
        config,
        {"likelyshot": "0.2.0", "torch": "2", "system": "Linux", "cores": 2},
        n * 0.001 * (1 + len(method)),
    )


@pytest.fixture(scope="module")
def data():
    results = [made(name, gain, n=100 if name == "tim" else 200) for name, gain in GAINS.items()]
    balanced = {"plan": "balanced", "per_class": 15}
    results += [
        made(name, gain, shots=5, query=balanced) for name, gain in GAINS.items() if name in ("mll", "euclidean")
    ]
    rows = [
        {"point": {"iterations": i, "eta": e}, "shots": 1, "ways": 5, "tasks": 9, "mean": 0.5 + 0.1 * e, "ci95": 0.01}
        for i in (1, 5)
        for e in (0.1, 0.5)
    ]
    sweeps = [Sweep("mll_transductive", {"iterations": [1, 5], "eta": [0.1, 0.5]}, rows, {})]
    run = {"run": "r", "command": ["evaluate", "my features.npz", "--seed", "7"], "environment": {"torch": "2"}}
    return compare_results(results, sweeps, [run])


def test_the_summary_says_who_wins_and_whether_that_is_significant(data):
    mixed, tie, win, correction, swept = report_summary(data)
    assert mixed == (
        "These results are of 2 settings, which differ in shots (5; 1) and queries (balanced, 15 per class; "
        "Dirichlet(2), 75 queries). Methods are compared within a setting only."
    )
    gap = data["settings"][1]["winner"]["difference"]
    assert win.startswith("5-way 1-shot, Dirichlet(2), 75 queries: MLL, transductive (84.")
    assert f"wins, {100 * gap['mean']:.2f} ± {100 * gap['ci95']:.2f} points ahead of TIM-GD over 100 tasks" in win
    assert "which is significant" in win
    assert tie.startswith("5-way 5-shot, balanced, 15 per class: a tie: ")
    assert "which is not significant" in tie
    assert "not corrected" in correction
    assert "Holm" in correction
    assert swept == (
        "MLL, transductive over iterations and eta: best at iterations = 1, eta = 0.5, averaged over the shots."
    )


def test_runs_that_differ_are_said_to_differ():
    one = made("mll", 0.0)

    def changed(environment=None, **config):
        newer = {**one.environment, **(environment or {})}
        return replace(one, config={**one.config, **config}, environment=newer)

    def mixed(*others):
        return " ".join(report_summary(compare_results([one, *others]))[:-1])

    assert mixed() == ""
    assert "2 settings, which differ in seed (7; 8)." in mixed(changed(seed=8))
    features = [{"digest": "other", "file": "g.npz"}]
    assert f"2 settings, which differ in features ({LINK} (test); g.npz)" in mixed(changed(features=features))
    assert "different versions of likelyshot: 0.2.0, 0.3.0." in mixed(changed({"likelyshot": "0.3.0"}, seed=8))


def test_other_verdicts():
    def verdict(*results):
        return report_summary(compare_results(results))[0]

    one = made("mll", 0.0)
    assert "only MLL (80." in verdict(one)
    other = made("cosine", -0.1)
    elsewhere = Result(**{**vars(other), "config": {**other.config, "tasks_digest": "others"}})
    assert "no paired difference" in verdict(one, elsewhere)
    assert "Not compared, because evaluated on other tasks: Cosine." in verdict(one, made("mlx", -0.005), elsewhere)
    section = report_page(compare_results([one, elsewhere]), command="c").sections[0]
    assert "Evaluated on other tasks than MLL, so not paired with it: Cosine." in section.text[1]
    assert section.parts[1].rows[1][2] == "other tasks"
    assert "one task says nothing" in verdict(made("mll", 0.0, n=1), made("cosine", 0.1, n=1))
    alike = [
        made(name, 0.0) for name in ("a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg", "hhhhhhhh", "iiiiiiiii")
    ]
    assert "not significantly behind either" in verdict(*alike)


def test_the_table_has_every_figure_and_marks_what_survives_holm(data):
    table = report_page(data, command="c").sections[2].parts[1]
    assert table.head[2:4] == ["minus MLL", "minus MLL, transductive"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert next(iter(rows)) == "MLL, transductive"
    assert rows["MLL"][1] == "reference"
    for name, sign in (("MLL, transductive", "+"), (IMAGE, "−")):
        gap = data["settings"][1]["differences"]["MLL"][name]
        assert rows[name][1] == f"* {sign}{abs(100 * gap['mean']):.2f} ± {100 * gap['ci95']:.2f}"
    assert not rows["Euclidean"][1].startswith("*")
    assert rows["TIM-GD"][-1] == "100"
    assert rows["MLL"][-2] == "4.00"  # milliseconds: 1 + the letters of its name


def test_published_figures_stand_beside_ours_with_their_source(data):
    page = report_page(data, command="c")
    table = page.sections[2].parts[-1]
    assert "other data sets and networks" in table.caption
    assert all(head.startswith("published: ") for head in table.head[2:])
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["MLL, transductive"][0].startswith("84.")
    assert rows["MLL, transductive"][1] == "69.2"
    assert rows["PT-MAP"][0] == "–"
    assert rows["TIM-GD, published as TIM"][0].startswith("83.")  # by the name that the rest of the page has
    assert "Euclidean" in {row[0] for row in page.sections[1].parts[-1].rows}


def test_the_page_says_how_to_repeat_it(data):
    page = report_page(data, command="likelyshot report r")
    assert page.command == "likelyshot evaluate 'my features.npz' --seed 7\nlikelyshot report r"
    assert page.settings == {"torch": "2", "likelyshot": "0.2.0", "system": "Linux", "cores": "2"}
    tasks, features, methods = page.sections[-1].parts
    assert tasks.rows[0][1:4] == ["7", "200", "first 200"]
    assert "file: " + LINK in features.rows[0][1]
    assert LINK in methods.rows[0][1]
    assert methods.rows[0][2].startswith("lambda_max=40.0, long=xxx")
    assert len(methods.rows[0][2]) < 400


def test_charts_say_what_the_data_say(data):
    setting = data["settings"][1]
    accuracy, differences, time, imbalance, reliability, confused = setting_charts(
        setting, method_colours(data["settings"])
    )
    best, *others = accuracy.panels[0].marks
    assert best.values == [100 * setting["rows"][0]["mean"], *[None] * 5]
    assert not best.hollow
    assert all(mark.hollow for mark in others)
    assert len(differences.panels) == 2
    assert len(differences.panels[0].marks[0].labels) == 5
    line, *points = time.panels[0].marks
    assert time.panels[0].log_x
    assert {point.labels[0] for point in points} == {row["name"] for row in setting["rows"]}
    front = [point for point in points if not point.hollow]
    assert [point.labels[0] for point in front] == [
        row["name"] for row in sorted(setting["rows"], key=lambda row: row["ms"]) if row["front"]
    ]
    assert [(point.x[0], point.y[0]) for point in front] == sorted((point.x[0], point.y[0]) for point in front)
    assert (line.x[0], line.y[0]) == (front[0].x[0], front[0].y[0])
    assert (line.x[-1], line.y[-1]) == (front[-1].x[0], front[-1].y[0])
    assert all(point.written[0] for point in front)
    assert len(imbalance.panels[0].marks) == len(COLOURS)
    heat = imbalance.panels[1].marks[0]
    assert len(heat.rows) == len(GAINS)
    assert heat.span == (min(map(min, heat.values)), max(map(max, heat.values)))  # none lies far below the others
    curve = reliability.panels[0].marks[0]
    assert curve.x == pytest.approx([60, 90])  # the bin with five queries is left out
    assert curve.y == pytest.approx([55, 280 / 3])
    assert confused.panels[0].marks[0].values == [75, 2.5]
    assert confused.panels[0].marks[0].labels[0] == f"{IMAGE} → {LINK}"


def test_one_bad_method_does_not_take_all_the_colours_of_the_heat_map():
    found = [made(name, gain) for name, gain in {**GAINS, "pt_map": -0.5}.items() if name != "tim"]
    (setting,) = compare_results(found)["settings"]
    (heat,) = setting_charts(setting, method_colours([setting]))[3].panels[1].marks
    assert min(map(min, heat.values)) < 40
    assert heat.span[0] > 60


def test_a_method_has_one_colour_and_mark_throughout_a_page(data):
    colours = method_colours(data["settings"])
    assert list(colours)[:2] == ["MLL", "MLL, transductive"]
    assert sorted(colours.values()) == list(range(len(GAINS)))
    for setting in data["settings"]:
        accuracy, differences, time, *lines, reliability, _ = setting_charts(setting, colours)
        for chart in (accuracy, differences):
            for panel in chart.panels:
                for mark in panel.marks:
                    names = [] if mark.kind == "line" else mark.labels
                    assert (
                        [n for n, v in zip(names, mark.values, strict=True) if v is not None]
                        == [name for name in names if colours[name] == mark.colour]
                        if names
                        else mark.colour is None
                    )
        assert all(colours[mark.labels[0]] == mark.colour for mark in time.panels[0].marks[1:])
        for chart in (*lines, reliability):
            assert all(colours[mark.name] == mark.colour for mark in chart.panels[0].marks if mark.name)
        bars = reliability.panels[1].marks[0]
        assert bars.colour == [colours[name] for name in bars.labels]


def test_labels_of_points_that_lie_together_are_not_written_over_each_other():
    results = [made(name, 0.0) for name in ("aaaa", "bbbb", "cccc", "dddd")]
    (setting,) = compare_results(results)["settings"]
    marks = [
        mark for mark in setting_charts(setting, method_colours([setting]))[2].panels[0].marks if mark.kind == "points"
    ]
    assert 0 < sum(sum(mark.written) for mark in marks) < 4


def test_the_label_of_a_point_is_to_its_right_if_another_is_to_its_left():
    found = [
        replace(made(name, gain), seconds=seconds)
        for name, gain, seconds in (("mll", 0.0, 1.0), ("euclidean", 0.004, 2.0), ("tim", 0.1, 90.0))
    ]
    (setting,) = compare_results(found)["settings"]
    points = setting_charts(setting, method_colours([setting]))[2].panels[0].marks[1:]
    sides = {mark.labels[0]: mark.right for mark in points if mark.written[0]}
    assert sides == {"MLL": False, "Euclidean": True, "TIM-GD": False}


def test_a_sweep_writes_its_best_point_as_the_chart_does(data):
    swept = {**data["sweeps"][0], "grid": {"iterations": [1.0, 5.0], "eta": [0.1, 0.5]}}
    assert "best at iterations = 1, eta = 0.5," in report_summary({**data, "sweeps": [swept]})[-1]


def test_every_chart_is_a_figure(data, tmp_path, monkeypatch):
    monkeypatch.setattr("likelyshot.report.figures.FORMATS", ("svg",))  # test_figures.py has the others
    small = {**data, "settings": data["settings"][:1]}
    names = {path.name for path in write_report_figures(tmp_path, small)}
    kinds = ("accuracy", "differences", "time", "reliability", "confused")
    assert names == {*(f"{kind}-5way-5shot-balanced-15.svg" for kind in kinds), "sweep-1.svg"}


def test_it_loads_in_silence_and_hostile_names_stay_text(open_page, data, tmp_path):
    file = write_report_page(tmp_path / "report.html", data, command="likelyshot report r")
    assert file.stat().st_size < 3_000_000
    tab = open_page(file, 375, True)
    colours = method_colours(data["settings"])
    per_setting = [setting_charts(setting, colours) for setting in data["settings"]]
    sweep = 1
    assert tab.locator(".plot:has(.main-svg)").count() == sum(len(chart.panels) for chart in per_setting[0]) + sweep
    assert tab.locator("#choice option").all_text_contents() == [setting["title"] for setting in data["settings"]]
    seen = [text for text in tab.locator("h2, h3").all() if text.is_visible()]
    titles = [heading.text_content() for heading in seen]
    assert len(titles) == len(set(titles))  # each heading once
    tab.locator("#choice").select_option(str(len(per_setting) - 1))
    charts = per_setting[-1]
    row = data["settings"][-1]["rows"][0]
    shown = tab.evaluate(f"document.querySelector('#{charts[0].name} .plot').data[0].x[0]")
    assert shown == pytest.approx(100 * row["mean"])
    assert tab.locator("h1").all_text_contents() == [f"Results on {LINK} (test)"]
    for chart in (charts[0], charts[-1]):
        assert any(
            text.startswith(IMAGE[:17]) for text in tab.locator(f"#{chart.name} .ytick text").all_text_contents()
        )
    assert IMAGE in tab.locator("tbody th").all_text_contents()
    assert LINK in tab.locator("tbody td").all_text_contents()
    assert tab.locator("main img, main script:not([type]), .plot a[href], main a[href^=java]").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    tab.emulate_media(color_scheme="light")
    tab.set_viewport_size({"width": 1200, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1200

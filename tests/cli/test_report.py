"""The command likelyshot report as its users meet it."""

from __future__ import annotations

import json

import pytest

from likelyshot import Dirichlet, evaluate, sample_tasks
from likelyshot.methods import METHODS


@pytest.fixture(scope="module")
def folder(features, tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    tasks = sample_tasks(features.labels, n_tasks=30, ways=3, shots=1, query=Dirichlet(20, 2.0), seed=0)
    for name in ("mll", "cosine"):
        evaluate(METHODS[name], features, tasks).save(path / f"{name}.json")
    return path


def test_a_run_becomes_a_page_and_figures(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("likelyshot.report.figures.FORMATS", ("svg",))
    page = tmp_path / "new" / "r.html"
    code, out, _ = run("report", folder / "mll.json", "-o", page, "--figures", tmp_path / "figures")
    assert code == 0
    assert "3-way 1-shot, Dirichlet(2), 20 queries: " in out
    assert f"Open {page} in a browser." in out
    assert "likelyshot report" in page.read_text()
    assert (tmp_path / "figures" / "accuracy-3way-1shot-dirichlet-20-2.svg").exists()


def test_json_is_one_document_and_nothing_else(run, folder, tmp_path):
    code, out, err = run("report", folder / "mll.json", folder / "cosine.json", "-o", tmp_path / "r.html", "--json")
    assert code == 0
    assert len(json.loads(out)["settings"][0]["rows"]) == 2
    assert "Open" in err


def test_bad_input_is_said_in_a_sentence(run, folder, tmp_path):
    for arguments, sentence in (
        ((tmp_path / "none",), "there is no"),
        ((tmp_path,), "found none"),
        ((folder, "-o", tmp_path), "is a folder: give the name of a file"),
        ((folder, "-o", tmp_path / "page.pdf"), "a page that ends in .html"),
        ((folder, "-o", folder / "mll.json" / "r.html"), "is a file"),
        ((folder, "-o", tmp_path / "r.html", "--figures", folder / "mll.json"), "is a file"),
    ):
        code, out, err = run("report", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err
    assert not (tmp_path / "r.html").exists()


def test_damaged_results_are_refused_each_in_a_sentence(run, folder, tmp_path):
    (tmp_path / "mll.json").write_text((folder / "mll.json").read_text().replace('"ways": 3', '"ways": "x"'))
    (tmp_path / "cosine.json").write_text('{"half": ')
    code, out, err = run("report", tmp_path, "-o", tmp_path / "r.html")
    assert (code, out) == (2, "")
    assert [name for line in err.split("expected ")[1:] for name in ("cosine", "mll") if f"{name}.json" in line] == [
        "cosine",
        "mll",
    ]
    assert "Traceback" not in err
    assert not (tmp_path / "r.html").exists()

"""The command label as its users meet it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from likelyshot import label
from painted import ENCODER, paint_pile


@pytest.fixture(autouse=True)
def encoder(monkeypatch):
    """A small encoder of our own in place of the default."""
    monkeypatch.setattr("likelyshot.labelling.session.open_encoder", lambda name, device: ENCODER)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "cache"))
    paint_pile(tmp_path / "pile")
    return tmp_path


def test_it_serves_until_it_is_stopped_and_says_where(run, place, monkeypatch):
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", opened.append)

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("likelyshot.labelling.session.time", SimpleNamespace(sleep=interrupt))
    code, out, _ = run("label", "pile", "--classes", "blue,red")
    assert code == 0
    assert "Labels go to labels.csv, after every click." in out
    assert f"Open {opened[0]} in a browser on this machine; Ctrl-C stops." in out
    assert opened[0].startswith("http://127.0.0.1:")
    assert "Stopped. 0 labels are in labels.csv." in out
    assert (place / "labels.csv").read_text() == "path,label\n"


def test_export_opens_no_page(run, place):
    page = label("pile", classes=["blue"], encoder=ENCODER, cache=None, page=False)
    page.desk.set("one", [(0, "label", "blue"), (1, "label", "blue")])
    page.stop()
    code, out, _ = run("label", "pile", "--export", "folders", "features")
    assert code == 0
    assert "Continuing with 2 labels of labels.csv." in out
    assert "Copied 2 files into labels_folders." in out
    assert sorted(path.name for path in (place / "labels_folders" / "blue").iterdir()) == ["blue 0.png", "blue 1.png"]
    assert (place / "labels_features.safetensors").exists()


def test_what_cannot_be_done_is_a_sentence_and_exit_code_2(run, place):
    (place / "mine.csv").write_text("path,label\na,b\n")
    (place / "loop.csv").symlink_to("loop.csv")
    for name in ("empty", "far.csv.journal", "other.none.csv"):
        (place / name).mkdir()
    before = sorted(place.rglob("*"))
    for arguments, words in (
        (("nothing",), "nothing is at 'nothing'"),
        (("empty",), "expected something to classify"),
        (("pile", "-o", "labels.xlsx"), "ends in .csv"),
        (("pile", "-o", "pile"), "ends in .csv"),
        (("pile", "-o", "no/labels.csv"), "does not exist, so create it first"),
        (("pile", "-o", "mine.csv"), "exists already, and the labelling page did not write it"),
        (("pile", "--classes", "a,,b"), "expected the name of a class"),
        (("pile", "--method", "no"), "unknown method"),
        (("pile", "--method", "feat"), "expected a method without a trained head"),
        (("pile", "--export", "xml"), "expected one of folders"),
        (("pile", "--port", "99999"), "from 0 to 65535"),
        (("pile", "-o", "loop.csv"), "cannot write loop.csv (Too many levels of symbolic links)"),
        (("pile", "-o", "far.csv"), "far.csv.journal is a folder"),
        (("pile", "-o", "other.csv"), "other.none.csv is a folder"),
        (("pile", "--export", "folders"), "expected labels in labels.csv, but there are none yet"),
        (("pile", "--label-studio", "none.json"), "but none.json does not exist"),
    ):
        code, _, err = run("label", *arguments)
        assert code == 2, arguments
        assert words in err, arguments
        assert "Traceback" not in err
    assert sorted(path for path in place.rglob("*") if "cache" not in path.parts) == before
    assert (place / "mine.csv").read_text() == "path,label\na,b\n"


def test_a_class_that_is_misspelt_is_pointed_out(run, place):
    paint_pile(place / "few")
    rows = [("blue", 0), ("blue", 1), ("red", 0), ("erd", 1)]
    lines = [f"few/{'red' if name == 'erd' else name} {number}.png,{name}" for name, number in rows]
    (place / "few.csv").write_text("\n".join(["path,label", *lines]))
    code, out, _ = run("label", "pile", "--support", "few.csv", "--export", "folders")
    assert code == 0
    assert "Class 'erd' has 1 labelled example and looks like 'red', which has 1: if this is a mistake, " in out


def test_a_port_in_use_is_exit_code_2(run, place):
    from likelyshot.labelling.server import listen

    with listen() as taken:
        code, _, err = run("label", "pile", "--port", taken.getsockname()[1])
    assert code == 2
    assert "cannot use port" in err
    assert not (place / "labels.csv").exists()


def test_a_table_that_is_open_elsewhere_is_exit_code_2(run, place):
    page = label("pile", encoder=ENCODER, cache=None, page=False)
    code, _, err = run("label", "pile", "--export", "folders")
    page.stop()
    assert code == 2
    assert "in use by another labelling page" in err

from __future__ import annotations

import os

import pytest

from likelyshot.data import files
from likelyshot.errors import InputError, nearest


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = files.write_whole(tmp_path / "a.txt", "before")

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(InputError, match="No space left"):
        files.write_whole(path, "after")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(tmp_path / "a.txt", b"half")
    assert list(tmp_path.iterdir()) == []


def test_written_files_have_ordinary_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert files.write_whole(tmp_path / "whole", "").stat().st_mode == plain.stat().st_mode


def test_nan_is_not_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        files.output_folder(tmp_path / "file")
    with pytest.raises(InputError, match=r"is a file|cannot write"):
        files.output_folder(tmp_path / "file" / "below")
    with pytest.raises(InputError, match="cannot write"):
        files.output_folder("/proc/nowhere")
    with pytest.raises(InputError, match="is a folder"):
        files.write_whole(tmp_path, "x")


def test_a_folder_can_be_tried_without_being_made(tmp_path):
    files.output_folder(tmp_path / "a" / "b", make=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file"):
            files.output_folder(path, make=False)
    with pytest.raises(InputError, match="cannot write"):
        files.output_folder("/proc/nowhere", make=False)


def test_nearest_names_the_known_even_when_none_is_near():
    assert nearest("zzz", ["mll"]) == "Known: mll"

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from likelyshot.data import files
from likelyshot.errors import InputError, nearest


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = files.write_whole(tmp_path / "a.txt", "before")

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
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


def hang_while_writing(path):
    """Run a process that writes half of a file and then waits to be killed."""
    script = """
import sys, time
from likelyshot.data.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    return process


def test_what_a_killed_run_left_is_removed_by_the_next_write(tmp_path):
    path, other = tmp_path / "a.txt", tmp_path / ".b.txt.0123456789.likelyshot-partial"
    other.write_text("of another path")
    with hang_while_writing(path) as killed, hang_while_writing(path) as running:
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.iterdir())) == 3
        files.write_whole(path, "whole")
        left = {file.name for file in tmp_path.iterdir()} - {"a.txt", other.name}
        assert len(left) == 1  # that of the process that still writes
        assert (tmp_path / left.pop()).read_bytes() == b"half"
        running.kill()
    files.write_whole(path, "again")
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", other.name}
    files.remove_stale(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_devices_and_pipes_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(InputError, match="is a device or a pipe"):
            files.write_whole(path, "x")


def test_long_names(tmp_path):
    for name in ("a" * 250, "\N{OWL}" * 60, "caf\udce9" * 30):
        assert files.write_whole(tmp_path / name, "x").read_text() == "x"
    with pytest.raises(InputError, match="cannot write"):
        files.write_whole(tmp_path / ("a" * 300), "x")


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

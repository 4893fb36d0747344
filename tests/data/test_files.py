"""Files are written whole or not at all, and come back as they were, or not at all."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import save

from likelyshot.data import files
from likelyshot.data.files import (
    read_container,
    read_document,
    read_tensors,
    write_container,
    write_document,
    write_tensors,
)
from likelyshot.errors import InputError, nearest
from processes import Child


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


def test_a_name_with_a_null_is_refused(tmp_path):
    for write in (files.output_folder, lambda path: files.write_whole(path, "")):
        with pytest.raises(InputError, match="has a null character"):
            write(tmp_path / "a\0b")


def test_written_files_have_ordinary_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert files.write_whole(tmp_path / "whole", "").stat().st_mode == plain.stat().st_mode


@contextlib.contextmanager
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
    folder = path.parent.with_name("children")
    folder.mkdir(exist_ok=True)
    child = Child(script, str(path), folder=folder)
    while child.out != "writing\n":
        assert child.process.is_alive(), child.err
        time.sleep(0.02)
    yield child.process
    child.process.kill()
    child.wait()


@pytest.mark.processes
def test_what_a_killed_run_left_is_removed_by_the_next_write(tmp_path):
    path, other = tmp_path / "a.txt", tmp_path / ".b.txt.0123456789.likelyshot-partial"
    other.write_text("of another path")
    with hang_while_writing(path) as killed, hang_while_writing(path) as running:
        killed.kill()
        killed.join()
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


FORM = "likelyshot.example/1"
TEXTS = {"what": "an example", "remedy": "make one"}


class Example(msgspec.Struct):
    name: str
    numbers: list[float]
    settings: dict[str, object] = {}


def read(path, schema=Example):
    return read_document(path, schema, **TEXTS)


def test_a_document_comes_back(tmp_path):
    document = {"name": "\N{OWL}", "numbers": [np.float32(0.5), np.array(1), 1e-300], "settings": {"a": np.arange(2)}}
    loaded = read(write_document(tmp_path / "d.json", document))
    assert loaded == Example("\N{OWL}", [0.5, 1, 1e-300], {"a": [0, 1]})
    assert read(write_document(tmp_path / "d.json", {"name": "caf\udce9", "numbers": []})).name == "caf?"


def test_documents_that_json_cannot_hold_are_not_written(tmp_path):
    for number in (float("nan"), float("inf"), np.float32("nan")):
        with pytest.raises(InputError, match=r"cannot write .*d\.json: it holds NaN or infinity"):
            write_document(tmp_path / "d.json", {"x": number})
        with pytest.raises(InputError, match=r"cannot write .*d\.json: it holds NaN or infinity"):
            write_container(tmp_path / "d.json", {}, {"x": number}, form=FORM)
    with pytest.raises(TypeError, match="cannot write a object as JSON"):
        write_document(tmp_path / "d.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b"\x00", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "the content is a list, not a table"),
        (b"{}", "the key 'name' is missing"),
        (b'{"name": "a"}', "the key 'numbers' is missing"),
        (b'{"name": 1, "numbers": []}', "name is a whole number, not text"),
        (b'{"name": "\xff", "numbers": []}', "codec can't decode"),
        (b'{"name": "a", "numbers": [1, null]}', "numbers is null, not a number"),
        (b'{"name": "a", "numbers": [NaN]}', "malformed"),
        (b'{"name": "a", "numbers": [1e400]}', "out of range"),
        (b'{"name": "a", "numbers": [' + b"9" * 10_000 + b"]}", "out of range"),
        (b'{"name": "a", "numbers": [], "settings": ' + b'{"a":' * 100_000, "nested too deeply"),
        (b'{"name": "a", "numbers": ' + b"[" * 100_000, "numbers is a list, not a number"),
    ],
)
def test_other_documents_are_refused(tmp_path, content, reason):
    path = tmp_path / "d.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"expected an example, but .*d\.json .* damaged \(.*{reason}.*\): make one"):
        read(path)


def test_what_is_not_a_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, got in {
        "": "is a folder",
        "pipe": "is not a file",
        "none": "does not exist",
        "loop": "loop",
        "a\0b": "does not exist",
        "a" * 300: "cannot read",
    }.items():
        for function in (read, lambda path: read_tensors(path, **TEXTS)):
            with pytest.raises(InputError, match=got):
                function(tmp_path / name)
    with pytest.raises(InputError, match="is not a file"):
        read("/dev/zero")


def test_a_huge_document_is_not_read(tmp_path):
    with (tmp_path / "d.json").open("wb") as file:
        file.truncate(10**12)  # takes no room
    with pytest.raises(InputError, match=r"it has 1000\.0 GB"):
        read(tmp_path / "d.json")


def test_tensors_come_back(tmp_path):
    tensors = {"a": torch.rand(2, 3).T, "b": torch.tensor(1, dtype=torch.int16), "c": torch.empty(0, 2)}
    path = write_tensors(tmp_path / "t.safetensors", tensors, {"x": "y"})
    loaded, notes = read_tensors(path, **TEXTS)
    assert notes == {"x": "y"}
    write_container(path, tensors, {"name": "a", "numbers": [1.5]}, form=FORM)
    again, facts = read_container(path, Example, form=FORM, **TEXTS)
    assert facts == Example("a", [1.5])
    path.write_bytes(b"")  # nothing is a view of the file
    for name, value in tensors.items():
        assert torch.equal(loaded[name], value), name
        assert torch.equal(again[name], value), name


def test_other_containers_are_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    tensors = {"a": torch.arange(9.0)}
    write_container(path, tensors, {"name": "a", "numbers": [1.5]}, form=FORM)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    _, notes = read_tensors(path, **TEXTS)

    def refused(content, reason):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"expected an example, but .*t\.safetensors .*{reason}.*: make one"):
            read_container(path, Example, form=FORM, **TEXTS)

    for length in (0, 4, 8, 50, len(whole) - 1):
        refused(whole[:length], "damaged")
    refused(b"\xff" * 8 + b"{}", "damaged")
    refused((100_000).to_bytes(8, "little") + b"[" * 100_000, "damaged")
    refused(bytes(flipped), "its digest does not match")
    refused(save(tensors, {**notes, FORM: '{"name": "b", "numbers": [1.5]}'}), "its digest does not match")
    refused(save(tensors, {FORM: notes[FORM]}), "its digest does not match")
    refused(save(tensors), "another kind of safetensors file")
    refused(save(tensors, {"likelyshot.example/2": notes[FORM]}), "it has version 2, not 1")
    for facts in ([], {"name": "a"}, {"name": "a", "numbers": "b"}):
        write_container(path, tensors, facts, form=FORM)
        refused(path.read_bytes(), "not a (table|list)|is missing")


def test_the_same_tensors_and_notes_are_the_same_bytes(tmp_path):
    notes = {f"note {i}": "ä\n\x7f" * i for i in range(12)}
    tensors = {"a": torch.arange(3), "b": torch.rand(2, 5)}
    first = write_tensors(tmp_path / "a", tensors, notes).read_bytes()
    for _ in range(5):
        assert write_tensors(tmp_path / "b", tensors, dict(reversed(notes.items()))).read_bytes() == first
    found, back = read_tensors(tmp_path / "a", what="tensors", remedy="write them")
    assert back == notes
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    write_tensors(tmp_path / "c", tensors, {})
    assert read_tensors(tmp_path / "c", what="tensors", remedy="write them")[1] == {}


def test_tensors_are_written_as_safetensors_writes_them_streamed_or_not(tmp_path):
    torch.manual_seed(0)
    tensors = {f"{kind} {n}": (9 * torch.rand(3, n)).to(getattr(torch, kind)) for n in (2, 0) for kind in files.TYPES}
    assert write_tensors(tmp_path / "a", tensors, {"x": "y"}).read_bytes() == save(tensors, {"x": "y"})
    rows = torch.rand(5, 4)
    streamed = files.Streamed("float32", (5, 4), (part.numpy() for part in rows.split(2)))
    write_tensors(tmp_path / "b", {"rows": streamed, "n": torch.arange(3)}, {"x": "y"})
    assert (tmp_path / "b").read_bytes() == save({"rows": rows, "n": torch.arange(3)}, {"x": "y"})
    with pytest.raises(InputError, match="more or fewer numbers than its shape says"):
        write_tensors(tmp_path / "c", {"rows": files.Streamed("float32", (5, 4), [np.zeros(3)])}, {})
    with pytest.raises(InputError, match="cannot hold tensors of complex128"):
        write_tensors(tmp_path / "c", {"rows": torch.zeros(3, dtype=torch.complex128)}, {})
    assert not (tmp_path / "c").exists()

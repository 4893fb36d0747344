"""The log of a run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from types import SimpleNamespace

import pytest

from likelyshot import InputError
from likelyshot.training.log import Log


def test_it_forgets_what_came_after_the_place_it_goes_on_from(tmp_path):
    log = Log(tmp_path, None)
    places = [(1, 0, 5), (1, 1, 0), (1, 1, 5), (2, 0, 0)]
    for place in places:
        log.write(place, 0, {"event": "step", "stage": "pretrain", "loss": 1.5})
    with log.path.open("a") as file:
        file.write('{"place": [1, 0')
    Log(tmp_path, (1, 1, 3))
    kept = [json.loads(line)["place"] for line in log.path.read_text().splitlines()]
    assert kept == [[1, 0, 5], [1, 1, 0]]
    Log(tmp_path, None)
    assert log.path.read_text() == ""


@pytest.mark.parametrize(
    "damage",
    [b"nonsense", b"\xff", b"[]", b'{"place": [1, 0]}', b'{"place": "1"}', b'{"loss": 1.5}', b"[" * 100_000, b""],
)
def test_a_damaged_log_is_not_continued(tmp_path, damage):
    log = Log(tmp_path, None)
    log.write((1, 0, 5), 0, {"event": "step", "stage": "pretrain"})
    with log.path.open("ab") as file:
        file.write(damage + b"\n")
    before = log.path.read_bytes()
    with pytest.raises(InputError, match=r"expected the log of a run, but .*log.jsonl is .*damaged \(line 2: "):
        Log(tmp_path, (1, 1, 0))
    assert log.path.read_bytes() == before


@pytest.mark.parametrize("place", [None, (1, 1, 0)])
def test_a_pipe_is_no_log(tmp_path, place):
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(InputError, match=r"log.jsonl is (not a file|a device or a pipe)"):
        Log(tmp_path, place)


def test_numbers_go_to_tensorboard_where_there_is_one(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, *arguments):
            written.append(arguments)

        def close(self):
            written.append("closed")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Writer))
    log = Log(tmp_path, None)
    log.write((2, 0, 5), 105, {"event": "step", "stage": "finetune", "loss": 0.5, "epoch": 3})
    log.close()
    assert log.board.folder == str(tmp_path / "tensorboard")
    assert written == [("finetune/loss", 0.5, 105), "closed"]


def test_a_log_that_cannot_be_written(tmp_path):
    log = Log(tmp_path, None)
    log.path.unlink()
    log.path.mkdir()
    with pytest.raises(
        InputError, match=r"cannot write .*log.jsonl \(Is a directory\): free some space, then use --resume"
    ):
        log.write((1, 0, 0), 0, {"event": "step", "stage": "pretrain"})

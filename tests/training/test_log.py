"""The log of a run."""

from __future__ import annotations

import importlib.util
import json
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

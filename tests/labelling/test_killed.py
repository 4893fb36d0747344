"""A server that is killed in mid-click loses no click that it answered, and counts none twice."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import likelyshot

KILLS = 20

#: Imports everything once. For every line on its input it forks a server, and prints its process and its address.
NURSERY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from likelyshot.labelling.labels import Labels
from likelyshot.labelling.desk import Desk
from likelyshot.labelling.server import Server
from likelyshot.labelling.things import lay_out
from likelyshot.own_data.piles import read_pile
from pathlib import Path
import asyncio, encodings.idna, signal, uvicorn
uvicorn.Config(lambda: None, lifespan="off").load()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
pile = Path(sys.argv[2])
Desk._learn = lambda self, version: None  # this is about the clicks
for line in sys.stdin:
    if os.fork():
        continue
    things = lay_out(read_pile(pile), pile, pile.parent / "labels.csv", None, cache=None)
    labels = Labels(things.output, things.kind, things.columns, things.cells, things.order)
    desk = Desk(things, labels)
    server = Server(desk)
    server.start()
    print(os.getpid(), server.address, flush=True)
    signal.pause()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_twenty_times_in_mid_click_nothing_is_lost_or_doubled(tmp_path):
    np.save(tmp_path / "pile.npy", np.random.default_rng(0).random((400, 4), dtype=np.float32) + 0.1)
    src = os.fspath(Path(likelyshot.__file__).parent.parent)
    nursery = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", NURSERY, src, os.fspath(tmp_path / "pile.npy")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    chance = random.Random(0)
    answered: dict[int, str] = {}  # item -> class, of the clicks that were answered
    pending: dict | None = None  # the click that was not
    versions = 0
    item = 0
    unanswered = 0
    try:
        for turn in range(KILLS + 1):
            nursery.stdin.write("go\n")
            nursery.stdin.flush()
            pid, address = nursery.stdout.readline().split()

            def send(action, address=address):
                request = urllib.request.Request(
                    address + "act", json.dumps(action).encode(), {"content-type": "application/json"}
                )
                return json.loads(urllib.request.urlopen(request, timeout=20).read())

            state = json.loads(urllib.request.urlopen(address + "state", timeout=20).read())
            assert versions <= state["version"] <= versions + (pending is not None)
            values = json.loads(
                urllib.request.urlopen(address + f"state?items={','.join(map(str, range(400)))}").read()
            )
            values = {int(n): value["name"] for n, value in values["values"].items() if value is not None}
            for number, name in answered.items():
                assert values[number] == name  # nothing is lost
            assert len(values) <= len(answered) + 1
            if pending is not None:  # the page sends it again, as it does not know whether it arrived
                state = send(pending)
                if pending["do"] == "set":
                    answered[pending["changes"][0][0]] = pending["changes"][0][2]
                pending = None
            versions = state["version"]
            if turn == 0:
                for name in ("a", "b"):
                    versions = send({"do": "class", "click": f"class {name}", "name": name})["version"]
            if turn == KILLS:
                break
            killer = threading.Timer(chance.uniform(0.002, 0.12), os.kill, (int(pid), signal.SIGKILL))
            killer.start()
            while True:
                action = {
                    "do": "set",
                    "click": f"click {item}",
                    "changes": [[item % 400, "label", "ab"[item // 400 % 2 ^ item % 2]]],
                }
                pending = action
                try:
                    versions = send(action)["version"]
                except (OSError, http.client.HTTPException):  # cut off before or within the answer
                    unanswered += 1
                    item += 1
                    break
                answered[item % 400] = action["changes"][0][2]
                pending = None
                item += 1
            killer.join()
            with contextlib.suppress(ProcessLookupError):
                while True:  # until it is gone, and its lock with it
                    os.kill(int(pid), 0)
                    time.sleep(0.01)
        assert state["labelled"] == len(answered)  # and nothing is doubled
        assert versions == state["version"] == item + 2  # each click counted once, and the two classes
        assert unanswered == KILLS
        lines = (tmp_path / "labels.csv.journal").read_bytes().split(b"\n")
        ids = [json.loads(line)["id"] for line in lines[1:-1]]
        clicks = [name for name in ids if name.startswith("click")]
        assert len(clicks) == len(set(clicks)) == item
        rows = (tmp_path / "labels.csv").read_text().splitlines()
        assert len(rows) == 1 + len(answered)
    finally:
        nursery.stdin.close()
        nursery.kill()
        nursery.wait()
        with contextlib.suppress(OSError, NameError):
            os.kill(int(pid), signal.SIGKILL)
        nursery.stdout.close()

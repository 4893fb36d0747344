"""A server that is killed in mid-click loses no click that it answered, and counts none twice."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import likelyshot

KILLS = 20
ITEMS = 60

#: Serves a page once, so that everything is imported. For every line on its input it then forks a process that serves
#: the pile, and says where.
NURSERY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from likelyshot import label
label(sys.argv[2], output=sys.argv[3] + ".first.csv", browser=False, cache=None).stop()
for line in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print("gone", flush=True)
        continue
    page = label(sys.argv[2], output=sys.argv[3], browser=False, cache=None)
    print(os.getpid(), page.address, flush=True)
    page.wait()
"""


class GoneError(Exception):
    """The server was killed before it answered."""


class Browser:
    """Sends clicks over HTTP, as the page does."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._path, self._connection = parts.path, http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def _ask(self, method, path, body=None):
        try:
            self._connection.request(method, self._path + path, body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            raise GoneError from None
        assert answer.status == 200, data
        return json.loads(data)

    def click(self, order):
        return self._ask("POST", "act", json.dumps(order))

    def state(self):
        found = self._ask("GET", f"state?items={','.join(map(str, range(ITEMS)))}")
        values = {int(n): value["name"] for n, value in found["values"].items() if value}
        return found["version"], [entry["name"] for entry in found["classes"]], values

    def close(self):
        self._connection.close()


class Expected:
    """What must be on disk: every click that was answered, once."""

    def __init__(self) -> None:
        self.version, self.classes, self.values, self.clicks = 0, [], {}, 0

    def next_order(self):
        self.clicks += 1
        click, n = f"click {self.clicks}", self.clicks
        if len(self.classes) < 2:
            return {"do": "class", "click": click, "name": "ab"[len(self.classes)]}
        if n % 7 == 0:
            return {"do": "rename", "click": click, "old": self.classes[0], "name": f"a{n}"}
        other = self.classes[1 if self.values.get(n % ITEMS) == self.classes[0] else 0]  # each click changes something
        return {"do": "set", "click": click, "changes": [[n % ITEMS, "label", other]]}

    def did(self, order):
        self.version += 1
        if order["do"] == "class":
            self.classes.append(order["name"])
        elif order["do"] == "rename":
            self.classes[self.classes.index(order["old"])] = order["name"]
            self.values = {n: order["name"] if name == order["old"] else name for n, name in self.values.items()}
        else:
            self.values.update({n: name for n, _, name in order["changes"]})

    @property
    def state(self):
        return self.version, self.classes, self.values


class Nursery:
    """Starts servers of one pile, one after the other, in processes that have everything imported already."""

    def __init__(self, folder: Path) -> None:
        self.output, self.pid = folder / "labels.csv", 0
        np.save(folder / "pile.npy", np.random.default_rng(0).random((ITEMS, 4), dtype=np.float32) + 0.1)
        src = Path(likelyshot.__file__).parent.parent
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, *map(os.fspath, (src, folder / "pile.npy", self.output))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self) -> str:
        """Start a server, and give the address of its page."""
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        pid, address = self._process.stdout.readline().split()
        self.pid = int(pid)
        return address

    def kill(self) -> None:
        """Kill the server, unless it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def gone(self) -> None:
        """Wait until the server that was killed is gone."""
        assert self._process.stdout.readline() == "gone\n"
        self.pid = 0

    def close(self) -> None:
        """End everything."""
        if self.pid:
            self.kill()
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with contextlib.closing(Nursery(tmp_path_factory.mktemp("killed"))) as opened:
        yield opened


def test_a_server_killed_twenty_times_in_mid_click_loses_and_doubles_nothing(nursery):
    chance, expected, again, doubted = random.Random(0), Expected(), None, 0
    for turn in range(KILLS + 1):
        browser = Browser(nursery.start())
        with contextlib.closing(browser):
            if again is not None:  # the page sends it again, as it does not know whether it arrived
                doubted += browser.state()[0] - expected.version
                expected.did(again)
                browser.click(again)
            assert browser.state() == expected.state
            if turn < KILLS:
                killer = threading.Timer(chance.uniform(0.0, 0.04), nursery.kill)
                with contextlib.suppress(GoneError):
                    while True:
                        again = expected.next_order()
                        answer = browser.click(again)
                        expected.did(again)
                        assert (answer["version"], answer["labelled"]) == (expected.version, len(expected.values))
                        if killer.ident is None:  # after the first click, which a busy machine may take long for
                            killer.start()
                killer.join()
        if turn == KILLS:
            nursery.kill()
        nursery.gone()
    assert 0 <= doubted <= KILLS  # clicks that were on disk, but not answered
    lines = Path(f"{nursery.output}.journal").read_bytes().splitlines()[1:]
    ids = [entry["id"] for line in lines if (entry := json.loads(line))["do"] != "round"]
    assert ids == [f"click {number}" for number in range(1, expected.clicks + 1)]
    assert expected.clicks >= 2 * KILLS
    with nursery.output.open(newline="") as file:
        rows = {int(row["features_row"]) - 1: row["label"] for row in csv.DictReader(file)}
    assert rows == expected.values


def test_the_page_of_a_killed_server_says_so_and_that_of_the_next_goes_on(nursery, open_tab):
    from playwright.sync_api import expect

    tab, saved = open_tab(nursery.start()), 2
    if not tab.locator("#classes button").count():  # the other test did not run before
        saved += 4  # each new class, and the label that it gives
        for name in ("a", "b"):
            tab.keyboard.press("c")
            tab.keyboard.type(name)
            tab.keyboard.press("Enter")
            tab.locator(".card.current").focus()
    for digit in "12":
        tab.keyboard.press(digit)
    expect(tab.locator("html")).to_have_attribute("data-saved", str(saved))
    before = nursery.output.read_text()
    nursery.kill()
    nursery.gone()
    tab.locator(".card.current").focus()
    tab.keyboard.press("1")
    expect(tab.locator("#banner")).to_contain_text(re.compile("clicks? (is|are) not saved yet"))
    again = open_tab(nursery.start())
    labelled = len(before.splitlines()) - 1
    expect(again.locator("#counts")).to_contain_text(f"{labelled} of {ITEMS} labelled")
    assert labelled >= 2
    assert nursery.output.read_text() == before
    nursery.kill()
    nursery.gone()

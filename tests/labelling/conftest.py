"""Small piles on the table, and a page that is served from this process."""

from __future__ import annotations

import http.client
import json
import re
import uuid

import pytest

from likelyshot import label
from likelyshot.labelling.server import Server
from painted import ENCODER, paint_pile


@pytest.fixture
def place(tmp_path):
    """A folder with a pile of 30 images."""
    paint_pile(tmp_path / "pile")
    return tmp_path


@pytest.fixture
def desk_of():
    """A function that opens the desk of a pile; all are closed at the end."""
    opened = []

    def open_one(pile, **settings):
        usual = {"encoder": ENCODER, "cache": None, "output": pile.parent / "labels.csv", "page": False}
        opened.append(label(pile, **{**usual, **settings}).desk)
        return opened[-1]

    yield open_one
    for desk in opened:
        if not desk._stopped:
            desk.stop()


class Client:
    """Sends requests as they are, without any help of a browser."""

    def __init__(self, server: Server) -> None:
        self.server, self.clicks = server, 0

    def send(self, method="GET", path="", body=None, token=None, headers=None, raw_path=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        target = raw_path if raw_path is not None else f"/{self.server.token if token is None else token}/{path}"
        given = {"Host": f"127.0.0.1:{self.server.port}"}
        if body is not None:
            given["Content-Type"] = "application/json"
        given.update(headers or {})
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            for key, value in given.items():
                if value is not None:
                    connection.putheader(key, value)
            if method == "POST":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data if method == "POST" else None)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, _, data = self.send(path=path)
        assert status == 200, data
        return json.loads(data)

    def act(self, **action):
        self.clicks += 1
        status, _, data = self.send("POST", "act", {"click": f"test {self.clicks}", **action})
        return status, json.loads(data)


@pytest.fixture
def serve(desk_of):
    """A function that serves a pile and gives a client."""
    servers = []

    def start(pile, **settings):
        server = Server(desk_of(pile, **settings))
        server.start()
        servers.append(server)
        return Client(server)

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A client of one page for all tests of a module that change nothing."""
    place = tmp_path_factory.mktemp("shared")
    paint_pile(place / "pile")
    opened = label(place / "pile", encoder=ENCODER, cache=None, output=place / "labels.csv", page=False)
    server = Server(opened.desk)
    server.start()
    yield Client(server)
    server.stop()


@pytest.fixture
def fresh(shared):
    """A function that takes back all clicks on the page that tests of a module share, and gives its client."""

    def start(classes=()):
        desk = shared.server.desk
        while desk.labels.can_undo:
            desk.undo(str(uuid.uuid4()))
        for name in classes:
            desk.add_class(str(uuid.uuid4()), name)
        for kept in (desk._shown, desk._checked, desk.labels.history, desk.labels.guesses):
            kept.clear()
        desk.screens = desk._later = 0
        return shared

    return start


@pytest.fixture(scope="module")
def windows(chromium):
    """A window as wide as a desktop, and one of a phone, each opened once."""
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)  # a busy machine may take its time
    opened = {}

    def window(width):
        if width not in opened:
            small = width < 500
            size = {"width": width, "height": 900}
            opened[width] = chromium.new_context(viewport=size, is_mobile=small, has_touch=small, color_scheme="light")
            opened[width].set_default_timeout(60_000)
        return opened[width]

    yield window
    for context in opened.values():
        context.close()


@pytest.fixture
def open_tab(windows):
    """A function that opens an address and waits for the first screen. Errors and dialogs fail the test."""
    complaints, tabs = [], []

    def open_one(address, width=1200):
        tab = windows(width).new_page()
        tabs.append(tab)
        tab.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        tab.on("dialog", lambda found: (complaints.append(f"dialog: {found.message}"), found.dismiss()))
        tab.on("console", lambda m: complaints.append(m.text) if "Content Security Policy" in m.text else None)
        tab.on(
            "request",
            lambda r: complaints.append(f"request: {r.url}") if not r.url.startswith("http://127.0.0.1:") else None,
        )
        tab.goto(address)
        wait_screen(tab, 1)
        return tab

    yield open_one
    for tab in tabs:
        wait_screen(tab, 1)  # what it asked for last would count as shown in the next test
        tab.close()
    assert complaints == []


def wait_screen(tab, least):
    """Wait until a page shows a screen of at least this number."""
    from playwright.sync_api import expect

    expect(tab.locator("html")).to_have_attribute("data-screen", re.compile(f"^[{least}-9]$"))

"""Small piles on the table, and a page that is served from this process."""

from __future__ import annotations

import http.client
import json

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

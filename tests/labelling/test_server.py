"""The page answers the person who has its address, and nobody else; and it serves nothing but the pile."""

from __future__ import annotations

import io
import json
import os
import socket

import numpy as np
import pytest
from PIL import Image

from likelyshot.errors import InputError
from likelyshot.labelling import server as server_module
from likelyshot.labelling.server import listen
from painted import paint

NASTY = "<img src=x onerror=alert(1)>.png"


def test_the_page_and_its_files_come_from_the_package(shared):
    client = shared
    for path, kind, part in (
        ("", "text/html", b"<!DOCTYPE html>"),
        ("page/page.js", "text/javascript", b"addEventListener"),
        ("page/page.css", "text/css", b"prefers-color-scheme: dark"),
    ):
        status, headers, data = client.send(path=path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert part in data
        assert b"http://" not in data.replace(b"http://www.w3.org/2000/svg", b"")  # nothing from anywhere else
        assert b"https://" not in data
    assert client.send(path="page/server.py")[0] == 404


def test_every_answer_carries_the_policy(shared):
    client = shared
    for found in (
        client.send(),
        client.send(token="wrong"),
        client.send(path="picture/0/small"),
        client.send(path="x"),
    ):
        policy = found[1]["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found[1]["referrer-policy"] == "no-referrer"
        assert found[1]["x-content-type-options"] == "nosniff"
        assert "server" not in found[1]


@pytest.mark.parametrize("token", ["", "wrong", "x" * 32, "%00", "..", "tökén".encode().hex()])
def test_without_the_token_nothing_is_answered(shared, token):
    client = shared
    for path in ("", "state", "screen", "picture/0/small", "page/page.js"):
        status, _, data = client.send(path=path, token=token)
        assert status == 403
        assert b"use the one that likelyshot label printed" in data
    status, _, _ = client.send("POST", "act", {"click": "evil", "do": "class", "name": "evil"}, token=token)
    assert status == 403
    assert client.server.desk.labels.classes == []


def test_tokens_are_long_and_differ(serve, place, tmp_path):
    one = serve(place / "pile")
    paint(tmp_path / "other" / "1.png", "red", 1)
    other = serve(tmp_path / "other", output=tmp_path / "other.csv")
    assert len(one.server.token) >= 32
    assert one.server.token != other.server.token


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}", "", None]
)
def test_names_of_other_sites_that_lead_here_are_refused(shared, host):
    client = shared
    given = None if host is None else host.format(port=client.server.port)
    status, _, data = client.send(path="state", headers={"Host": given})
    assert status in (400, 403)
    assert b"classes" not in data


def test_localhost_is_the_same_machine(shared):
    client = shared
    assert client.send(headers={"Host": f"localhost:{client.server.port}"})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data"},
    ],
)
def test_forms_and_scripts_of_other_sites_change_nothing(serve, place, headers):
    client = serve(place / "pile")
    headers = {key: value.format(port=client.server.port) for key, value in headers.items()}
    action = {"click": "evil", "do": "class", "name": "evil"}
    assert client.send("POST", "act", action, headers=headers)[0] == 403
    assert client.server.desk.labels.classes == []
    own = {"Origin": f"http://127.0.0.1:{client.server.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.send("POST", "act", action, headers=own)[0] == 200
    assert client.server.desk.labels.classes == ["evil"]


def test_no_path_leads_out_of_the_pile(shared):
    place = shared.server.desk.folder
    (place / "secret.png").write_bytes((place / "pile" / "red 0.png").read_bytes())
    client = shared
    token = client.server.token
    tried = [
        "picture/../../secret.png",
        "picture/%2e%2e/secret.png",
        "picture/..%2fsecret.png/small",
        "picture/0/../../../../etc/passwd",
        "picture/0/%2e%2e%2f%2e%2e%2fsecret.png",
        "picture//etc/passwd",
        "picture/%2fetc%2fpasswd/small",
        f"picture/{place}/secret.png/small",
        "picture/-1/small",
        "picture/30/small",
        "picture/99999999999999999999999/small",
        "picture/0x1/small",
        "picture/0/huge",
        "page/../server.py",
        "page/%2e%2e/server.py",
        "page/..%2fserver.py",
        "page//etc/passwd",
        "../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
    ]
    for path in tried:
        status, _, data = client.send(raw_path=f"/{token}/{path}")
        assert status in (400, 403, 404), path
        assert b"root:" not in data, path
        assert not data.startswith(b"\xff\xd8"), path
    assert client.send(path="picture/0/small")[2].startswith(b"\xff\xd8")


def test_a_file_that_becomes_a_link_to_elsewhere_is_not_served(serve, place):
    outside = paint(place / "outside.png", "red", 7)
    client = serve(place / "pile")
    number = client.server.desk.things.numbers["blue 0.png"]
    assert client.send(path=f"picture/{number}/small")[0] == 200
    (place / "pile" / "blue 0.png").unlink()
    (place / "pile" / "blue 0.png").symlink_to(outside)
    status, _, data = client.send(path=f"picture/{number}/large")
    assert (status, data) == (404, b"outside the folder")
    os.rename(place / "pile", place / "elsewhere")  # noqa: PTH104
    (place / "pile").symlink_to(place / "elsewhere")
    assert client.send(path=f"picture/{number}/small")[0] == 404


def test_links_that_leave_the_pile_are_no_items(serve, place):
    (place / "pile" / "link.png").symlink_to(paint(place / "outside.png", "red", 7))
    client = serve(place / "pile")
    assert "link.png" not in client.server.desk.things.numbers
    assert any("link leaves the folder" in note for note in client.get("about")["problems"])


def test_files_that_vanish_or_break_say_so_and_their_labels_stay(serve, place):
    client = serve(place / "pile", classes=["x"])
    numbers = client.server.desk.things.numbers
    (place / "pile" / "red 1.png").unlink()
    (place / "pile" / "red 2.png").write_bytes(b"")
    (place / "pile" / "red 3.png").write_bytes(b"\x89PNG nonsense")
    for name, why in (("red 1.png", b"missing file"), ("red 2.png", b"empty file"), ("red 3.png", b"damaged image")):
        status, _, data = client.send(path=f"picture/{numbers[name]}/small")
        assert (status, data) == (404, why)
    assert client.act(do="set", changes=[[numbers["red 1.png"], "label", "x"]])[0] == 200
    assert "pile/red 1.png,x" in (place / "labels.csv").read_text()


def test_thumbnails_are_upright_small_and_made_once(serve, tmp_path):
    (tmp_path / "pile").mkdir()
    image = Image.fromarray(np.full((300, 900, 3), 120, np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(tmp_path / "pile" / "turned.jpg", exif=exif)
    client = serve(tmp_path / "pile")
    for size, shape in (("small", (80, 240)), ("large", (300, 900))):
        data = client.send(path=f"picture/0/{size}")[2]
        assert Image.open(io.BytesIO(data)).size == shape
    assert client.send(path="picture/0/small")[1]["cache-control"].startswith("private")


def test_hostile_names_are_text_in_the_answers(serve, tmp_path):
    paint(tmp_path / "pile" / NASTY, "red", 1)
    paint(tmp_path / "pile" / "ok.png", "blue", 2)
    client = serve(tmp_path / "pile", classes=["</script><script>alert(1)</script>"])
    _, headers, data = client.send(path="screen")
    assert headers["content-type"] == "application/json"
    assert NASTY in [card["name"].split("/")[-1] for card in json.loads(data)["sections"][0]["cards"]]
    assert b"alert(" not in client.send()[2]  # the page itself holds no name


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"do":"fly","click":"x"}',
        b'{"do":"set","click":"x"}',
        b'{"do":"set","click":"x","changes":[["a","label","b"]]}',
        b'{"do":"set","click":"x","changes":[[0,"own","b"]]}',
        b'{"do":"set","click":"x","changes":[[0,"label","unknown"]]}',
        b'{"do":"set","click":"x","changes":[[30,"skip",""]]}',
        b'{"do":"set","click":"x","changes":[[-1,"skip",""]]}',
        b'{"do":"class","click":"x","name":""}',
        b'{"do":"class","click":"","name":"y"}',
        b'{"do":"undo","click":"x","more":1}',
        b"[" * 100_000,
        b'{"do":"undo","click":"' + b"x" * 3_000_000 + b'"}',
        b"\xff\xfe",
    ],
)
def test_requests_without_meaning_change_nothing(shared, body):
    client = shared
    status, _, data = client.send("POST", "act", body)
    assert status == 400
    assert json.loads(data)["error"]
    assert (client.server.desk.labels.version, client.server.desk.labels.values) == (0, {})


@pytest.mark.parametrize("path", ["state?items=x", "state?items=-1", "browse?start=a", "browse?count=1e9"])
def test_queries_without_meaning_are_refused(shared, path):
    assert shared.send(path=path)[0] == 400


def test_a_full_disk_is_a_sentence(serve, place, monkeypatch):
    client = serve(place / "pile", classes=["x"])
    real = os.fsync

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("likelyshot.labelling.journal.os.fsync", full)
    status, answer = client.act(do="set", changes=[[0, "label", "x"]])
    assert status == 400
    assert "not saved (No space left on device): free some space, and click again" in answer["error"]
    monkeypatch.setattr("likelyshot.labelling.journal.os.fsync", real)
    status, answer = client.act(do="set", changes=[[0, "label", "x"]])
    assert (status, answer["labelled"]) == (200, 1)


def test_only_the_loopback_address_listens(shared):
    client = shared
    assert client.server._socket.getsockname()[0] == "127.0.0.1"
    assert server_module.HOST == "127.0.0.1"
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", client.server.port))


def test_a_port_in_use_is_refused_with_a_sentence():
    with listen() as taken, pytest.raises(InputError, match=r"cannot use port \d+ .*: choose another"):
        listen(taken.getsockname()[1])
    with pytest.raises(InputError, match="from 0 to 65535"):
        listen(70000)

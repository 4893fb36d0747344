from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from likelyshot.data.datasets.sources import Archive, Folder, open_source
from likelyshot.data.images import SUFFIXES, ImageError, read_image
from likelyshot.errors import InputError


def png(value=0):
    file = io.BytesIO()
    Image.new("L", (3, 3), value).save(file, "PNG")
    return file.getvalue()


def archive(path, contents, **options):
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, data in contents.items():
            file.writestr(name, data)
    return Archive(path)


@pytest.mark.parametrize("name", ["../evil/a.png", "owl/../../a.png", "/etc/a.png"])
def test_names_that_leave_the_archive_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="stay in the archive"):
        archive(tmp_path / "a.zip", {"owl/a.png": png(), name: png()}).names()


def test_what_macos_adds_is_passed_over(tmp_path):
    names = archive(tmp_path / "a.zip", {"owl/a.png": png(), "__MACOSX/owl/a.png": b"", "owl/.DS_Store": b""}).names()
    assert names == ["owl/a.png"]


def test_a_name_twice_counts_once(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr("owl/a.png", png())
        file.writestr("owl/a.png", png())
    assert Archive(tmp_path / "a.zip").names() == ["owl/a.png"]


def test_a_password_is_refused(tmp_path):
    archive(tmp_path / "a.zip", {"owl/a.png": png()})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError, match="without a password"):
        Archive(tmp_path / "a.zip").names()


@pytest.mark.parametrize("data", [b"", b"no archive", png()])
def test_a_file_that_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(InputError, match="cannot read the archive"):
        open_source(tmp_path / "a.zip").names()


def test_a_truncated_archive_is_refused(tmp_path):
    archive(tmp_path / "a.zip", {f"owl/{i}.png": png(i) for i in range(20)})
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="cannot read the archive"):
        open_source(tmp_path / "a.zip").names()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_file_is_an_error_of_that_file(tmp_path, method):
    noise = bytes(range(256)) * 20
    source = archive(tmp_path / "a.zip", {"owl/a.png": noise, "owl/b.png": png()}, compression=method)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[60] ^= 255
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(ImageError, match=r"owl/a\.png") as caught:
        source.read("owl/a.png")
    assert caught.value.kind == "damaged in the archive"
    assert source.read("owl/b.png") == png()
    with pytest.raises(ImageError, match="missing file"):
        source.read("owl/c.png")


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    source = archive(tmp_path / "a.zip", {"owl/a.png": b"\0" * 10_000}, compression=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr("likelyshot.data.datasets.sources.MAX_BYTES", 9_999)
    with pytest.raises(ImageError, match="too large"):
        source.read("owl/a.png")


def test_threads_share_an_archive(tmp_path):
    contents = {f"owl/{i}.png": os.urandom(3000) + bytes(i) for i in range(50)}
    source = archive(tmp_path / "a.zip", contents, compression=zipfile.ZIP_DEFLATED)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(source.read, list(contents) * 10))
    assert read == list(contents.values()) * 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forked_processes_do_not_disturb_each_other(tmp_path):
    contents = {f"owl/{i}.png": os.urandom(3000) for i in range(200)}
    source = archive(tmp_path / "a.zip", contents)
    source.read("owl/0.png")  # opened before the fork
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                os._exit(0 if all(source.read(name) == data for name, data in contents.items()) else 1)
            children.append(child)
    assert all(source.read(name) == data for name, data in contents.items())
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_another_process_opens_its_own_file(tmp_path, monkeypatch):
    source, opened = archive(tmp_path / "a.zip", {"owl/a.png": png()}), []

    class Counted(zipfile.ZipFile):
        def __init__(self, *args):
            opened.append(os.getpid())
            super().__init__(*args)

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    for process in (1, 1, 2, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        source.read("owl/a.png")
    assert opened == [1, 2]


def test_sources_can_be_sent_to_processes(tmp_path):
    source = archive(tmp_path / "a.zip", {"owl/a.png": png()})
    source.names()
    assert pickle.loads(pickle.dumps(source)).read("owl/a.png") == png()
    (tmp_path / "b.png").write_bytes(png(1))
    assert pickle.loads(pickle.dumps(Folder(tmp_path))).read("b.png") == png(1)


def test_links_that_lead_out_are_refused(tmp_path):
    (tmp_path / "data" / "owl").mkdir(parents=True)
    (tmp_path / "outside.png").write_bytes(png())
    (tmp_path / "data" / "owl" / "a.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(InputError, match=r"1 that cannot be followed \(link leaves the folder"):
        Folder(tmp_path / "data").names()


def test_photographs_of_telephones_are_listed_and_unreadable_without_their_package(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "b.heic").write_bytes(b"\0\0\0\x18ftypheic")
    assert Folder(tmp_path).names() == ["a.png", "b.heic"]
    if ".heic" not in SUFFIXES:
        with pytest.raises(ImageError, match="HEIC image: pip install"):
            read_image(Folder(tmp_path).read("b.heic"), "b.heic")

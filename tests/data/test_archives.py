"""Images in archives against the files that were packed."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile

import pytest

from likelyshot.data.archives import list_archive, read_member
from likelyshot.data.images import ImageError
from likelyshot.errors import InputError

FILES = {"b/2.png": b"two", "a/1.jpg": b"one", "notes.md": b"no", "b/.hidden.png": b"no", "empty.png": b""}


def pack(path, files=FILES, mode="w"):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(path, mode) as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_images_are_listed_and_read_in_place(tmp_path, kind):
    path = pack(tmp_path / f"a{kind}")
    members, problems = list_archive(path)
    assert [member.name for member in members] == [f"{path}/{name}" for name in ("a/1.jpg", "b/2.png", "empty.png")]
    assert [(problem.name, problem.kind) for problem in problems] == [(f"{path}/notes.md", "unsupported file")]
    assert [read_member(pickle.loads(pickle.dumps(member))) for member in members[:2]] == [b"one", b"two"]
    with pytest.raises(ImageError, match="empty file"):
        read_member(members[2])


def test_a_name_that_is_twice_in_an_archive_is_taken_once(tmp_path):
    path = tmp_path / "a.tar"
    pack(path, {"1.png": b"first"})
    with tarfile.open(path, "a") as archive:
        entry = tarfile.TarInfo("1.png")
        archive.addfile(entry)
    members, problems = list_archive(path)
    assert [read_member(member) for member in members] == [b"first"]
    assert [problem.kind for problem in problems] == ["twice in the archive"]


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no")
    pack(tmp_path / "b.tar", mode="w:gz")
    for name in ("a.zip", "b.tar", "c.tar"):
        with pytest.raises(InputError, match=rf"cannot read the archive .*{name}.*without compression"):
            list_archive(tmp_path / name)


def test_an_archive_that_was_cut_is_told(tmp_path):
    members, _ = list_archive(pack(tmp_path / "a.tar"))
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:513])
    with pytest.raises(ImageError, match="damaged in the archive"):
        read_member(members[0])

from __future__ import annotations

import gc
import hashlib
import io
import os
import random
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from likelyshot.data.images import ImageError, find_images
from likelyshot.data.items import Item, Problem
from likelyshot.encoders import embed as cache_module
from likelyshot.encoders.embed import Cache, default_cache, embed
from likelyshot.encoders.pretrained import callable_encoder
from likelyshot.errors import InputError
from likelyshot.machine import cores
from processes import Child

DIGEST = "ab" * 32


class Counting:
    """Mean colour and size, counting what it is asked to encode."""

    name, digest, kind, dim, signed, batch_size = "colour", DIGEST, "image", 5, False, 4

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.prepared = 0
        self.lock = threading.Lock()

    def prepare(self, image):
        with self.lock:
            self.prepared += 1
        return [*np.asarray(image, np.float64).mean((0, 1)), *image.size]

    def encode(self, batch):
        self.batches.append(len(batch))
        return np.array(batch, np.float32)


def png(seed: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4 + seed % 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def colours(path: Path) -> list[float]:
    image = np.asarray(Image.open(path).convert("RGB"), np.float64)
    return [*image.mean((0, 1)), image.shape[1], image.shape[0]]


@pytest.fixture
def items(tmp_path):
    folder = tmp_path / "pile"
    folder.mkdir()
    for i in range(11):
        (folder / f"{i:02}.png").write_bytes(png(i))
    return [Item(path.name, None, path) for path in sorted(folder.iterdir())]


def expected(items) -> np.ndarray:
    return np.array([colours(item.path) for item in items], np.float32)


def test_vectors_are_those_of_the_images_in_order(items, monkeypatch):
    for threads in (1, 2, 5):
        monkeypatch.setattr("likelyshot.machine.cores", lambda count=threads: count)
        encoder = Counting()
        found = embed(items, encoder, cache=None)
        assert found.vectors.dtype == np.float32
        assert np.array_equal(found.vectors, expected(items))
        assert found.positions.tolist() == list(range(11))
        assert [row.tobytes() for row in found.digests] == [hashlib.sha256(i.path.read_bytes()).digest() for i in items]
        assert (found.problems, found.encoded, encoder.batches) == ([], 11, [4, 4, 3])


def test_a_second_run_encodes_nothing(items, tmp_path):
    first = embed(items, Counting(), cache=tmp_path / "cache")
    encoder = Counting()
    steps = []
    again = embed(items[::-1], encoder, cache=tmp_path / "cache", progress=steps.append)
    assert (again.encoded, encoder.batches, encoder.prepared, sum(steps)) == (0, [], 0, 11)
    assert np.array_equal(again.vectors, first.vectors[::-1])
    items[3].path.write_bytes(png(99))
    assert embed(items, encoder, cache=tmp_path / "cache").encoded == 1
    renamed = [Item("x", "label", item.path) for item in items]
    assert embed(renamed, encoder, cache=tmp_path / "cache").encoded == 0
    encoder.digest = "cd" * 32  # other weights
    assert embed(items, encoder, cache=tmp_path / "cache").encoded == 11


def test_floats_are_exact(tmp_path):
    values = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32) * 10.0 ** np.arange(-20, 15, 5)
    values = values.astype(np.float32)
    texts = [Item(str(i), text=f"{i}") for i in range(50)]
    encoder = callable_encoder(
        lambda batch: [values[int(t) if t.isdigit() else 0] for t in batch], "table", kind="text"
    )
    for encoded in (50, 0):
        found = embed(texts, encoder, cache=tmp_path)
        assert found.encoded == encoded
        assert found.vectors.tobytes() == values.tobytes()


def test_the_same_content_is_encoded_once(items):
    encoder = Counting()
    random.Random(0).shuffle(tripled := items * 3)
    found = embed(tripled, encoder, cache=None)
    assert (found.encoded, sum(encoder.batches), encoder.prepared) == (11, 11, 11)
    assert np.array_equal(found.vectors, expected(tripled))


def test_bad_files_are_left_out_and_reported(items, tmp_path):
    folder = tmp_path / "pile"
    jpeg = io.BytesIO()
    Image.effect_noise((200, 200), 60).save(jpeg, "JPEG")
    bad = {
        "empty.jpg": b"",
        "cut,\n🐦.jpg": jpeg.getvalue()[:5000],
        "=text.png": b"hello",
        "again.png": b"hello",
        "bomb.png": png(0)[:16] + (2**30).to_bytes(4, "big") * 2 + png(0)[24:],
    }
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    more = [Item(name, None, folder / name) for name in bad]
    more += [Item("gone", None, folder / "gone.png"), Item("folder", None, folder)]
    mixed = [item for pair in zip(more, items, strict=False) for item in pair]
    steps = []
    for _ in range(2):  # what is wrong stays wrong with a cache
        steps.clear()
        found = embed(mixed, Counting(), cache=tmp_path / "cache", progress=steps.append)
        assert found.positions.tolist() == list(range(1, 14, 2))
        assert np.array_equal(found.vectors, expected(items[:7]))
        kinds = {problem.name: problem.kind for problem in found.problems}
        assert kinds.pop("bomb.png") in ("too large", "damaged image")
        assert kinds == {
            "empty.jpg": "empty file",
            "cut,\n🐦.jpg": "truncated image",
            "=text.png": "not an image",
            "again.png": "not an image",
            "gone": "missing file",
            "folder": "not a regular file",
        }
        assert sum(steps) == len(mixed)


def test_images_that_are_no_files(items, tmp_path):
    stored = {item.name: item.path.read_bytes() for item in items}
    del stored["03.png"]

    def content(item):
        if item.name not in stored:
            raise ImageError("missing file", name=item.name)
        return stored[item.name]

    named = [Item(item.name) for item in items]
    for encoded in (10, 0):
        found = embed(named, Counting(), cache=tmp_path / "cache", content=content)
        assert np.array_equal(found.vectors, expected(items[:3] + items[4:]))
        assert found.problems == [Problem("03.png", "missing file")]
        assert found.encoded == encoded
    letters = callable_encoder(lambda batch: [[1]] * len(batch), "letters", kind="text")
    with pytest.raises(InputError, match=r"texts, which the encoder letters takes, but '00.png' is an image"):
        embed(named, letters, cache=None, content=content)


def test_everything_bad_or_nothing_at_all(tmp_path):
    found = embed([Item("x", None, tmp_path / "x.png")], Counting(), cache=None)
    assert (found.vectors.shape, found.positions.shape, found.digests.shape) == ((0, 5), (0,), (0, 32))
    assert embed([], Counting(), cache=None).vectors.shape == (0, 5)


def test_a_transform_that_fails_and_vectors_that_are_not_finite(items, tmp_path):
    class Odd(Counting):
        def prepare(self, image):
            if image.size[0] == 4:
                raise ZeroDivisionError("division by zero")
            return super().prepare(image)

        def encode(self, batch):
            rows = super().encode(batch)
            rows[rows[:, 3] == 5, 0] = np.nan
            return rows

    for _ in range(2):
        found = embed(items, Odd(), cache=tmp_path / "cache")
        assert found.positions.tolist() == [i for i in range(11) if i % 5 > 1]
        assert found.problems[0] == Problem("00.png", "cannot be prepared", "ZeroDivisionError: division by zero")
        assert found.problems[1] == Problem("01.png", "no embedding", "NaN or infinity")


def test_texts(tmp_path):
    texts = ["one", "", "two", "one", " \n", "na\u00efve \U0001f426", "lone \ud800 surrogate"]
    encoder = callable_encoder(lambda batch: [[len(t), t.count("e")] for t in batch], "letters", kind="text")
    found = embed([Item(str(i), text=text) for i, text in enumerate(texts)], encoder, cache=tmp_path)
    assert found.vectors.tolist() == [[3, 1], [3, 0], [3, 1], [7, 1], [16, 2]]
    assert found.positions.tolist() == [0, 2, 3, 5, 6]
    assert [(problem.name, problem.kind) for problem in found.problems] == [("1", "empty text"), ("4", "empty text")]
    assert found.encoded == 4


def test_an_encoder_of_the_other_kind_is_refused(items):
    letters = callable_encoder(lambda batch: [[1]] * len(batch), "letters", kind="text")
    with pytest.raises(InputError, match=r"texts, which the encoder letters takes, but '00.png' is an image"):
        embed(items, letters, cache=None)
    with pytest.raises(InputError, match=r"expected images, .* is no image: give images, .* sentence:"):
        embed([Item("row 1", text="hello")], Counting(), cache=None)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_was_finished_survives_an_interrupt(items, tmp_path, error):
    class Stopping(Counting):
        def encode(self, batch):
            if len(self.batches) == 2:
                raise error
            return super().encode(batch)

    before = threading.active_count()
    with pytest.raises(error):
        embed(items, Stopping(), cache=tmp_path / "cache")
    assert threading.active_count() == before
    assert embed(items, Counting(), cache=tmp_path / "cache").encoded == 3


def test_reading_does_not_run_far_ahead(tmp_path):
    (tmp_path / "x.png").write_bytes(png(0))

    class Watching(Counting):
        ahead = 0

        def encode(self, batch):
            self.ahead = max(self.ahead, self.prepared - sum(self.batches))
            return super().encode(batch)

    for i in range(60):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    encoder = Watching()
    embed([Item(str(i), None, tmp_path / f"{i}.png") for i in range(60)], encoder, cache=None)
    assert encoder.ahead <= 4 + 2 * 4 + cores()


class TestCache:
    def rows(self, n, dim=3):
        rng = np.random.default_rng(n)
        return [(rng.bytes(32), rng.random(dim, dtype=np.float32)) for _ in range(n)]

    def filled(self, folder, n=200):
        cache, rows = Cache(folder, DIGEST, 3), self.rows(n)
        cache.put(rows)
        cache.close()
        return cache.path, rows

    def found(self, folder, rows, dim=3):
        cache = Cache(folder, DIGEST, dim)
        vectors = [cache.get(digest) for digest, _ in rows]
        cache.close()
        return vectors

    def test_what_is_put_is_found(self, tmp_path):
        _, rows = self.filled(tmp_path / "a" / "b")
        assert all(np.array_equal(v, row) for v, (_, row) in zip(self.found(tmp_path / "a/b", rows), rows, strict=True))
        assert self.found(tmp_path / "a/b", self.rows(3)) == [None] * 3
        assert self.found(tmp_path / "a/b", rows, dim=4) == [None] * 200  # of another length

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.booleans())
    def test_a_damaged_file_never_gives_a_wrong_vector(self, tmp_path, seed, length, cut):
        path, rows = self.filled(tmp_path, 60)
        data = bytearray(path.read_bytes())
        start = seed % len(data)
        if cut:
            data = data[:start]
        else:
            data[start : start + length] = np.random.default_rng(seed).bytes(len(data[start : start + length]))
        path.write_bytes(data)
        for vector, (_, row) in zip(self.found(tmp_path, rows), rows, strict=True):
            assert vector is None or np.array_equal(vector, row)
        cache = Cache(tmp_path, DIGEST, 3)
        missing = [pair for pair in rows if cache.get(pair[0]) is None]
        cache.put(missing)
        cache.close()
        for vector, (_, row) in zip(self.found(tmp_path, rows), rows, strict=True):
            assert vector is None or np.array_equal(vector, row)
        path.unlink()

    def test_rubbish_is_replaced(self, tmp_path):
        path, rows = self.filled(tmp_path)
        for rubbish in (b"this is not a data base" * 500, b"", b"x"):
            path.write_bytes(rubbish)
            assert self.found(tmp_path, rows[:2]) == [None, None]
            self.filled(tmp_path)
            assert self.found(tmp_path, rows[:1])[0] is not None

    @pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
    def test_a_folder_that_cannot_be_written_is_a_warning(self, tmp_path, items, place):
        (tmp_path / "file").write_text("")
        with pytest.warns(RuntimeWarning, match="embeddings are not cached"):
            found = embed(items, Counting(), cache=tmp_path / place)
        assert np.array_equal(found.vectors, expected(items))

    def test_a_file_that_cannot_be_written_is_read(self, tmp_path, monkeypatch):
        path, rows = self.filled(tmp_path)
        cache = Cache(tmp_path, DIGEST, 3)
        cache._connection.execute("PRAGMA query_only = 1")
        assert np.array_equal(cache.get(rows[0][0]), rows[0][1])
        monkeypatch.setattr(cache_module, "EVERY", -1.0)
        with pytest.warns(RuntimeWarning, match="not cached"):
            cache.put(self.rows(5))
        cache.put(self.rows(5))  # one warning is enough
        assert np.array_equal(cache.get(rows[1][0]), rows[1][1])
        cache.close()
        assert path.is_file()

    def test_a_full_disk_is_a_warning(self, tmp_path, items, monkeypatch):
        opened = Cache._open

        def small(self, path, again=True):
            connection = opened(self, path, again)
            connection.execute("PRAGMA max_page_count = 3")
            return connection

        monkeypatch.setattr(Cache, "_open", small)
        monkeypatch.setattr(cache_module, "EVERY", -1.0)
        wide = callable_encoder(lambda images: [[image.size[0]] * 3000 for image in images], "wide")
        with pytest.warns(RuntimeWarning, match="full"):
            found = embed(items, wide, cache=tmp_path)
        assert found.vectors[:, 0].tolist() == [4 + i % 5 for i in range(11)]

    def test_a_lock_that_is_never_released_is_a_warning(self, tmp_path, monkeypatch):
        path, rows = self.filled(tmp_path)
        monkeypatch.setattr(cache_module, "PATIENCE", 0.05)
        cache = Cache(tmp_path, DIGEST, 3)
        other = sqlite3.connect(path)
        other.execute("BEGIN EXCLUSIVE")
        cache.put(rows)
        with pytest.warns(RuntimeWarning, match="locked"):
            cache.close()
        other.close()

    def test_writers_do_not_lose_each_others_vectors(self, tmp_path, monkeypatch):
        monkeypatch.setattr(cache_module, "EVERY", -1.0)  # every put is a transaction
        rows = self.rows(60)

        def write(part):
            cache = Cache(tmp_path, DIGEST, 3)
            for row in part:
                cache.put([row])
            cache.close()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, (rows[:30], rows[20:50], rows[40:])))
        assert all(np.array_equal(v, row) for v, (_, row) in zip(self.found(tmp_path, rows), rows, strict=True))

    @pytest.mark.processes
    def test_a_killed_process_leaves_what_it_wrote(self, tmp_path):
        script = (
            "import os, signal, sys; from pathlib import Path\n"
            "from likelyshot.encoders import embed as cache; import numpy as np\n"
            "cache.EVERY = -1.0; c = cache.Cache(Path(sys.argv[1]), 'ab' * 32, 3)\n"
            "c.put([(b'1' * 32, np.ones(3, np.float32))]); os.kill(os.getpid(), signal.SIGKILL)"
        )
        assert Child(script, str(tmp_path), folder=tmp_path).wait() == -9
        assert self.found(tmp_path, [(b"1" * 32, None)])[0].tolist() == [1, 1, 1]


def test_the_cache_of_the_user(monkeypatch, items, tmp_path):
    monkeypatch.setenv("LIKELYSHOT_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
    embed(items, Counting())
    assert [path.suffix for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [".sqlite"]
    monkeypatch.delenv("LIKELYSHOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert default_cache() == tmp_path / "xdg" / "likelyshot"


def test_a_folder_of_images_from_end_to_end(tmp_path):
    from likelyshot.encoders.pretrained import open_encoder

    for colour in ("red", "green"):
        (tmp_path / "pile" / colour).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (40 + i, 30), colour).save(tmp_path / "pile" / colour / f"{i}.jpg")
    paths, problems = find_images(tmp_path / "pile")
    encoder = open_encoder()
    items = [Item(os.fspath(path), path.parent.name, path) for path in paths]
    found = embed(items, encoder, cache=tmp_path / "cache")
    assert problems == []
    assert found.vectors.shape == (10, 1280)
    alone = embed(items[7:8], encoder, cache=None)
    np.testing.assert_allclose(alone.vectors[0], found.vectors[7], atol=1e-5)
    assert embed(items, encoder, cache=tmp_path / "cache").encoded == 0


@pytest.mark.parametrize("least", [0, 2**28])
def test_vectors_on_disk_are_those_in_memory(tmp_path, monkeypatch, least):
    monkeypatch.setattr("likelyshot.encoders.embed.IN_MEMORY", least)
    texts = ["d", "", "a", "bb", "a", " ", "ccc", "d", "bb"]
    encoder = callable_encoder(lambda words: [[ord(word[0]), len(word)] for word in words], "first", kind="text")
    found = embed([Item(str(i), text=text) for i, text in enumerate(texts)], encoder, cache=tmp_path)
    assert isinstance(found.vectors, np.ndarray) == (least > 0)
    assert found.vectors[:].tolist() == [[ord(text[0]), len(text)] for text in texts if text.strip()]
    assert found.positions.tolist() == [0, 2, 3, 4, 6, 7, 8]
    del found
    gc.collect()
    assert not [file for file in tmp_path.rglob("*") if "partial" in file.name]

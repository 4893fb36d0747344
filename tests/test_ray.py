"""Blocks of work on a real Ray cluster of two nodes: the same bits, whatever is lost on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from likelyshot import cli
from likelyshot.data.features import Features
from likelyshot.data.shards import Shards, open_shard
from likelyshot.data.tasks import Balanced, Dirichlet, sample_tasks
from likelyshot.encoders.extract import extract
from likelyshot.errors import InputError
from likelyshot.evaluation import reproduce
from likelyshot.evaluation.evaluate import evaluate
from likelyshot.machine import map_blocks
from likelyshot.methods import METHODS
from likelyshot.own_data import answer_folder, rows
from likelyshot.own_data.answer_folder import merge_answers
from likelyshot.own_data.model import Model
from likelyshot.own_data.pipeline import classify
from likelyshot.own_data.scoring import transductive_prototypes
from likelyshot.workers import QUIET, Ray, on_ray

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'likelyshot[ray]'")
STORE = 80 * 2**20  # bytes of the object store of a node, nearly the least that Ray takes


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes of one core each, and the address of its head."""
    from ray.cluster_utils import Cluster

    os.environ |= {**QUIET, "RAY_worker_niceness": "0"}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
    )
    cluster.add_node(num_cpus=1, object_store_memory=STORE)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def driver(nodes):
    """Join once: workers take seconds to start."""
    joined = Ray(nodes.address)
    assert joined.workers == 2
    yield
    joined.close()


@pytest.fixture
def joined(driver):
    with on_ray() as cluster:
        yield cluster


@pytest.fixture
def pile(tmp_path, monkeypatch):
    """Labelled examples, and a pile of 3,000 rows in two files, in blocks of 50 rows."""
    monkeypatch.setattr(rows, "CACHE_BYTES", 4 * 16 * 50)
    monkeypatch.setattr(answer_folder, "FILE_ROWS", 500)
    draw = np.random.default_rng(0)
    labels = np.arange(3_015) % 3
    vectors = (draw.standard_exponential((3_015, 16)) * (0.2 + np.eye(3, 16)[labels])).astype(np.float16)
    np.savez(tmp_path / "few.npz", features=vectors[:15], labels=labels[:15])
    (tmp_path / "pile").mkdir()
    np.save(tmp_path / "pile" / "a.npy", vectors[15:1_300])
    np.save(tmp_path / "pile" / "b.npy", vectors[1_300:])
    return tmp_path


def prototypes(place, vectors=None):
    few = np.load(place / "few.npz")
    found = [open_shard(path) for path in sorted((place / "pile").iterdir())]
    given = torch.from_numpy(few["features"]).float(), torch.from_numpy(few["labels"])
    return transductive_prototypes(*given, Shards(found) if vectors is None else vectors, n_ways=3, iterations=5)


def test_passes_and_answers_have_the_same_bits(pile, driver):
    wanted = prototypes(pile)
    classify(pile / "few.npz", pile / "pile").save(pile / "one.csv")
    with on_ray():
        assert torch.equal(prototypes(pile), wanted)
        classify(pile / "few.npz", pile / "pile").save(pile / "answers")
    merge_answers(pile / "answers", pile / "all.csv")
    assert (pile / "all.csv").read_bytes() == (pile / "one.csv").read_bytes()


def test_evaluations_have_the_same_bits(driver, monkeypatch):
    monkeypatch.setattr("likelyshot.evaluation.evaluate.TOGETHER", 30)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 10
    vectors = torch.empty(200, 12).exponential_(generator=generator) + torch.eye(10, 12)[labels]
    features = Features.from_arrays(vectors, labels)
    tasks = sample_tasks(labels, n_tasks=100, ways=3, shots=2, query=Dirichlet(20, 2.0), seed=0)
    one = evaluate(METHODS["mll_transductive"], features, tasks)
    steps: list[int] = []
    with on_ray():
        other = evaluate(METHODS["mll_transductive"], features, tasks, progress=steps.append)
    assert sum(steps) == 100
    np.testing.assert_array_equal(one.accuracy, other.accuracy)
    assert (one.reliability, one.confused, one.config) == (other.reliability, other.confused, other.config)


def without_times(path):
    """What a result says but for how long it took and where."""

    def kept(value):
        if isinstance(value, dict):
            return {key: kept(each) for key, each in value.items() if key not in ("seconds", "environment", "command")}
        return [kept(each) for each in value] if isinstance(value, list) else value

    return kept(json.loads(path.read_text()))


@pytest.fixture
def run(monkeypatch, tmp_path, driver):
    """Call a command twice, here and on the cluster; give the two outputs."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, suffix=""):
        for name, more in (("one", ()), ("two", ("--ray",))):
            monkeypatch.setattr(sys, "argv", ["likelyshot", *arguments, "-o", f"{name}{suffix}", *more])
            with pytest.raises(SystemExit) as stop:
                cli.main()
            assert not stop.value.code
        return tmp_path / f"one{suffix}", tmp_path / f"two{suffix}"

    return call


def test_predict_sweep_evaluate_and_reproduce_have_the_same_bits(run, pile, monkeypatch, capsys):
    Model.fit(
        **{key: np.load(pile / "few.npz")[name] for key, name in (("vectors", "features"), ("labels", "labels"))}
    ).save(pile / "model.safetensors")
    one, two = run("predict", "model.safetensors", "pile", suffix=".csv")
    assert one.read_bytes() == two.read_bytes()
    one, two = run("sweep", "few.npz", "--ways", "2", "--shots", "1", "--per-class", "2", "--tasks", "9", suffix="s")
    assert without_times(one / "sweep.json") == without_times(two / "sweep.json")
    assert not (two / "parts").exists()
    given = ("--ways", "2", "--shots", "1", "--total", "4", "--tasks", "9", "--method", "mll", "cosine")
    one, two = run("evaluate", "few.npz", *given, suffix="e")
    assert {path.name for path in one.glob("*.json")} == {path.name for path in two.glob("*.json")}
    for path in one.glob("dirichlet*.json"):
        assert without_times(path) == without_times(two / path.name)
    monkeypatch.setattr(reproduce, "LAMBDA_MAX", (40.0,))
    monkeypatch.setattr(reproduce, "protocols", lambda full: {"inductive": (Balanced(3), ("euclidean",))})
    one, two = run("reproduce", "--tasks", "9", suffix="r")
    assert without_times(one / "reproduce.json") == without_times(two / "reproduce.json")


def test_a_driver_that_is_started_again_goes_on(tmp_path, driver, monkeypatch):
    """Blocks of images that a driver has kept are not embedded by the next."""
    monkeypatch.setattr("likelyshot.encoders.blocks.BLOCK", 1)
    draw_images(tmp_path, 70)
    settings = {"encoder": "conv4_cifar_fs", "cache": None}
    pile, kept = tmp_path / "images", tmp_path / "answers" / "_vectors"
    classify(pile, pile, **settings).save(tmp_path / "one.csv")
    with on_ray():
        classify(pile, pile, keep=kept, **settings)
        blocks = sorted(kept.glob("block*"))
        blocks[1].unlink()
        before = {path: path.stat().st_mtime_ns for path in kept.glob("block*")}
        classify(pile, pile, keep=kept, **settings).save(tmp_path / "two.csv")
    assert sorted(kept.glob("block*")) == blocks
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def draw_images(folder, count):
    for number in range(count):
        path = folder / "images" / f"class {number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)


def test_extraction_has_the_same_bytes(tmp_path, driver, monkeypatch):
    monkeypatch.setattr("likelyshot.encoders.blocks.BLOCK", 1)
    draw_images(tmp_path, 80)
    settings = {"encoder": "conv4_cifar_fs", "cache": None}
    for skip in (False, True):
        extract(tmp_path / "images", tmp_path / "one.safetensors", skip_unreadable=skip, **settings)
        with on_ray():
            result = extract(tmp_path / "images", tmp_path / "other.safetensors", skip_unreadable=skip, **settings)
            again = extract(tmp_path / "images", tmp_path / "other.safetensors", skip_unreadable=skip, **settings)
        assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "other.safetensors").read_bytes()
        assert (result.computed, again.computed) == (True, False)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "one.safetensors", "other.safetensors"]
        (tmp_path / "images" / "class 0" / "broken.png").write_bytes(b"no")
    classify(tmp_path / "images", tmp_path / "images", **settings).save(tmp_path / "one.csv")
    with on_ray():
        classify(tmp_path / "images", tmp_path / "images", **settings).save(tmp_path / "other.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def _square(folder, number):
    """Square a number; the worker that first gets number 7 is killed."""
    flag = folder / "killed"
    if number == 7 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_a_killed_worker_costs_its_block_only(tmp_path, joined):
    assert list(map_blocks(_square, tmp_path, range(20))) == [number * number for number in range(20)]
    assert (tmp_path / "killed").exists()


def _slow(seconds, number):
    time.sleep(seconds)
    return number


def test_a_lost_node_costs_its_blocks_only(nodes, driver):
    extra = nodes.add_node(num_cpus=1, object_store_memory=STORE)
    with on_ray():
        found = []
        for number in map_blocks(_slow, 0.05, range(60)):
            found.append(number)
            if number == 5:
                nodes.remove_node(extra, allow_graceful=False)
    assert found == list(range(60))


def test_a_pile_larger_than_the_object_store(joined, monkeypatch):
    monkeypatch.setattr(rows, "CACHE_BYTES", 2**22)
    vectors = np.ones((6 * 2**10, 2**13), np.float32)  # 200 MB in memory, so that rows have to be sent
    vectors[-1, -1] = -1.0
    assert vectors.nbytes > 2 * STORE
    scanned = rows.scan(vectors)
    assert scanned.negative
    assert scanned.usable.all()


def test_files_that_workers_do_not_see_and_errors_of_theirs_are_sentences(pile, joined):
    found = Shards([open_shard(pile / "pile" / "a.npy")])
    (pile / "pile" / "a.npy").unlink()
    with pytest.raises(InputError, match=r"a\.npy, but .* has no such file: put it on a disk that all machines see"):
        rows.scan(found)


def test_a_cluster_elsewhere_is_joined_from_a_machine_of_it():
    ray.shutdown()
    with pytest.raises(InputError, match="run the command on a machine of it"):
        Ray("ray://127.0.0.1:10001")

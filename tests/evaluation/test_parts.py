"""Evaluations in parts against one evaluation."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

from likelyshot.data.features import Features
from likelyshot.data.files import read_container, write_container
from likelyshot.data.tasks import Balanced, Dirichlet
from likelyshot.errors import InputError
from likelyshot.evaluation import reproduce as reproduction
from likelyshot.evaluation.parts import FORM, merge_parts, run_part
from likelyshot.evaluation.run import Job, Network, Networks, run
from likelyshot.workers import Part


@pytest.fixture(scope="module")
def networks():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 12

    def features(shift):
        vectors = torch.empty(240, 16).exponential_(generator=generator) + torch.eye(12, 16)[labels] + shift
        return Features.from_arrays(vectors, labels)

    return Networks([Network(features(0.0), features(0.01))])


def jobs(networks, names, tasks=14):
    return [
        Job(name, {}, drawn, f"{drawn.shots}-shot, {name}")
        for drawn in networks.draw(tasks, 3, [1, 4], Dirichlet(12, 2.0))
        for name in names
    ]


def facts(result):
    config = json.loads(json.dumps(dict(result.config)))
    figures = [
        getattr(result, name).tolist() for name in ("accuracy", "balanced_accuracy", "macro_f1", "largest_share")
    ]
    return [result.method, figures, dict(result.reliability), list(result.confused), config]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 4 or 5 tasks."""
    monkeypatch.setattr("likelyshot.evaluation.evaluate.CACHE_BYTES", 4 * 16 * 75)


METHODS = ("euclidean", "mll_transductive", "baseline")


def test_parts_give_the_bits_of_one_run(networks, tmp_path):
    work = jobs(networks, METHODS)
    for number in (3, 1, 2):
        run_part(work, networks, Part(number, 3), tmp_path, about={"command": "evaluate"})
    merged = merge_parts(tmp_path)
    assert [facts(result) for _, result in merged.results] == [facts(result) for _, result in run(work, networks)]
    assert [label for label, _ in merged.results] == [job.label for job in work]


def test_more_parts_than_tasks(networks, tmp_path):
    work = jobs(networks, ["mll"], tasks=3)
    for number in range(1, 6):
        run_part(work, networks, Part(number, 5), tmp_path, about={})
    assert [facts(result) for _, result in merge_parts(tmp_path).results] == [facts(r) for _, r in run(work, networks)]


def test_what_is_finished_is_not_done_again_and_progress_is_whole(networks, tmp_path):
    work = jobs(networks, ["mll", "cosine"])
    steps: list[int] = []
    call = functools.partial(run_part, work, networks, Part(2, 3), tmp_path, about={}, progress=steps.append)
    assert call() == (4, 0)
    assert sum(steps) == 4 * 14 + 4 * 14  # tasks, and validation tasks for temperatures
    next((tmp_path / "parts").iterdir()).unlink()
    assert call() == (1, 3)
    assert sum(steps) == 2 * (4 * 14 + 4 * 14)


def test_a_missing_part_is_named(networks, tmp_path):
    with pytest.raises(InputError, match=r"has no such parts: check the path"):
        merge_parts(tmp_path)
    run_part(jobs(networks, ["mll"]), networks, Part(2, 3), tmp_path, about={})
    with pytest.raises(InputError, match=r"3 parts in .*parts 1, 3 of 3 are not finished: .*--part 1/3 again"):
        merge_parts(tmp_path)


@pytest.mark.parametrize("key", ["features", "query", "ways", "range"])
def test_damaged_facts_of_a_part_are_refused(networks, tmp_path, key):
    run_part(jobs(networks, ["mll"]), networks, Part(1, 1), tmp_path, about={})
    for path in (tmp_path / "parts").iterdir():
        tensors, facts = read_container(path, dict, form=FORM, what="", remedy="")
        write_container(path, tensors, facts | {"config": facts["config"] | {key: {}}}, form=FORM)
    with pytest.raises(InputError, match=rf"{key}|query"):
        merge_parts(tmp_path)


def test_jobs_that_cannot_run_are_refused_or_left_out(networks, tmp_path):
    work = jobs(networks, ["mll", "simpleshot"])
    with pytest.raises(InputError, match="mean of base features"):
        run_part(work, networks, Part(1, 1), tmp_path, about={})
    run_part(work, networks, Part(1, 1), tmp_path / "new", about={}, skip=True)
    merged = merge_parts(tmp_path / "new")
    assert [label for label, _ in merged.results] == ["1-shot, mll", "4-shot, mll"]
    assert "mean of base features" in merged.refused["1-shot, simpleshot"]


def test_reproduce_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "LAMBDA_MAX", (40.0, 60.0))
    monkeypatch.setattr(reproduction, "protocols", lambda full: {"inductive": (Balanced(15), ("mll", "cosine"))})
    monkeypatch.setattr("likelyshot.evaluation.evaluate.CACHE_BYTES", 2**21)
    whole = reproduction.reproduce(tmp_path / "whole", n_tasks=20)
    for number in (1, 2):
        reproduction.reproduce_part(tmp_path / "parts", Part(number, 2), n_tasks=20)
    known = dict(merge_parts(tmp_path / "parts").results)
    merged = reproduction.reproduce(tmp_path / "parts", n_tasks=20, known=known)
    assert merged.results.keys() == whole.results.keys()
    for cell, result in whole.results.items():
        np.testing.assert_array_equal(merged.results[cell].accuracy, result.accuracy)
        assert merged.results[cell].config["cell"] == json.loads(json.dumps(result.config["cell"]))
    again = reproduction.reproduce(tmp_path / "parts", n_tasks=20)
    assert again.reused == len(whole.results)

"""Parts of work, and what they are in job arrays. Tests with a cluster are in test_ray.py."""

from __future__ import annotations

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from likelyshot import workers
from likelyshot.errors import InputError
from likelyshot.machine import map_blocks
from likelyshot.workers import Part, Ray


@pytest.mark.parametrize(("total", "count"), [(10, 3), (2, 5), (0, 2), (7, 7)])
def test_parts_are_a_partition_in_order_and_even(total, count):
    parts = [Part(number, count).of(total) for number in range(1, count + 1)]
    assert [place for part in parts for place in part] == list(range(total))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4"}, Part(1, 4)),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "4"}, Part(1, 4)),
        (
            {
                "SLURM_ARRAY_TASK_ID": "8",
                "SLURM_ARRAY_TASK_MIN": "4",
                "SLURM_ARRAY_TASK_STEP": "2",
                "SLURM_ARRAY_TASK_COUNT": "3",
            },
            Part(3, 3),
        ),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "2"}, Part(1, 2)),
    ],
)
def test_job_arrays(variables, part):
    assert Part.parse("auto", variables) == part


@pytest.mark.parametrize(
    ("text", "variables", "words"),
    [
        ("0/4", {}, "from 1/8 to 8/8, but got '0/4'"),
        ("5/4", {}, "got '5/4'"),
        ("two", {}, "got 'two'"),
        ("auto", {}, "neither is set"),
        ("auto", {"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETIONS, but it is not set"),
        (
            "auto",
            {"SLURM_ARRAY_TASK_ID": "x", "SLURM_ARRAY_TASK_COUNT": "2"},
            "in the variable .*_ID, but got 'x'",
        ),
        ("auto", {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "3"}, "one of 3 parts, but .* say part 7"),
        ("auto", {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "2"}, "one of 2 parts, but .* say part 3"),
        ("auto", {"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "0"}, "one of 0 parts"),
    ],
)
def test_other_parts_are_refused(text, variables, words):
    with pytest.raises(InputError, match=words):
        Part.parse(text, variables)


def test_results_come_in_the_order_of_the_items():
    assert list(map_blocks(divmod, 17, range(1, 9))) == [divmod(17, n) for n in range(1, 9)]


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Ray for --ray, but it is not installed: pip install 'likelyshot\[ray\]'"):
        Ray()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "host:99999999", "host:port:x"])
def test_a_bad_address_is_told_at_once(address):
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=f"head of a Ray cluster at {address}, but nothing answers"):
        Ray(address)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", "but what answers there is not Ray: give HOST:PORT"),
        (b"", "but what answers there is not Ray"),
        (None, r"but nothing answers there \(timed out\)"),
    ],
)
def test_another_server_at_the_address_is_told(monkeypatch, answer, words):
    pytest.importorskip("ray")
    monkeypatch.setattr(workers, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with server.accept()[0] as opened:
                opened.recv(100)
                if answer is None:
                    opened.recv(100)  # until the other end gives up
                else:
                    opened.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(InputError, match=words):
            Ray(f"127.0.0.1:{server.getsockname()[1]}")


def test_a_ray_that_does_not_start_is_a_sentence(monkeypatch):
    def init(**settings):
        raise Exception("The current node timed out during startup.\nmore")  # as Ray does

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(InputError, match=r"expected Ray to start on this machine, but .* startup\.\): try again"):
        Ray("local")
    with pytest.raises(InputError, match=r"expected a Ray cluster at auto, but cannot join it"):
        Ray("auto")

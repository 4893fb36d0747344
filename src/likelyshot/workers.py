"""Past one machine: tasks of a Ray cluster, and which part of the work is our own.

What is mapped over blocks goes through `machine.map_blocks`: a module-level function, something that all its calls
share, and items in a fixed order. The results come in that order, with the same bits wherever they were computed.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from likelyshot import __version__
from likelyshot.errors import InputError
from likelyshot.machine import cores, keep_memory, sent_to

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

#: How often a block is tried again after the worker or the machine that had it is gone.
RETRIES = 5
#: Seconds to wait for the head of a cluster.
PATIENCE = 5.0
#: How often Ray asks an address for its cluster, a second apart, before it gives up.
TRIES = "5"
EXTRA = "pip install 'likelyshot[ray]'"
#: The first bytes of a frame of HTTP/2 with settings: three of its length, and its type.
SETTINGS = b"\0\0\0\4"
#: What a client of HTTP/2 sends first: these words, and a frame of no settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS + bytes(5)
#: The variables of a job array of Slurm: which task, the first one, by how much they differ, how many there are.
SLURM = ("ID", "MIN", "STEP", "COUNT")
#: What a Ray that we start need not do: report to its makers, hide accelerators, and keep statistics for a dashboard.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_task_events_report_interval_ms": "0",
}


@dataclass(frozen=True)
class Part:
    """One of several parts of the same work, each done by its own process, counted from 1."""

    number: int
    count: int

    def of(self, total: int) -> range:
        """Give the positions of this part; the sizes of parts differ by one at most.

        >>> [Part(number, 3).of(10) for number in (1, 2, 3)]
        [range(0, 3), range(3, 6), range(6, 10)]
        """
        return range((self.number - 1) * total // self.count, self.number * total // self.count)

    def __str__(self) -> str:
        return f"part {self.number} of {self.count}"

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> Part:
        """Read "2/8", or with "auto" the variables of a job array of Slurm or of an indexed Job of Kubernetes.

        Kubernetes tells a pod its index but not the number of pods: set JOB_COMPLETIONS to it.

        Args:
            text: I/N, or "auto".
            environment: Variables of the process.

        >>> Part.parse("2/8")
        Part(number=2, count=8)
        >>> slurm = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_COUNT": "6"}
        >>> Part.parse("auto", slurm)
        Part(number=5, count=6)
        """
        if text == "auto":
            return cls._from_variables(environment)
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        part = cls(int(match[1]), int(match[2])) if match else None
        if part is None or not 1 <= part.number <= part.count:
            raise InputError(f"expected a part like 2/8, from 1/8 to 8/8, but got {text!r}: give --part I/N")
        return part

    @classmethod
    def _from_variables(cls, environment: Mapping[str, str]) -> Part:
        if "SLURM_ARRAY_TASK_ID" in environment:
            environment = {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_STEP": "1", **environment}
            place, first, step, count = (_number(f"SLURM_ARRAY_TASK_{key}", environment) for key in SLURM)
            part = cls((place - first) // (step or 1) + 1, count)
        elif "JOB_COMPLETION_INDEX" in environment:
            place, count = (_number(name, environment) for name in ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"))
            part = cls(place + 1, count)
        else:
            raise InputError(
                "expected a job array of Slurm (SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT) or of Kubernetes "
                "(JOB_COMPLETION_INDEX and JOB_COMPLETIONS), but neither is set: give --part I/N"
            )
        if not 1 <= part.number <= part.count:
            raise InputError(
                f"expected one of {part.count} parts, but the variables of the job array say part {part.number}: "
                "number the array without gaps, or give --part I/N"
            )
        return part


def _number(name: str, environment: Mapping[str, str]) -> int:
    text = environment.get(name)
    if text is None:
        raise InputError(
            f"expected the variable {name}, but it is not set: set it to the number of parts, or give --part I/N"
        )
    if not re.fullmatch(r"\d{1,18}", text):
        raise InputError(f"expected a number in the variable {name}, but got {text[:80]!r}: give --part I/N instead")
    return int(text)


@contextlib.contextmanager
def on_ray(address: str = "local") -> Iterator[Ray]:
    """Send blocks of work to a Ray cluster.

    Everything in the `with` block that maps over blocks uses it. Workers read the files of a pile themselves, so these
    must lie at the same path on every machine. A program that has called `ray.init` itself keeps its cluster.

    Args:
        address: HOST:PORT of the head of a cluster; "auto" for the one that runs on this machine; "local" to start one
            on this machine that ends with the block.
    """
    joined = Ray(address)
    try:
        with sent_to(joined):
            yield joined
    finally:
        joined.close()


class Ray:
    """A Ray cluster: tasks of Ray Core over items, in order, tried again where a worker or a machine is lost.

    Args:
        address: As in `on_ray`.
    """

    def __init__(self, address: str = "local") -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise InputError(f"expected Ray for --ray, but it is not installed: {EXTRA}, on every machine") from None
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            self._join(address)
        self._task = ray.remote(_call).options(num_cpus=1, max_retries=RETRIES)

    def _join(self, address: str) -> None:
        if address.startswith("ray://"):
            raise InputError(f"expected HOST:PORT of a cluster, but got {address}: run the command on a machine of it")
        if address not in ("local", "auto"):
            _reach(address)
            os.environ.setdefault("RAY_gcs_server_port_wait_time_s", TRIES)
        try:
            self._ray.init(
                address=address,
                include_dashboard=False if address == "local" else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({"num_cpus": cores()} if address == "local" else {}),
            )
        except Exception as error:  # Ray raises a bare one where its own processes do not start in time
            reason = str(error).strip().split("\n")[0][:160]
            if address == "local":
                raise InputError(
                    f"expected Ray to start on this machine, but it did not ({reason}): try again when the machine is "
                    "less busy, or leave out --ray"
                ) from None
            raise InputError(
                f"expected a Ray cluster at {address}, but cannot join it ({reason}): start one with ray start --head, "
                "or give --ray alone for one on this machine"
            ) from None

    @property
    def workers(self) -> int:
        """How many blocks the cluster computes at a time: one per core of its machines."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 0)))

    def map(self, function: Callable[[S, T], R], shared: S, items: Iterable[T]) -> Generator[R, None, None]:
        """Do what `map_blocks` does, on the cluster."""
        folder = str(Path.cwd())
        sent = [self._ray.put(shared)]  # in a list: a worker fetches it once, and not for every item
        waiting: deque[Any] = deque()
        most = 2 * self.workers + 1
        try:
            for item in items:
                waiting.append(self._task.remote(sent, function, item, __version__, folder))
                if len(waiting) >= most:
                    yield self._result(waiting.popleft())
                    most = max(most, 2 * self.workers + 1)  # machines may join
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            for task in waiting if self._ray.is_initialized() else ():
                self._ray.cancel(task)

    def _result(self, task: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(task)
        except errors.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(str(error.cause)) from None
            if isinstance(error.cause, ModuleNotFoundError | AttributeError) and "likelyshot" in str(error.cause):
                raise InputError(
                    f"expected likelyshot {__version__} on every machine of the cluster, but a worker has none or "
                    f"another ({error.cause}): install it there"
                ) from None
            raise
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        ) as error:
            raise InputError(
                f"a worker was lost {RETRIES + 1} times with the same rows ({type(error).__name__}): check that "
                "workers have enough memory, and start the command again, which skips what is finished"
            ) from None

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._started:
            self._ray.shutdown()


def _reach(address: str) -> None:
    """Say within seconds that no Ray listens at an address, which Ray itself would try for minutes.

    The head of a cluster speaks HTTP/2, so that it answers a greeting with its settings.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as opened:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):  # it greets within TLS
                return
            opened.sendall(GREETING)
            answer = opened.recv(len(SETTINGS), socket.MSG_WAITALL)
    except (OSError, ValueError, OverflowError) as error:
        reason = "no port" if isinstance(error, ValueError) else getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"expected the head of a Ray cluster at {address}, but nothing answers there ({reason}): give HOST:PORT "
            "as ray start --head prints it"
        ) from None
    if answer[3:] != SETTINGS[3:]:  # after the length
        raise InputError(
            f"expected the head of a Ray cluster at {address}, but what answers there is not Ray: give HOST:PORT as "
            "ray start --head prints it"
        )


#: What the last map sent to this worker.
_received: dict[str, Any] = {}


def _call(sent: list[Any], function: Callable[[Any, Any], Any], item: Any, version: str, folder: str) -> Any:
    """Call a function in a worker, in the folder that the driver is in, since paths may be relative to it."""
    import torch

    ray: Any = importlib.import_module("ray")
    if version != __version__:
        raise InputError(
            f"expected likelyshot {version} on every machine of the cluster, but {socket.gethostname()} has "
            f"{__version__}: install the same version"
        )
    with contextlib.suppress(OSError):  # another machine may have no such folder: only what lies there is missed
        os.chdir(folder)
    torch.set_num_threads(1)
    keep_memory()
    key = sent[0].hex()
    if key not in _received:
        _received.clear()
        _received[key] = ray.get(sent[0])
    return function(_received[key], item)

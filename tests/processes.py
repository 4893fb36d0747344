"""Processes of their own for tests, forked from one that has imported torch: a new one takes seconds for that."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from pathlib import Path

PRELOADED = ["likelyshot.cli", "likelyshot.encoders.extract", "likelyshot.training.run", "lightning_fabric", "sklearn"]


class Child:
    """A process that runs code, with its own arguments, variables of the environment, output and errors.

    Args:
        code: What it runs, as `python -c` does.
        arguments: What follows in `sys.argv`.
        folder: Where its output and errors are kept.
        out: Where its output goes instead.
        variables: Variables of the environment besides ours.
    """

    def __init__(self, code: str, *arguments: str, folder: Path, out: Path | None = None, **variables: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        number = len(list(folder.glob("*.out")))
        self._files = [out or folder / f"{number}.out", folder / f"{number}.err"]
        for file in self._files:
            file.touch()
        environment = dict(os.environ) | variables
        self.process = context.Process(target=_run, args=(code, arguments, environment, *map(str, self._files)))
        self.process.start()

    def wait(self, timeout: float = 120) -> int:
        """Wait for its end, and give its exit code: that of a signal is negative."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(self.err)
        return self.process.exitcode

    @property
    def out(self) -> str:
        return self._files[0].read_text()

    @property
    def err(self) -> str:
        return self._files[1].read_text()


def pair(code: str, *arguments: str, folder: Path) -> list[Child]:
    """Start two processes as torchrun does, with the variables that it sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    common |= {"LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "OMP_NUM_THREADS": "1"}
    return [Child(code, *arguments, folder=folder, RANK=rank, LOCAL_RANK=rank, **common) for rank in "01"]


def _run(code: str, arguments: tuple[str, ...], environment: dict[str, str], out: str, err: str) -> None:
    for descriptor, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the one before takes a terminal for the file that the server has
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    import torch

    torch.set_num_threads(1)
    exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})

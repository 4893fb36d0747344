"""The command line, called in this process."""

from __future__ import annotations

import signal
import sys

import pytest

from likelyshot import cli


@pytest.fixture
def interruptible():
    """Let Ctrl-C through, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line; give exit code, standard output and standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["likelyshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            sys.exit(cli.main())
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call

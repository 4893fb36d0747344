"""A process that is killed in mid-click loses no click that it answered, and counts none twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import likelyshot

KILLS = 20
ITEMS = 200

#: Imports the labels, and not torch. For every line on its input it forks a process that does what it is told by a
#: pipe, and answers as the server does: when the click is on disk.
NURSERY = """
import json, os, sys, types
from pathlib import Path
src, output, todo, done = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, str(src))
rooms = types.ModuleType("likelyshot.labelling")
rooms.__path__ = [str(src / "likelyshot" / "labelling")]
sys.modules["likelyshot.labelling"] = rooms
from likelyshot.labelling.journal import Change
from likelyshot.labelling.labels import Labels
assert "torch" not in sys.modules
for line in sys.stdin:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print("gone", flush=True)
        continue
    labels = Labels(output, "image", ["path"], lambda key: [key], int)
    def say(more):
        values = {key: value.name for key, value in labels.values.items()}
        state = {"version": labels.version, "classes": labels.classes, "values": values, **more}
        os.write(done, json.dumps(state).encode() + b"\\n")
    say({"pid": os.getpid()})
    for order in os.fdopen(todo):
        do, click, *rest = json.loads(order)
        if do == "set":
            labels.set(click, [Change(rest[0], "label", rest[1])])
        else:
            getattr(labels, do)(click, *rest)
        say({"click": click})
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_twenty_times_in_mid_click_nothing_is_lost_or_doubled(tmp_path):
    todo, tell = os.pipe()
    answers, done = os.pipe()
    output = tmp_path / "labels.csv"
    src = os.fspath(Path(likelyshot.__file__).parent.parent)
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY, src, os.fspath(output), str(todo), str(done)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=(todo, done),
    )
    rest = b""

    def hear():
        """Wait for an answer; None if the process is gone without one."""
        nonlocal rest
        while b"\n" not in rest:
            ready, _, _ = select.select([answers, nursery.stdout], [], [], 60)
            if answers in ready:
                rest += os.read(answers, 1 << 20)
            elif nursery.stdout in ready:
                assert nursery.stdout.readline() == "gone\n"
                rest = b""
                return None
            else:
                raise TimeoutError
        line, rest = rest.split(b"\n", 1)
        return json.loads(line)

    chance = random.Random(0)
    classes: list[str] = []  # what must be on disk: everything that was answered
    values: dict[str, str] = {}
    versions, number, again = 0, 0, None

    def expect(order):
        """Say what an order must have done."""
        nonlocal versions
        versions += 1
        match order:
            case ["add_class", _, name]:
                classes.append(name)
            case ["rename_class", _, old, name]:
                classes[classes.index(old)] = name
                values.update({key: name for key, value in values.items() if value == old})
            case ["set", _, item, name]:
                values[item] = name

    def next_order():
        nonlocal number
        number += 1
        click = f"click {number}"
        if len(classes) < 2:
            return ["add_class", click, "ab"[len(classes)]]
        if number % 7 == 0:
            return ["rename_class", click, classes[0], f"a{number}"]
        return ["set", click, str(number % ITEMS), classes[number % 2]]

    try:
        for turn in range(KILLS + 1):
            nursery.stdin.write("go\n")
            nursery.stdin.flush()
            state = hear()
            if again is not None:  # the page sends it again, as it does not know whether it arrived
                os.write(tell, json.dumps(again).encode() + b"\n")
                expect(again)
                begun, state = state, hear()
                assert state["version"] - begun["version"] in (0, 1)
                state["pid"] = begun["pid"]
            assert (state["version"], state["classes"], state["values"]) == (versions, classes, values)
            if turn == KILLS:
                break
            killer = threading.Timer(chance.uniform(0.0, 0.04), os.kill, (state["pid"], signal.SIGKILL))
            killer.start()
            while True:
                again = next_order()
                os.write(tell, json.dumps(again).encode() + b"\n")
                if (state := hear()) is None:
                    break
                expect(again)
                assert (state["version"], state["values"]) == (versions, values)
            killer.join()
            while select.select([todo], [], [], 0)[0]:  # what the process did not read before it was killed
                os.read(todo, 1 << 16)
        lines = Path(f"{output}.journal").read_bytes().split(b"\n")
        ids = [json.loads(line)["id"] for line in lines[1:-1]]
        assert ids == [f"click {place}" for place in range(1, number + 1)]
        assert number > KILLS
        rows = output.read_text().splitlines()[1:]
        assert dict(row.split(",") for row in rows) == values
    finally:
        nursery.stdin.close()
        with contextlib.suppress(OSError, TypeError, KeyError):
            os.kill(state["pid"], signal.SIGKILL)
        nursery.wait(10)
        nursery.stdout.close()
        for pipe in (todo, tell, answers, done):
            os.close(pipe)

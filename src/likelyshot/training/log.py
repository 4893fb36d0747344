"""The log of a run: a line of JSON for every event, and TensorBoard's scalars where that is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec

from likelyshot.data.files import Count, read_lines, write_whole
from likelyshot.errors import InputError

Place = tuple[int, int, int]  # stage, epoch, steps done in the epoch


class _Event(msgspec.Struct):
    """What a line of the log must have."""

    place: tuple[Count, Count, Count]


class Log:
    """Appends to log.jsonl; if a run resumes, it first removes the events after that place."""

    def __init__(self, folder: Path, place: Place | None) -> None:
        self.path = folder / "log.jsonl"
        texts = {"what": "the log of a run", "remedy": "correct that line, or move the file away to begin a new log"}
        earlier = [] if place is None or not self.path.exists() else read_lines(self.path, _Event, **texts)
        lines = [line for line, event in earlier if place is not None and event.place <= place]
        write_whole(self.path, b"".join(line + b"\n" for line in lines))
        self.board: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, place: Place, total_step: int, event: dict[str, Any]) -> None:
        """Append an event."""
        line = json.dumps({"place": place, **event}, allow_nan=False)
        try:
            with self.path.open("a") as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise InputError(
                f"cannot write {self.path} ({error.strerror}): free some space, then use --resume"
            ) from None
        if self.board is not None:
            for key, value in event.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{event['stage']}/{key}", value, total_step)

    def close(self) -> None:
        """Finish TensorBoard's file."""
        if self.board is not None:
            self.board.close()

"""The log of a run: a line of JSON for every event, and TensorBoard's scalars where that is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from likelyshot.data.files import write_whole
from likelyshot.errors import InputError

Place = tuple[int, int, int]  # stage, epoch, steps done in the epoch


class Log:
    """Appends to log.jsonl; if a run resumes, it first removes the events after that place."""

    def __init__(self, folder: Path, place: Place | None) -> None:
        self.path = folder / "log.jsonl"
        earlier = [] if place is None or not self.path.exists() else self.path.read_text().splitlines()
        lines = [line for line in earlier if (at := _place(line)) is not None and place is not None and at <= place]
        write_whole(self.path, "".join(f"{line}\n" for line in lines))
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


def _place(line: str) -> Place | None:
    """Read where an event happened; None for a line that a crash cut short."""
    try:
        stage, epoch, step = json.loads(line)["place"]
    except (ValueError, KeyError, TypeError):
        return None
    return stage, epoch, step

"""A real pseudo-terminal to run commands on, and a small model of the screen behind it."""

from __future__ import annotations

import os
import pty
import re
import threading

TOKEN = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|([\r\n])|([^\x1b\r\n]+)|(\x1b)")


class Screen:
    """What a terminal shows of the characters written to it, with all that has scrolled away.

    It knows what rich writes: carriage returns, new lines, moving up, erasing lines, and colours, which it ignores. A
    line that is longer than the screen goes on in the next, and `lines` gives it as one.

    >>> Screen("working 1 %\\r\\x1b[2Kdone\\r\\n", 80).lines
    ['done']
    """

    def __init__(self, written: str, columns: int) -> None:
        self.columns = columns
        self._cells: list[list[str]] = [[]]
        self._joined: set[int] = set()  # rows that go on the row before
        self._row = self._column = 0
        for code, kind, control, text, stray in TOKEN.findall(written):
            assert not stray, "an escape that this screen does not know"
            if kind:
                self._escape(code, kind)
            elif control == "\r":
                self._column = 0
            elif control == "\n":
                self._down(joined=False)
            else:
                for character in text:
                    self._put(character)

    @property
    def lines(self) -> list[str]:
        """The lines, without spaces at their ends and without empty lines."""
        whole: list[str] = []
        for row, cells in enumerate(self._cells):
            text = "".join(cells)
            if row in self._joined and whole:
                whole[-1] += text
            else:
                whole.append(text)
        return [line.rstrip() for line in whole if line.strip()]

    def _escape(self, code: str, kind: str) -> None:
        count = int(code) if code.isdigit() else 1
        if kind == "A":
            assert count <= self._row, "the cursor is above the first line"
            self._row -= count
        elif kind == "K":
            cells = self._cells[self._row]
            self._cells[self._row] = [] if code == "2" else cells[: self._column]
            self._joined.discard(self._row)
        else:
            assert kind in "mhl", f"an escape that this screen does not know: {code}{kind}"

    def _down(self, joined: bool) -> None:
        self._row += 1
        if self._row == len(self._cells):
            self._cells.append([])
        (self._joined.add if joined else self._joined.discard)(self._row)

    def _put(self, character: str) -> None:
        if self._column == self.columns:
            self._down(joined=True)
            self._column = 0
        cells = self._cells[self._row]
        cells += " " * (self._column + 1 - len(cells))
        cells[self._column] = character
        self._column += 1


class Terminal:
    """Standard output and standard error on one pseudo-terminal, read as they are written."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            self._pieces.append(piece)

    def finish(self) -> str:
        """Close the terminal; give all that was written to it."""
        os.close(self.theirs)
        self._reader.join(10)
        os.close(self._ours)
        return b"".join(self._pieces).decode()

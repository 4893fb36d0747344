"""What a pile was taken for: answers to look at, to write, to sort files by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from likelyshot.confidence.expectation import Expectation
from likelyshot.data.items import Item, Problem
from likelyshot.own_data.answers import Answers, write_answers
from likelyshot.own_data.gallery import MOST, write_gallery
from likelyshot.own_data.gathering import Gathered, Stage, begin, summary
from likelyshot.own_data.judge import Judge
from likelyshot.own_data.model import Model
from likelyshot.own_data.scoring import Pieces, passes
from likelyshot.own_data.sorting import sort_into


@dataclass(frozen=True, eq=False)
class Classification:
    """What a pile was taken for. The work is done when the answers are first asked for, or written."""

    model: Model
    rows: Gathered
    problems: list[Problem]
    words: list[str]  # what there is to know, in sentences
    expectation: Expectation | None = None
    duplicates: list[tuple[str, str]] = field(default_factory=list)  # (labelled name, name in the pile)
    root: Path | None = None  # the folder of the pile
    stage: Stage | None = None

    @property
    def items(self) -> Sequence[Item]:
        """What has an answer, in order."""
        return self.rows.items

    @property
    def method(self) -> str:
        """The method that classifies this pile."""
        return self.model.method_for(len(self.items))

    @cached_property
    def judge(self) -> Judge:
        """What the scores mean: temperature and rejection."""
        return self.model.judge(self.rows.vectors, usable=self.rows.usable)

    @cached_property
    def _pieces(self) -> Pieces:
        """The scores; a transductive method goes through the pile here, once."""
        steps = passes(self.model.bound(self.method)) * len(self.items)
        progress = begin(self.stage, "learning from the pile", steps)
        return self.model.scores(self.rows.vectors, usable=self.rows.usable, progress=progress)

    def chunks(self) -> Iterator[Answers]:
        """Go through the answers piece by piece, so that a million of them need little memory."""
        judge, pieces = self.judge, self._pieces
        progress = begin(self.stage, "classifying", len(self.items))
        done = 0
        for rows, scores in pieces():
            names = [item.name for item in self.items[done : done + len(rows)]]
            yield judge.answers(rows, scores, names)
            done += len(rows)
            if progress is not None:
                progress(len(rows))

    @cached_property
    def answers(self) -> Answers:
        """All answers at once."""
        chunks = list(self.chunks())
        return Answers(
            [name for chunk in chunks for name in chunk.names],
            self.model.classes,
            np.concatenate([chunk.probabilities for chunk in chunks]),
            np.concatenate([chunk.reject for chunk in chunks]),
            np.concatenate([chunk.novelty for chunk in chunks]),
        )

    def save(self, path: str | Path) -> Path:
        """Write a table of the answers: .csv, .parquet or .jsonl."""
        return write_answers(path, self.chunks())

    def gallery(self, path: str | Path, *, command: str = "") -> Path:
        """Write a page of thumbnails, or texts, by predicted class."""
        progress = begin(self.stage, "thumbnails", min(len(self.items), MOST))
        notes = [*self.words, *(f"Left out: {line}" for line in summary(self.problems))]
        return write_gallery(path, self.items, self.answers, command=command, notes=notes, progress=progress)

    def sort(self, folder: str | Path, *, link: bool = False) -> tuple[int, list[Problem]]:
        """Copy, or link, the images into a folder per class; give their number and what could not be copied."""
        answers = self.answers
        return sort_into(folder, self.items, answers.predicted, answers.reject.tolist(), link=link, root=self.root)

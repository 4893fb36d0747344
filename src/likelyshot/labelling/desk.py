"""The desk: a pile, its labels, and a round of classification that runs in the background after every click."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likelyshot.errors import InputError
from likelyshot.labelling import selection
from likelyshot.labelling.journal import Change, Guess, Kind
from likelyshot.labelling.labels import Labels
from likelyshot.labelling.rounds import Known, Round, growth, learn_in_parts, part
from likelyshot.labelling.things import Things
from likelyshot.own_data.answers import encodable
from likelyshot.own_data.rows import summary

#: Items of a varied screen, and labels that look wrong on a later one, at most.
VARIED, DOUBTFUL = 24, 6
#: Labels that look wrong are on every fourth screen: most of them are right, of items that are hard.
DOUBT_EVERY = 4
#: Seconds without a click after which a round begins, unless somebody waits for it; and that somebody waits at most.
QUIET, PATIENCE = 0.4, 30.0
#: Characters of a text that are shown.
TEXT = 2000
#: Items that were on the last screens come again only if nothing else is left.
REMEMBERED = 300


class Desk:
    """All that the page shows and does, without the web.

    Args:
        things: The pile.
        labels: Its labels.
        support: Vectors and classes of labelled examples that are not in the pile.
        method: A method by name; None for the default.
        params: Parameters of the method.
        seed: Seed of all choices.
    """

    def __init__(
        self,
        things: Things,
        labels: Labels,
        *,
        support: tuple[NDArray[np.float32], Sequence[str]] | None = None,
        method: str | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.things, self.labels, self.seed = things, labels, seed
        self.method, self.params = method, params
        none = np.empty((0, things.vectors.shape[1]), np.float32)
        self.support = (none, []) if support is None else (support[0], list(support[1]))
        self.round: Round | None = None
        self.trouble = ""  # why there is no round
        self.screens = 0
        self._later = 0  # screens that were chosen by a round
        self._place: dict[int, int] = {}  # of an open item in the answers of the round
        self._checked: set[str] = set()  # keys of labels that looked wrong and are right
        self._shown: deque[int] = deque(maxlen=REMEMBERED)
        self._news = threading.Condition()
        self._last_click = 0.0
        self._waiting = 0
        self._stopped = False
        self._finished = -1  # version of the labels that the last round has seen
        self._worker = threading.Thread(target=self._work, name="likelyshot rounds", daemon=True)
        self._worker.start()

    # What a person does.

    def set(self, click: str, changes: Iterable[tuple[int, Kind, str]]) -> None:
        """Label items by their numbers; see `Labels.set`."""
        changes = list(changes)
        guesses = [
            guess for n, kind, name in changes if (guess := self._guess(self._number(n), kind, name)) is not None
        ]
        self.labels.set(click, [Change(self.things.keys[n], kind, name) for n, kind, name in changes], guesses)
        self._clicked()

    def _guess(self, number: int, kind: Kind, name: str) -> Guess | None:
        """Remember what was guessed of an item that gets its first label, to see how good guesses are."""
        card = self.card(number)
        if card["guess"] is None or kind not in ("label", "not") or (card["value"] or {}).get("kind") == "label":
            return None
        same = card["guess"]["name"] == name
        return (
            Guess(card["guess"]["probability"], same if kind == "label" else False) if kind == "label" or same else None
        )

    def add_class(self, click: str, name: str) -> None:
        """Add a class."""
        self.labels.add_class(click, name)
        self._clicked()

    def rename_class(self, click: str, old: str, name: str) -> None:
        """Rename a class, or merge it into another one; see `Labels.rename_class`."""
        self.labels.rename_class(click, old, name)
        self._clicked()

    def undo(self, click: str) -> None:
        """Undo the last click."""
        self.labels.undo(click)
        self._clicked()

    def redo(self, click: str) -> None:
        """Redo the last click that was undone."""
        self.labels.redo(click)
        self._clicked()

    def check(self, numbers: Iterable[int]) -> None:
        """Remember that labels which looked wrong are right, until the page is started again."""
        self._checked.update(self.things.keys[self._number(number)] for number in numbers)

    def _number(self, number: int) -> int:
        if not 0 <= number < len(self.things):
            raise InputError(f"there is no item {number}: load the page again")
        return number

    # Rounds.

    def _clicked(self) -> None:
        with self._news:
            self._last_click = time.monotonic()
            self._news.notify_all()

    @property
    def working(self) -> bool:
        """Whether a round is under way, or about to begin."""
        return not self._stopped and self._finished != self.labels.version

    @property
    def _partly(self) -> bool:
        return self.round is not None and not self.round.whole

    def wait(self, seconds: float = PATIENCE, *, whole: bool = False) -> bool:
        """Wait until a round has seen the newest labels; return whether it has.

        Args:
            seconds: How long at most.
            whole: Whether to wait until all items are classified; in a large pile, it is first a part of them.
        """
        with self._news:
            self._waiting += 1
            self._news.notify_all()
            try:
                return self._news.wait_for(lambda: not self.working and not (whole and self._partly), seconds)
            finally:
                self._waiting -= 1

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._stopped and not self._due():
                    self._news.wait(0.1 if self.working else None)
                if self._stopped:
                    return
            with self.labels.lock:
                version = self.labels.version
            try:
                published = False
                for result in self._learn(version):
                    self._publish(result, "", version)
                    published = True
                if not published:
                    self._publish(None, "", version)
            except (InputError, OSError, RuntimeError, MemoryError) as error:
                self._publish(None, f"The pile could not be classified: {error}", version)

    def _publish(self, result: Round | None, trouble: str, version: int) -> None:
        place = {} if result is None else {number: row for row, number in enumerate(result.open.tolist())}
        with self._news:
            self.round, self._place, self.trouble, self._finished = result, place, trouble, version
            self._news.notify_all()

    def _due(self) -> bool:
        return self.working and (self._waiting > 0 or time.monotonic() - self._last_click >= QUIET)

    def known(self) -> Known:
        """Give the labelled examples, those outside the pile first."""
        with self.labels.lock:
            values = dict(self.labels.values)
        numbers = self.things.numbers
        labelled = sorted((numbers[k], v.name) for k, v in values.items() if v.kind == "label" and k in numbers)
        refused = {numbers[k]: v.name for k, v in values.items() if v.kind == "not" and k in numbers}
        rows = [number for number, _ in labelled]
        vectors, classes = self.support
        now = {name: self.labels.current_name(name) for name in set(classes)}
        return Known(
            np.concatenate([vectors, self.things.vectors[rows]]),
            [*(now[name] for name in classes), *(name for _, name in labelled)],
            [*[""] * len(classes), *(self.things.items[row].name for row in rows)],
            [*[-1] * len(classes), *rows],
            refused,
        )

    def open_items(self) -> NDArray[np.intp]:
        """Give the numbers of the items that a person has not decided yet."""
        with self.labels.lock:
            final = [k for k, v in self.labels.values.items() if v.kind in ("label", "none")]
        closed = [self.things.numbers[key] for key in final if key in self.things.numbers]
        return np.setdiff1d(np.arange(len(self.things)), closed)

    def _learn(self, version: int) -> Iterator[Round]:
        known, open_items = self.known(), self.open_items()
        if len(set(known.labels)) < 2:
            return
        labelled = sum(number >= 0 for number in known.numbers)
        for result in learn_in_parts(
            self.things.vectors,
            open_items,
            known,
            method=self.method,
            params=self.params,
            negative=self.things.rows.negative,
            guesses=list(self.labels.guesses),
            version=version,
            seed=self.seed,
            stop=lambda: self._stopped or self._due(),
        ):
            last = self.labels.history[-1].labels if self.labels.history else 0
            if labelled < last or labelled >= last + max(2, last // 50):
                self.labels.measure(labelled, result.accuracy)
            yield result

    def stop(self) -> None:
        """End the background work, and close the journal."""
        with self._news:
            self._stopped = True
            self._news.notify_all()
        self._worker.join(PATIENCE)
        self.labels.close()

    # What the page shows.

    def card(self, number: int) -> dict[str, Any]:
        """Describe an item for the page."""
        item = self.things.items[number]
        value = self.labels.values.get(self.things.keys[number])
        card: dict[str, Any] = {
            "number": number,
            "name": encodable(item.name),
            "text": None if item.text is None else encodable(item.text[:TEXT]),
            "picture": item.path is not None and item.text is None,
            "value": None if value is None else {"kind": value.kind, "name": value.name},
            "guess": None,
        }
        latest, place = self.round, self._place.get(number)
        if latest is not None and place is not None and place < len(latest.answers):
            best = int(latest.answers.best[place])
            sure, name = float(latest.answers.probabilities[place, best]), latest.answers.classes[best]
            if name in self.labels.classes:  # it may have been renamed since
                card["guess"] = {"name": name, "probability": round(sure, 4)}
        return card

    def state(self, numbers: Iterable[int] = ()) -> dict[str, Any]:
        """Describe how far the work is, and how a person has labelled some items."""
        with self.labels.lock:
            counts = self.labels.counts()
            values = list(self.labels.values.values())
            keys = self.things.keys
            chosen = {n: self.labels.values.get(keys[n]) for n in numbers if 0 <= n < len(keys)}
            state: dict[str, Any] = {
                "version": self.labels.version,
                "classes": [{"name": name, "count": counts[name]} for name in self.labels.classes],
                "total": len(self.things),
                "labelled": sum(counts.values()),
                "none": sum(value.kind == "none" for value in values),
                "skipped": sum(value.kind == "skip" for value in values),
                "can_undo": self.labels.can_undo,
                "can_redo": self.labels.can_redo,
                "history": [[point.labels, round(point.accuracy, 4)] for point in self.labels.history],
                "saved": str(self.labels.output),
                "problem": " ".join(filter(None, (self.labels.problem, self.trouble))),
                "values": {n: None if v is None else {"kind": v.kind, "name": v.name} for n, v in chosen.items()},
            }
        state["working"] = self.working
        state["round"] = self._finished
        state["expected"] = self.expected()
        return state

    def expected(self) -> list[str]:
        """Say what accuracy to expect, and what more labels would bring."""
        latest = self.round
        if latest is None:
            have = len({*self.support[1], *self.labels.counts()})
            need = "two classes" if not have else "one more class"
            return [f"Label items of {need}, and the pile will be classified."]
        low, high = (f"{100 * bound:.0f}" for bound in latest.interval)
        now = f"{100 * latest.accuracy:.0f} %, probably between {low} and {high} %"
        sentences = [f"Expected accuracy on the whole pile now: {now}."]
        closed = sum(value.kind in ("label", "none") for value in list(self.labels.values.values()))
        more = growth(self.labels.history, len(self.things) - closed)
        points = f"{more.points:.0f} more {'point' if round(more.points) == 1 else 'points'}"
        if more.points < 0.5:
            sentences.append("There is less than a point to gain.")
        elif more.labels is None:
            sentences.append(f"There is no estimate yet of how many labels {points} would take: {more.why}.")
        else:
            sentences.append(f"About {more.labels:,} more labels for {points}, if accuracy keeps growing as before.")
        return sentences

    def problems(self) -> list[str]:
        """List what cannot be labelled, and what else the person should know."""
        notes = [f"Left out: {line}" for line in summary(self.things.problems)]
        if self.labels.edited is not None:
            notes.append(f"{self.labels.output.name} was changed by hand: that table is now {self.labels.edited.name}.")
        missing = sum(key not in self.things.numbers for key in list(self.labels.values))
        if missing:
            items = "1 item that was labelled is" if missing == 1 else f"{missing:,} items that were labelled are"
            notes.append(f"{items} no longer in the pile. The labels are kept.")
        if not self.things.readable:
            notes.append(
                f"classify --support cannot read {self.labels.output.name} where it is, since it reads files below the "
                "folder of a table only: start again with an -o in a folder above the files of the pile."
            )
        return [encodable(note) for note in notes]

    def screen(self) -> dict[str, Any]:
        """Choose the next screen, by a round that has seen the newest labels if that does not take too long."""
        self.wait()
        sections = self._varied() if self.round is None else self._by_round(self.round)
        self.screens += 1
        self._shown.extend(card["number"] for section in sections for card in section["cards"])
        return {"number": self.screens, "sections": sections, "round": self._finished}

    def _varied(self) -> list[dict[str, Any]]:
        left = self._fresh(self.open_items())
        known = self.known()
        chosen = selection.varied(self.things.vectors[left], VARIED, known=known.vectors, seed=self.seed + self.screens)
        title = "A varied selection of the pile" if not len(known.labels) else "What is unlike the items seen so far"
        return [self._section("varied", title, left[chosen].tolist())] if len(left) else []

    def _by_round(self, latest: Round) -> list[dict[str, Any]]:
        rows = np.flatnonzero(np.isin(latest.open, self._fresh(self.open_items())))
        answers, known = part(latest.answers, rows), self.known()
        examples = [known.labels.count(name) for name in answers.classes]
        chosen = selection.next_screen(self.things.vectors, latest.open[rows], answers, examples, known.vectors)
        sections = self._doubtful(latest) if not chosen or self._later % DOUBT_EVERY == 0 else []
        if not chosen and not sections:  # nothing is unsure, and no class has a group
            chosen = [selection.ScreenSection("single", list(range(min(len(rows), VARIED))))]
        titles = {
            "single": "What are these?",
            "strange": "Do these look like no class?",
            "pair": "{} or {}?",
            "group": "Are these all {}?",
        }
        for kind, places, names in chosen:
            title = titles[kind].format(*names)
            sections.append(self._section(kind, title, latest.open[rows[places]].tolist(), names))
        self._later += 1
        return [section for section in sections if section["cards"]]

    def _doubtful(self, latest: Round) -> list[dict[str, Any]]:
        doubtful = [(latest.numbers[doubt.row], doubt) for doubt in latest.expectation.doubtful]
        doubtful = [(n, d) for n, d in doubtful if n >= 0 and self._still(n, d.label)][:DOUBTFUL]
        section = self._section("doubt", "Are these labels right?", [n for n, _ in doubtful])
        for card, (_, doubt) in zip(section["cards"], doubtful, strict=True):
            card["doubt"] = {"label": doubt.label, "better": doubt.better}
        return [section] if doubtful else []

    def _still(self, number: int, label: str) -> bool:
        key = self.things.keys[number]
        value = self.labels.values.get(key)
        return key not in self._checked and value is not None and (value.kind, value.name) == ("label", label)

    def _fresh(self, open_items: NDArray[np.intp]) -> NDArray[np.intp]:
        """Leave out what was on the last screens and what was skipped, as long as something else is left.

        What was struck off a group comes again: its class is still unknown.
        """
        skipped = [self.things.numbers.get(k, -1) for k, v in list(self.labels.values.items()) if v.kind == "skip"]
        values = self.labels.values
        shown = [n for n in self._shown if (v := values.get(self.things.keys[n])) is None or v.kind != "not"]
        for leave in ([*shown, *skipped], skipped):
            left = np.setdiff1d(open_items, leave)
            if len(left):
                return left
        return open_items

    def _section(self, kind: str, title: str, numbers: Sequence[int], classes: Sequence[str] = ()) -> dict[str, Any]:
        cards = [self.card(number) for number in numbers]
        return {"kind": kind, "title": title, "classes": list(classes), "cards": cards}

    def browse(self, which: str, name: str, text: str, start: int, count: int) -> dict[str, Any]:
        """Give a part of all items, in the order of the pile.

        Args:
            which: "all", "open", "none", "skip", "label" (of the class `name`) or "guess" (as which it is taken).
            name: The class.
            text: What the name, or the text, of an item must contain.
            start: How many to leave out at the beginning.
            count: How many to give.
        """
        numbers = self._filtered(which, name, text)
        return {"total": len(numbers), "start": start, "cards": [self.card(n) for n in numbers[start : start + count]]}

    def _filtered(self, which: str, name: str, text: str) -> Sequence[int]:
        values, keys = self.labels.values, self.things.numbers
        numbers: Sequence[int] = range(len(self.things))
        if which == "open":
            numbers = self.open_items().tolist()
        elif which in ("none", "skip", "label"):
            chosen = [(k, v) for k, v in list(values.items()) if v.kind == which and v.name == name and k in keys]
            numbers = sorted(keys[key] for key, _ in chosen)
        elif which == "guess":
            latest = self.round
            places = []
            if latest is not None and name in latest.answers.classes:
                place = list(latest.answers.classes).index(name)
                places = latest.open[np.flatnonzero(latest.answers.best == place)].tolist()
            numbers = places
        if text:
            needle, items = text.casefold(), self.things.items
            numbers = [n for n in numbers if needle in f"{items[n].name}\n{items[n].text or ''}".casefold()]
        return numbers

    @property
    def folder(self) -> Path:
        """The folder of the labels."""
        return self.labels.output.parent

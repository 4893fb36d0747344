"""Labels for other tools: class folders, Hugging Face, Label Studio and features; and predictions, kept apart."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from likelyshot.data.features import Features
from likelyshot.data.files import read_document, write_whole
from likelyshot.data.items import Item
from likelyshot.errors import InputError
from likelyshot.labelling.desk import Desk
from likelyshot.labelling.journal import Change
from likelyshot.labelling.labels import predicted_path
from likelyshot.own_data.answers import Answers, encodable, write_answers
from likelyshot.own_data.folders import folder_names, sort_into

#: What can be exported, and what that is, for the page.
EXPORTS = {
    "folders": "A folder for each class, with copies of the images",
    "links": "A folder for each class, with links to the images",
    "imagefolder": "Hugging Face imagefolder: copies of the images, and metadata.csv",
    "label-studio": "Label Studio: JSON with your labels as annotations, and predictions apart",
    "features": "Features: vectors and labels, for classify, fit and evaluate",
}
NONE = "none of these"
FROM_NAME = "class"


def export(desk: Desk, kind: str) -> str:
    """Write the labels for another tool, beside the table of labels, and say what was written where.

    Args:
        desk: The pile and its labels.
        kind: One of `EXPORTS`.
    """
    writers: dict[str, Callable[[Desk], str]] = {
        "folders": lambda desk: _folders(desk, link=False),
        "links": lambda desk: _folders(desk, link=True),
        "imagefolder": _imagefolder,
        "label-studio": _label_studio,
        "features": _features,
    }
    check_kind(kind)
    return writers[kind](desk)


def check_kind(kind: str) -> None:
    """Refuse what is none of `EXPORTS`."""
    if kind not in EXPORTS:
        raise InputError(f"expected one of {', '.join(EXPORTS)}, but got {kind[:40]!r}: choose one of these")


def accept(desk: Desk, above: float) -> str:
    """Write the predictions that are sure enough to a table of their own; labels of persons stay apart.

    Args:
        desk: The pile and its labels.
        above: The least probability.
    """
    if not 0 <= above <= 1:
        raise InputError(f"expected a probability from 0 to 1, but got {above}: try 0.95")
    if not desk.wait(whole=True):
        raise InputError("the pile is still being classified: try again in a moment")
    if desk.round is None:
        raise InputError("there are no predictions yet: label items of two classes first")
    latest, answers = desk.round, desk.round.answers
    rows = np.flatnonzero((answers.probability >= above) & ~np.asarray(answers.reject, dtype=bool))
    items = desk.things.items
    names = [_name(desk, items[number]) for number in latest.open[rows].tolist()]
    part = Answers(names, answers.classes, answers.probabilities[rows], answers.reject[rows], answers.novelty[rows])
    place = write_answers(predicted_path(desk.labels.output), part)
    return f"Wrote {len(rows):,} predictions of {100 * above:g} % or more to {place.name}, apart from your labels."


def _name(desk: Desk, item: Item) -> str:
    return desk.things.path_cell(item.path).removeprefix("'") if item.path is not None else item.name


def labelled(desk: Desk) -> list[tuple[int, str]]:
    """Give the number and the class of every labelled item of the pile, in order."""
    numbers = desk.things.numbers
    with desk.labels.lock:
        values = list(desk.labels.values.items())
    return sorted((numbers[key], value.name) for key, value in values if value.kind == "label" and key in numbers)


def _some(desk: Desk) -> list[tuple[int, str]]:
    pairs = labelled(desk)
    if not pairs:
        raise InputError("there is nothing to export yet: label some items first")
    return pairs


def _place(desk: Desk, ending: str) -> Path:
    return desk.folder / f"{desk.labels.output.stem}_{ending}"


def _new_folder(desk: Desk, ending: str) -> Path:
    """Give a folder that is not there yet: in one of an earlier export, files would stay under labels that changed."""
    first = _place(desk, ending)
    places = (first, *(first.with_name(f"{first.name}-{number}") for number in range(2, 10_000)))
    return next(place for place in places if not place.exists())


def _folders(desk: Desk, link: bool) -> str:
    pairs = _some(desk)
    items = [desk.things.items[number] for number, _ in pairs]
    folder = _new_folder(desk, "links" if link else "folders")
    names = [name for _, name in pairs]
    count, problems = sort_into(folder, items, names, [False] * len(items), link=link, root=desk.things.root)
    wrong = f" {len(problems):,} could not be: {problems[0].kind}, {problems[0].detail}." if problems else ""
    return f"{'Linked' if link else 'Copied'} {count:,} files into {folder.name}.{wrong}"


def _imagefolder(desk: Desk) -> str:
    pairs = _some(desk)
    items = [desk.things.items[number] for number, _ in pairs]
    folder = _new_folder(desk, "imagefolder")
    names = [name for _, name in pairs]
    count, problems = sort_into(folder, items, names, [False] * len(items), link=False, root=desk.things.root)
    classes = {safe: name for name, safe in folder_names(names).items()}
    class_names = {name for _, name in pairs}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file_name", "label"])
    rows = 0
    for place in sorted(folder.glob("*/*")):
        if classes.get(place.parent.name) in class_names and place.is_file() and not place.name.startswith("."):
            writer.writerow([encodable(place.relative_to(folder).as_posix()), classes[place.parent.name]])
            rows += 1
    write_whole(folder / "metadata.csv", text.getvalue())
    wrong = f" {len(problems):,} could not be copied: {problems[0].kind}." if problems else ""
    return f"Copied {count:,} files into {folder.name}; metadata.csv has {rows:,} rows.{wrong}"


def _features(desk: Desk) -> str:
    pairs = _some(desk)
    names = [name for _, name in pairs]
    classes = sorted(set(names))
    vectors = desk.things.vectors[[number for number, _ in pairs]]
    labels = np.array([classes.index(name) for name in names])
    place = Features.from_arrays(vectors, labels, classes=classes).save(_place(desk, "features.safetensors"))
    return f"Wrote the vectors and labels of {len(names):,} items to {place.name}."


def _label_studio(desk: Desk) -> str:
    """Write one task for each item that has a label or a prediction."""
    desk.wait(whole=True)
    latest = desk.round
    guesses: dict[int, tuple[str, float]] = {}
    if latest is not None:
        sure = latest.answers.probability.tolist()
        guesses = {n: (latest.answers.predicted[i], sure[i]) for i, n in enumerate(latest.open.tolist())}
    tasks = []
    for number, key in enumerate(desk.things.keys):
        item, value = desk.things.items[number], desk.labels.values.get(key)
        field, content = _data(desk, item)
        task: dict[str, Any] = {"id": number + 1, "data": {field: content, "likelyshot": key}}
        if value is not None and value.kind in ("label", "none"):
            task["annotations"] = [{"result": [_choice(field, value.name if value.kind == "label" else NONE)]}]
        elif number in guesses and latest is not None:
            name, probability = guesses[number]
            version = f"likelyshot {latest.method}"
            result = [_choice(field, name)]
            task["predictions"] = [{"model_version": version, "score": round(probability, 6), "result": result}]
        tasks.append(task)
    place = write_whole(_place(desk, "label_studio.json"), json.dumps(tasks, ensure_ascii=False, indent=1))
    count = sum("annotations" in task for task in tasks)
    return (
        f"Wrote {len(tasks):,} tasks to {place.name}: {count:,} with your labels, the others with predictions, if any."
    )


def _data(desk: Desk, item: Item) -> tuple[str, str]:
    if item.text is not None:
        return "text", encodable(item.text)
    if item.path is None:
        return "name", encodable(item.name)
    path = desk.things.path_cell(item.path).removeprefix("'")
    return "image", f"/data/local-files/?d={urllib.parse.quote(path)}"


def _choice(field: str, name: str) -> dict[str, Any]:
    return {"from_name": FROM_NAME, "to_name": field, "type": "choices", "value": {"choices": [name]}}


class _Choices(msgspec.Struct):
    choices: list[str] = []


class _Result(msgspec.Struct):
    type: str = ""
    value: _Choices = msgspec.field(default_factory=_Choices)


class _Annotation(msgspec.Struct):
    result: list[_Result] = []
    was_cancelled: bool = False


class _Task(msgspec.Struct):
    data: dict[str, Any]
    annotations: list[_Annotation] = []


def read_label_studio(path: str | Path) -> list[_Task]:
    """Read the tasks of a Label Studio export, JSON."""
    return read_document(path, list[_Task], what="tasks of Label Studio", remedy="export them as JSON")


def import_label_studio(desk: Desk, tasks: Sequence[_Task]) -> str:
    """Take the labels of Label Studio's tasks for items that have none, and say how many there were.

    A task belongs to an item if it names its file, or has its text. Tasks that name several items, or none, are left
    out, and so are items that a person has labelled here already.

    Args:
        desk: The pile and its labels.
        tasks: What `read_label_studio` returns.
    """
    find = _finder(desk)
    changes: dict[str, Change] = {}
    unknown = unchanged = 0
    for task in tasks:
        name = _chosen(task)
        if name is None:
            continue
        key = find(task.data)
        if key is None:
            unknown += 1
        elif key in desk.labels.values:
            unchanged += 1
        else:
            changes[key] = Change(key, "none") if name == NONE else Change(key, "label", name)
    for name in dict.fromkeys(change.name for change in changes.values() if change.name):
        desk.labels.add_class(f"label studio class {desk.labels.version} {name}"[:200], name)
    desk.labels.set(f"label studio {desk.labels.version}", changes.values())
    more = f" {unknown:,} tasks belong to no item of the pile." if unknown else ""
    more += f" {unchanged:,} items have a label here already, which stays." if unchanged else ""
    return f"Imported {len(changes):,} labels from Label Studio.{more}"


def _chosen(task: _Task) -> str | None:
    for annotation in reversed(task.annotations):
        for result in annotation.result:
            if result.type == "choices" and not annotation.was_cancelled and len(result.value.choices) == 1:
                return result.value.choices[0].strip() or None
    return None


def _finder(desk: Desk) -> Callable[[dict[str, Any]], str | None]:
    """Give a function that finds the key of the item of a task."""
    keys = set(desk.things.keys)
    by_text: dict[str, list[str]] = {}
    by_path: dict[str, list[str]] = {}
    for key, item in zip(desk.things.keys, desk.things.items, strict=True):
        if item.text is not None:
            by_text.setdefault(item.text.strip(), []).append(key)
        elif item.path is not None:
            parts = Path(encodable(str(item.path.absolute()))).parts[1:]
            for count in range(1, len(parts) + 1):
                by_path.setdefault("/".join(parts[-count:]), []).append(key)

    def find(data: dict[str, Any]) -> str | None:
        if data.get("likelyshot") in keys:
            return str(data["likelyshot"])
        for value in data.values():
            if not isinstance(value, str):
                continue
            matches = by_text.get(value.strip(), [])
            if len(matches) == 1:
                return matches[0]
            path = urllib.parse.unquote(value.partition("?d=")[2] or re.sub(r"^\w+://[^/]*|[?#].*$", "", value))
            parts = [part for part in re.split(r"[/\\]", path) if part]
            for candidate in (parts, [*parts[:-1], re.sub(r"^[0-9a-f]{8}-", "", parts[-1])] if parts else []):
                for start in range(len(candidate)):
                    matches = by_path.get("/".join(candidate[start:]), [])
                    if len(matches) == 1:
                        return matches[0]
        return None

    return find

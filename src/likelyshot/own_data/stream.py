"""Answers to items that come one by one, as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from likelyshot.confidence.temperature import is_transductive
from likelyshot.data.items import Item
from likelyshot.encoders.pretrained import Encoder
from likelyshot.errors import InputError
from likelyshot.own_data.answers import encodable, json_line
from likelyshot.own_data.gathering import Cache, gather
from likelyshot.own_data.model import INDUCTIVE, TRANSDUCTIVE, Model
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.streaming import as_tensor


def stream_method(model: Model) -> str:
    """Name the method for a stream, which has no pile: MLL stands in for its transductive form, others are refused."""
    name = model.method_for(None)
    if name == TRANSDUCTIVE:
        return INDUCTIVE
    if is_transductive(model.bound(name)):
        raise InputError(f"expected a method for single items, but {name} needs a whole pile: give a folder or a table")
    return name


def answer_stream(model: Model, encoder: Encoder, lines: Iterable[str], *, cache: Cache = "user") -> Iterator[str]:
    """Answer every line, the path of an image or a text, by a line of JSON as soon as it comes.

    A line that cannot be answered gives {"path": ..., "error": ...}; empty lines are passed over.
    """
    name = stream_method(model)
    alone = model if model.method_for(None) == name else replace(model, method=name, params=model.own_params(name))
    judge, method, ways = alone.judge(), alone.bound(name), len(alone.classes)
    for line in lines:
        said = line.removesuffix("\n").removesuffix("\r")
        if not said.strip():
            continue
        item = Item(said, path=Path(said)) if encoder.kind == "image" else Item(said, text=said)
        try:
            found = gather(Pile([item], None, [], encoder.kind), encoder, cache=cache)
            if found.problems:
                problem = found.problems[0]
                raise InputError(f"{problem.kind} ({problem.detail})" if problem.detail else problem.kind)
            rows = as_tensor(found.vectors, alone.rectified)
            with torch.no_grad():
                scores = method(alone.examples, alone.labels, rows, n_ways=ways)
            yield json_line(next(judge.answers(rows, scores, [said]).rows()))
        except (InputError, OSError) as error:
            yield json.dumps({"path": encodable(said), "error": encodable(str(error))}, ensure_ascii=False) + "\n"

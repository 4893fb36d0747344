"""Answers to items that come one by one, as lines of JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from likelyshot.data.items import Item
from likelyshot.encoders.embed import Cache, default_cache
from likelyshot.encoders.pretrained import Embedder
from likelyshot.errors import InputError
from likelyshot.methods import METHODS
from likelyshot.methods.binding import is_transductive
from likelyshot.own_data.answers import encodable, json_lines
from likelyshot.own_data.model import STAND_IN, TRANSDUCTIVE, Model
from likelyshot.own_data.piles import Pile
from likelyshot.own_data.rows import CachePlace, as_tensor, gather
from likelyshot.own_data.scoring import once_fitted


def stream_method(model: Model) -> str:
    """Name the method for a stream, which has no pile: the inductive form of a transductive one, if it has any."""
    name = model.method or TRANSDUCTIVE
    if is_transductive(METHODS[name]) and name not in STAND_IN:
        raise InputError(f"{name} needs a whole pile, but a stream has none: give a folder or a table instead")
    return model.inductive


def answer_stream(
    model: Model, encoder: Embedder, lines: Iterable[str], *, cache: CachePlace = "user"
) -> Iterator[str]:
    """Answer each line as soon as it comes by a line of JSON.

    A line that cannot be answered gives {"path": ..., "error": ...}; empty lines are skipped.

    Args:
        model: The classifier.
        encoder: What embeds the items.
        lines: Paths of images, or texts, as the encoder takes them.
        cache: Where vectors are cached; it stays open until the stream ends.
    """
    name = stream_method(model)
    judge = model.judge(name)
    score = once_fitted(model.bound(name), model.examples, model.labels, len(model.classes))
    folder = default_cache() if cache == "user" else cache
    with contextlib.closing(Cache(folder, encoder.digest, encoder.dim)) as store:
        for line in lines:
            content = line.removesuffix("\n").removesuffix("\r")
            if not content.strip():
                continue
            item = Item(content, path=Path(content)) if encoder.kind == "image" else Item(content, text=content)
            try:
                gathered = gather(Pile([item], None, [], encoder.kind), encoder, cache=store)
                if gathered.problems:
                    problem = gathered.problems[0]
                    raise InputError(f"{problem.kind} ({problem.detail})" if problem.detail else problem.kind)
                rows = as_tensor(gathered.vectors[:], model.rectified)
                with torch.no_grad():
                    scores = score(rows)
                yield from json_lines(judge.answers(rows, scores, [content]))
            except (InputError, OSError) as error:
                yield (
                    json.dumps({"path": encodable(content), "error": encodable(str(error))}, ensure_ascii=False) + "\n"
                )

"""Parts of a pile of images or texts: each embeds its own items, and what all have embedded is classified at the end.

The method learns from the whole pile, and to embed an item costs a hundred times what it costs to score its vector. So
parts share the vectors that they make, in a folder, and `likelyshot merge` scores them.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from likelyshot.data.files import convert, output_folder, write_whole
from likelyshot.data.items import Item, Lazy, Listed, PackedNames, Problem
from likelyshot.encoders.blocks import embed_blocks, items_of, read_blocks
from likelyshot.encoders.pretrained import Embedder
from likelyshot.own_data.model import Model
from likelyshot.own_data.piles import Pile, names_and_texts
from likelyshot.own_data.pipeline import Classification, Fitted, Say, open_for, predict
from likelyshot.own_data.rows import VECTORS, CachePlace, Stage, begin, pile_digest
from likelyshot.workers import Part

MODEL = "model.safetensors"


class _Facts(msgspec.Struct):
    """What the folder of the vectors says of the pile and its answers."""

    kind: str
    all_probabilities: bool
    problems: list[tuple[str, str, str]]


def embed_part(
    fitted: Model | Fitted,
    pile: Pile,
    folder: str | Path,
    part: Part,
    *,
    encoder: str | Embedder | None = None,
    device: str = "cpu",
    cache: CachePlace = "user",
    all_probabilities: bool = False,
    stage: Stage | None = None,
) -> tuple[int, int]:
    """Embed a part of a pile, and keep the vectors and the model in the folder of the answers.

    Returns how many blocks of items were embedded now, and how many had been before. `classify_parts` reads them.

    Args:
        fitted: What `fit` returned, or a model.
        pile: Images or texts.
        folder: The folder of the answers, the same for all parts.
        part: Which part.
        encoder: As in `predict`.
        device: As in `predict`.
        cache: As in `predict`.
        all_probabilities: Whether the answers will have a column for every class.
        stage: As in `predict`.
    """
    known = fitted if isinstance(fitted, Fitted) else None
    model = fitted.model if isinstance(fitted, Fitted) else fitted
    opened = known.encoder if known is not None else None
    opened = open_for(model, encoder, device) if opened is None else opened
    place = output_folder(Path(folder) / VECTORS)
    with tempfile.TemporaryDirectory() as elsewhere:
        stored = model.save(Path(elsewhere) / MODEL).read_bytes()
    problems = [(problem.name, problem.kind, problem.detail) for problem in pile.problems]

    def more(span: slice, positions: NDArray[np.int64]) -> dict[str, Tensor]:
        names, texts = names_and_texts(pile.items, span)
        packed = PackedNames.of(names[row] for row in positions.tolist()).packed
        cells = [texts[row].encode("utf-8", "surrogatepass") for row in positions.tolist()] if texts else []
        return {
            "names": torch.from_numpy(packed.copy()),
            "texts": torch.from_numpy(np.frombuffer(b"".join(cells), np.uint8).copy()),
            "lengths": torch.tensor([len(cell) for cell in cells], dtype=torch.int64),
        }

    counts = embed_blocks(
        pile.items,
        opened,
        place,
        encoder=opened.name,
        identity=f"{hashlib.sha256(stored).hexdigest()} {pile_digest(pile.items, opened)} {all_probabilities}",
        facts=msgspec.to_builtins(_Facts(pile.kind, all_probabilities, problems)),
        more=more,
        cache=cache,
        part=part,
        progress=begin(stage, f"embedding {part}", items_of(part, len(pile.items), opened)),
    )
    write_whole(place / MODEL, stored)
    return counts


def is_embedded(folder: str | Path) -> bool:
    """Return whether parts have put vectors into a folder of answers."""
    return (Path(folder) / VECTORS / MODEL).is_file()


def classify_parts(
    folder: str | Path, *, stage: Stage | None = None, say: Say | None = None
) -> tuple[Classification, dict[str, Any]]:
    """Classify what all parts have embedded, and tell how the answers are to be written; a missing part is an error.

    Args:
        folder: The folder of the answers.
        stage: As in `predict`.
        say: As in `predict`.
    """
    place = Path(folder) / VECTORS
    whole = read_blocks(place, more=("names", "texts", "lengths"))
    facts = convert(_Facts, whole.about.facts, str(place))
    names = PackedNames(whole.tensors["names"].numpy())
    lengths = whole.tensors["lengths"].numpy()
    items = _Texts(names, whole.tensors["texts"].numpy(), lengths) if len(lengths) else Listed(names, [])
    problems = [*(Problem(*problem) for problem in facts.problems), *whole.problems]
    pile = Pile(items, whole.vectors, problems, "features")
    result = predict(Model.load(place / MODEL), pile, stage=stage, say=say)
    return result, {"all_probabilities": facts.all_probabilities}


class _Texts(Lazy[Item]):
    """Items of texts, in one array of bytes."""

    def __init__(self, names: PackedNames, packed: NDArray[np.uint8], lengths: NDArray[np.int64]) -> None:
        self._names, self._packed, self._ends = names, packed, np.cumsum(np.append(0, lengths))

    def __len__(self) -> int:
        return len(self._names)

    def _make(self, rows: range) -> list[Item]:
        return [Item(self._names[row], text=self._text(row)) for row in rows]

    def _text(self, row: int) -> str:
        return self._packed[self._ends[row] : self._ends[row + 1]].tobytes().decode("utf-8", "surrogatepass")

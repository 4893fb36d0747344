"""Names of classes that look like mistakes: a label that is misspelt once makes a class of its own."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

#: Examples that the other class has at least, unless two letters have changed places.
SEVERAL = 3
#: Letters that a word has at least: "en" and "es", or the classes a and b, are no mistakes of each other.
LETTERS = 3
#: Classes that are named.
NAMED = 3

WORDS = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")


def likely_mistakes(counts: Mapping[str, int]) -> list[str]:
    """Say which classes may be mistakes for others, judging by their names and numbers of examples: a sentence each.

    Two names that differ only in case, spaces or Unicode form are always reported. Another class is reported if it has
    one example and a small mistake leads to its name: two letters in the other order, one more or less, or another one
    that is not the first. Digits are no mistakes: class_1 is not class_2.

    Args:
        counts: The number of labelled examples of each class.

    >>> likely_mistakes({"cat": 4, "dog": 4, "dgo": 1})[0][:70]
    "Class 'dgo' has 1 labelled example and looks like 'dog', which has 4: "
    >>> likely_mistakes({"class_1": 5, "class_2": 1, "cat": 5, "bat": 5})
    []
    """
    names = sorted(counts, key=lambda name: -counts[name])  # of two classes of one size, the later is the mistake
    mistakes = {**_misspelt(names, counts), **_alike(names)}
    sentences = [
        f"Class {_quoted(name, other)} has {counts[name]:,} labelled example{'s' * (counts[name] > 1)} and looks like "
        f"{_quoted(other, name)}, which has {counts[other]:,}: if this is a mistake, correct the label, or rename the "
        "folder, and start again."
        for name, other in list(mistakes.items())[:NAMED]
    ]
    if rest := len(mistakes) - len(sentences):
        sentences.append(f"{rest:,} more {'class looks' if rest == 1 else 'classes look'} like others.")
    return sentences


def _alike(names: Sequence[str]) -> dict[str, str]:
    """Find names that differ only in case, spaces or Unicode form; a and A may be two classes."""
    mistakes: dict[str, str] = {}
    first: dict[str, str] = {}
    for name in names:
        key = BETWEEN_LETTERS.sub("", " ".join(_words(name)))
        other = first.setdefault(key, name)
        if other != name and (len(key) > 1 or name.strip() == other.strip()):
            mistakes[name] = other
    return mistakes


def _misspelt(names: Sequence[str], counts: Mapping[str, int]) -> dict[str, str]:
    """Find classes of one example whose name is a mistake away from that of a class before."""
    mistakes: dict[str, str] = {}
    before: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for name in names if names and counts[names[0]] > 1 else ():  # where all have one example, none is odd
        parts = list(_parts(_words(name)))
        if counts[name] == 1:
            near = ((other, word, spelt) for key, word in parts for other, spelt in before[key])
            found = next((other for other, word, spelt in near if _mistaken(word, spelt, counts[other])), None)
            if found is not None:
                mistakes[name] = found
        for key, word in parts:
            before[key].append((name, word))
    return mistakes


def _parts(words: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give each word with what a mistake in it leaves of the name: the word may have lost a letter."""
    for place, word in enumerate(words):
        if word.isalpha() and len(word) >= LETTERS:
            for rest in {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}:
                yield (*words[:place], rest, *words[place + 1 :]), word


def _mistaken(word: str, other: str, count: int) -> bool:
    """Tell whether a small mistake makes one word of another, of which there are so many examples."""
    start = _same_letters(word, other)
    word, other = word[start:], other[start:]
    end = _same_letters(word[::-1], other[::-1])
    word, other = word[: len(word) - end], other[: len(other) - end]
    if len(word) == 2 and word == other[::-1]:
        return True
    first = start == 0 and word and other  # as in cat and bat, which are rarely mistaken
    return max(len(word), len(other)) == 1 and not first and count >= SEVERAL


def _same_letters(word: str, other: str) -> int:
    """Count the letters with which both words begin."""
    pairs = zip(word, other, strict=False)
    return next((place for place, (one, two) in enumerate(pairs) if one != two), min(len(word), len(other)))


def _words(name: str) -> list[str]:
    """Split a name into words, numbers and signs, all in small letters; spaces and underscores are no part of them."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return WORDS.findall(re.sub(r"(?<=[^\W\d_])-(?=[^\W\d_])", " ", text))


def _quoted(name: str, other: str) -> str:
    """Quote a name, in codes where two names look the same on the screen."""
    same = unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", other)
    text = ascii(name) if same else repr(name)
    return text if len(text) <= 80 else f"{text[:77]}..."

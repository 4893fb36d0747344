"""Names of classes that look like mistakes, and those that do not."""

from __future__ import annotations

import pytest

from likelyshot.own_data.class_names import NAMED, likely_mistakes


@pytest.mark.parametrize(
    ("counts", "mistake", "meant"),
    [
        ({"cat": 2, "dog": 1, "dgo": 1}, "'dgo' has 1 labelled example and", "'dog', which has 1:"),
        ({"cat": 4, "dgo": 1, "dog": 4}, "'dgo' has 1 labelled example and", "'dog', which has 4:"),
        ({"rose": 3, "roze": 1}, "'roze' has 1 labelled example and", "'rose', which has 3:"),
        ({"rose": 3, "roses": 1}, "'roses' has 1 labelled example and", "'rose', which has 3:"),
        ({"old roses": 3, "old rses": 1}, "'old rses' has 1 labelled example and", "'old roses', which has 3:"),
        ({"cat": 4, "Cat": 2}, "'Cat' has 2 labelled examples and", "'cat', which has 4:"),
        ({"dog": 4, "dog ": 4}, "'dog ' has 4 labelled examples and", "'dog', which has 4:"),
        ({"red fox": 2, "red_fox": 1}, "'red_fox' has 1 labelled example and", "'red fox', which has 2:"),
        ({"red fox": 2, "Redfox": 1}, "'Redfox' has 1 labelled example and", "'red fox', which has 2:"),
        ({"class 1": 2, "class1": 1}, "'class1' has 1 labelled example and", "'class 1', which has 2:"),
        ({"café": 1, "cafe\u0301": 1}, r"'cafe\u0301' has 1 labelled example and", r"'caf\xe9', which has 1:"),
    ],
)
def test_a_likely_mistake_is_one_sentence_that_says_what_to_do(counts, mistake, meant):
    (sentence,) = likely_mistakes(counts)
    assert sentence.startswith(f"Class {mistake} looks like {meant} if this is a mistake, correct the label, or rename")
    assert sentence.endswith("the folder, and start again.")


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"cat": 5},
        {"cat": 5, "bat": 5, "bats": 5},
        {"cat": 5, "bat": 1},  # a first letter is rarely mistaken
        {"cat": 2, "car": 1},  # too few to tell
        {"dog": 1, "dgo": 1, "dogs": 1},  # one example of each
        {"class_1": 5, "class_2": 1, "class_12": 5, "class_21": 1},
        {"-1": 5, "1": 1, "1.0": 1, "10": 1},
        {"a": 5, "A": 5, "b": 1},
        {"A": 5, "A-": 1, "A+": 1},
        {"vitamin A": 5, "vitamin B": 1, "type I": 5, "type II": 1},
        {"en": 5, "es": 1, "C": 5, "C++": 1},
        {"horse": 5, "mouse": 1},  # two letters
    ],
)
def test_names_that_may_well_be_meant_are_left_alone(counts):
    assert likely_mistakes(counts) == []


def test_a_few_are_named_and_the_rest_counted():
    counts = {f"bird {'abcdefg'[kind] * 5}": 5 for kind in range(NAMED + 2)}
    sentences = likely_mistakes(counts | {name.replace("bird", "brid"): 1 for name in counts})
    assert len(sentences) == NAMED + 1
    assert sentences[-1] == "2 more classes look like others."


def test_a_long_name_is_shortened():
    (sentence,) = likely_mistakes({"a" * 5_000: 5, "A" * 5_000: 5})
    assert len(sentence) < 350

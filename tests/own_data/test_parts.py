"""Texts that parts have embedded are classified as by one call. Images are in tests/cli/test_merge.py."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from likelyshot import callable_encoder
from likelyshot.data.files import read_container, write_container
from likelyshot.encoders.blocks import FORM
from likelyshot.errors import InputError
from likelyshot.own_data.parts import classify_parts, embed_part, is_embedded
from likelyshot.own_data.piles import read_pile
from likelyshot.own_data.pipeline import classify, fit
from likelyshot.workers import Part


def letters(texts):
    return np.array([[1 + text.count(letter) for letter in "abcdefgh"] for text in texts], np.float32)


def test_texts_in_parts_have_the_answers_of_one_call(tmp_path, monkeypatch):
    monkeypatch.setattr("likelyshot.encoders.blocks.BLOCK", 1)
    draw = np.random.default_rng(0)
    lines = ["".join(draw.choice(list("abcdefgh" if n % 2 else "abcd"), 30)) for n in range(75)]
    odd = ["null \0 within", "é ü", "", lines[3]]  # and one that is there twice
    with (tmp_path / "pile.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in lines[8:] + odd)
    with (tmp_path / "few.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": text, "label": "ab"[n % 2]}) + "\n" for n, text in enumerate(lines[:8]))
    encoder = callable_encoder(letters, "letters", kind="text")
    settings = {"encoder": encoder, "cache": None}
    classify(tmp_path / "few.jsonl", tmp_path / "pile.jsonl", **settings).save(tmp_path / "one.jsonl")
    fitted, pile = fit(tmp_path / "few.jsonl", **settings), read_pile(tmp_path / "pile.jsonl")
    done = [embed_part(fitted, pile, tmp_path / "answers", Part(number, 2), cache=None) for number in (1, 2, 2)]
    assert [sum(counts) for counts in done] == [1, 2, 2]
    assert done[2] == (0, 2)
    assert is_embedded(tmp_path / "answers")
    result, how = classify_parts(tmp_path / "answers")
    result.save(tmp_path / "two.jsonl", **how)
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()
    other = fit(tmp_path / "few.jsonl", **settings, seed=1)
    with pytest.raises(InputError, match="but it has others"):
        embed_part(other, pile, tmp_path / "answers", Part(1, 2), cache=None)


def test_damaged_parts_are_refused(tmp_path):
    (tmp_path / "few.csv").write_text("text,label\nabc,x\nabcc,x\nhhg,y\nhhh,y\n")
    fitted = fit(tmp_path / "few.csv", encoder=callable_encoder(letters, "letters", kind="text"), cache=None)
    pile = read_pile(tmp_path / "few.csv")
    place = tmp_path / "answers"
    embed_part(fitted, pile, place, Part(1, 1), cache=None)
    block = next((place / "_vectors").glob("block-*"))
    tensors, facts = read_container(block, dict, form=FORM, what="", remedy="")
    for name in tensors:
        others = {key: value for key, value in tensors.items() if key != name}
        write_container(block, others, facts, form=FORM)
        with pytest.raises(InputError, match=f"has no {name}: remove it, and run the part again"):
            classify_parts(place)
    write_container(block, tensors | {"texts": torch.tensor(1.0)}, facts, form=FORM)
    with pytest.raises(InputError, match="zero-dimensional tensor"):
        classify_parts(place)
    write_container(block, tensors, facts, form=FORM)
    manifest = place / "_vectors" / "_likelyshot.json"
    whole = json.loads(manifest.read_text())
    for key in whole["facts"]:
        facts = {other: value for other, value in whole["facts"].items() if other != key}
        manifest.write_text(json.dumps(whole | {"facts": facts}))
        with pytest.raises(InputError, match=f"the key '{key}' is missing"):
            classify_parts(place)

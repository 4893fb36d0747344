from __future__ import annotations

import json

import pytest

from likelyshot.data.splits import disjoint, load_split, packaged_splits
from likelyshot.errors import InputError, few


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mini_imagenet", (64, 16, 20)),
        ("tiered_imagenet", (351, 97, 160)),
        ("cub", (100, 50, 50)),
        ("cifar_fs", (64, 16, 20)),
        ("fc100", (60, 20, 20)),
        ("omniglot", (1028, 172, 423)),
    ],
)
def test_packaged_splits_have_the_published_sizes(name, sizes):
    split = load_split(name)
    assert list(split) == ["train", "val", "test"]
    assert tuple(map(len, split.values())) == sizes
    assert len({one for classes in split.values() for one in classes}) == sum(sizes)


def test_names_are_those_of_the_data_sets():
    assert set(packaged_splits()) == {"mini_imagenet", "tiered_imagenet", "cub", "cifar_fs", "fc100", "omniglot"}
    wnids = [one for name in ("mini_imagenet", "tiered_imagenet") for part in load_split(name).values() for one in part]
    assert all(wnid[0] == "n" and len(wnid) == 9 and wnid[1:].isdigit() for wnid in wnids)
    cifar = [{one for part in load_split(name).values() for one in part} for name in ("cifar_fs", "fc100")]
    assert cifar[0] == cifar[1]  # both are CIFAR-100
    assert sorted(int(one[:3]) for part in load_split("cub").values() for one in part) == list(range(1, 201))
    assert all(one.count("/") == 2 for part in load_split("omniglot").values() for one in part)


def test_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"test": ["ü"], "train": ["a", "b"]}), encoding="utf-8-sig")
    assert load_split(path) == {"train": ["a", "b"], "test": ["ü"]}
    assert load_split(str(path)) == load_split(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "truncated"),
        ("[1]", "is a list, not a table"),
        ("{}", "length at least 1"),
        ('{"train": ["a"], "valid": ["b"]}', "valid"),
        ('{"train": "abc"}', "is text, not a list"),
        ('{"train": []}', "length at least 1"),
        ('{"train": ["a", 1]}', "is a whole number, not text"),
        ('{"train": ["a", "b", "a"]}', "'a' twice"),
        ('{"train": ["a", "b"], "test": ["b", "c"]}', "1 in both train and test \\('b'\\)"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_split(path)


def test_files_that_cannot_be_read_and_unknown_names(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_split(tmp_path / "missing.json")
    (tmp_path / "latin.json").write_bytes(b'{"train": ["\xfc"]}')
    with pytest.raises(InputError, match="codec can't decode"):
        load_split(tmp_path / "latin.json")
    with pytest.raises(InputError, match="did you mean 'cub'"):
        load_split("cubs")


def test_disjoint_looks_at_every_pair():
    disjoint({"train": ["a"], "val": ["b"], "test": ["c"]})
    for parts in ({"train": ["a"], "val": ["a"]}, {"train": ["a"], "val": ["b"], "test": ["b"]}):
        with pytest.raises(InputError, match="disjoint"):
            disjoint(parts)


def test_few_names_only_a_few():
    assert few([]) == ""
    assert few(str(i) for i in range(3)) == "'0', '1', '2'"
    assert few(map(str, range(4))) == "'0', '1', '2', ..."

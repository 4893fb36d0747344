"""Names packed into bytes come back as they were, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from likelyshot.data.items import Numbered, PackedNames


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=20))
def test_packed_names_behave_as_a_list(names):
    packed = PackedNames(PackedNames.of(names).packed.copy())
    assert list(packed) == names
    assert packed[1:-1] == names[1:-1]
    assert packed[::-2] == names[::-2]
    for place in range(-len(names), len(names)):
        assert packed[place] == names[place]
    with pytest.raises(IndexError):
        packed[len(names)]


def test_bytes_that_are_no_text_are_kept_and_nulls_dropped():
    odd = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    assert list(PackedNames.of([odd, "a\0b"])) == [odd, "ab"]


def test_numbered_rows_behave_as_a_list():
    rows, plain = Numbered(5), [f"row {i}" for i in range(1, 6)]
    assert [item.name for item in rows] == plain
    assert [item.name for item in rows[1:9:2]] == plain[1:9:2]
    assert rows[-5].name == "row 1"
    with pytest.raises(IndexError):
        rows[5]

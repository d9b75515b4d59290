"""Values of JSON are counted without parsing it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.http.json_size import values_at_most

texts = st.text(st.sampled_from('",:[]{}\\\n\x00aé😀'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=40,
)


def counted(value: Any) -> int:
    """Values, keys among them; an empty container counts twice, as if it held one."""
    if isinstance(value, dict):
        return 1 + (sum(1 + counted(each) for each in value.values()) or 1)
    if isinstance(value, list):
        return 1 + (sum(map(counted, value)) or 1)
    return 1


@given(values, st.booleans())
def test_as_many_as_parsing_finds(value: object, in_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=in_ascii).encode()
    assert values_at_most(text, counted(value))
    assert not values_at_most(text, counted(value) - 1)


@pytest.mark.parametrize(
    "text",
    [b"[" * 2000, b"[" + b"[]," * 2000 + b"1]", b'{"' + b'","' * 2000, b'["' + b'\\\\","' * 2000],
    ids=["open", "lists", "strings", "backslashes"],
)
def test_too_many_are_found(text: bytes) -> None:
    assert not values_at_most(text, 1000)


def test_what_a_prompt_says_is_one_value() -> None:
    text = json.dumps({"prompt": '"a", [b]: {c},\\' * 10_000}).encode()
    assert values_at_most(text, 3)

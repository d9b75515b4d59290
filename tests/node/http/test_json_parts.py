"""The parts of a JSON body, counted in pieces without reading it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.http.completion_request import read_completion
from kakeya_fleet.node.http.json_parts import PIECE_BYTES, JsonParts
from kakeya_fleet.node.http.refusal import HttpRefusal

WORDS = st.text(alphabet='"\\,[{:]}a é\x00', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


def counted(pieces: Sequence[bytes]) -> tuple[int, int]:
    parts = JsonParts()
    for piece in pieces:
        parts.add(piece)
    return parts.comma_count, parts.part_count


def parts_of(value: Any) -> tuple[int, int]:
    """The same of what the JSON says."""
    if not isinstance(value, list | dict):
        return 0, 0
    inner = [parts_of(each) for each in (value.values() if isinstance(value, dict) else value)]
    members = len(value) if isinstance(value, dict) else 0
    commas = max(0, len(value) - 1) + sum(each[0] for each in inner)
    return commas, 1 + members + sum(each[1] for each in inner)


@given(value=VALUES, ascii_only=st.booleans(), size=st.integers(1, 9))
def test_what_is_counted_is_what_json_has(value: object, ascii_only: bool, size: int) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    pieces = [raw[first : first + size] for first in range(0, len(raw), size)]
    assert counted(pieces) == counted([raw]) == parts_of(value)


@pytest.mark.parametrize("backslashes", range(5))
def test_a_quote_behind_backslashes_over_the_end_of_a_piece(backslashes: int) -> None:
    raw = b'["' + b"a" * 20 + b"\\" * backslashes + b'", ["'
    whole = counted([raw])
    # An odd number keeps the string open, in which the rest lies.
    assert whole == ((0, 1) if backslashes % 2 else (1, 2))
    for cut in range(len(raw)):
        assert counted([raw[:cut], raw[cut:]]) == whole


def test_text_costs_nothing_of_the_bounds() -> None:
    text = json.dumps("def f(x): return {'a': [x, 1]}\n" * 20_000).encode()
    pieces = [text[first : first + PIECE_BYTES] for first in range(0, len(text), PIECE_BYTES)]
    assert len(pieces) > 2
    assert counted(pieces) == (0, 0)


def refused(prompt: object, n: int = 1) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as caught:
        read_completion({"model": "tiny", "prompt": prompt, "n": n})
    return caught.value


def test_prompts_are_told_apart_by_their_kinds() -> None:
    def prompts(value: object, n: int = 1) -> tuple[object, ...]:
        return read_completion({"model": "tiny", "prompt": value, "n": n}).prompts

    assert prompts("a") == ("a",)
    assert prompts(["a", "b"]) == ("a", "b")
    assert prompts([1, 2]) == ((1, 2),)
    assert prompts([1] * 1000, n=16) == ((1,) * 1000,)
    assert prompts([[1], [2, 3]]) == ((1,), (2, 3))
    wrong: object
    for wrong in (
        None, 7, [], [[]], [["a"]], [1, "a"], ["a", 1], ["a", [1]], [True], [1.0], [-1], [1 << 31],
        [[1], []], [None] * 100, {},
    ):  # fmt: skip
        assert "prompt is a string" in str(refused(wrong)), wrong


def test_too_many_prompts_are_refused_before_a_look_at_each() -> None:
    class Watched(list[int]):
        def __len__(self) -> int:
            raise AssertionError("a prompt was looked at")

    assert "prompts times n are 17, above 16" in str(refused([Watched()] * 17))
    assert "prompts times n are 20, above 16" in str(refused(["a"] * 10, n=2))

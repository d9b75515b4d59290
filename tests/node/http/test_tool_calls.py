import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.http.tool_calls import ToolCall, ToolCallReader

CALL = {"name": "weather", "arguments": {"city": "Oslo"}}
HERMES = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
MISTRAL = f"[TOOL_CALLS] [{json.dumps(CALL)}, {json.dumps(CALL)}]"
UNCALLABLE = '<tool_call>{"name": "weather", "arguments": 3}</tool_call>'
LLAMA = json.dumps({"name": "weather", "parameters": {"city": "Oslo"}})

CASES: list[tuple[str, str, int]] = [
    (HERMES, "", 1),
    (HERMES + "\n" + HERMES, "", 2),
    ("Let me look.\n" + HERMES, "Let me look.\n", 1),
    # The end of a call is often the end of the answer.
    (HERMES.removesuffix("</tool_call>"), "", 1),
    (MISTRAL, "", 2),
    (LLAMA, "", 1),
    ("<|python_tag|>" + LLAMA, "", 1),
    ("  " + LLAMA, "", 1),
    # What is no call is text, as it was written.
    ("no call at all", "no call at all", 0),
    ("a < b, [TOOL", "a < b, [TOOL", 0),
    ("", "", 0),
    ("  ", "  ", 0),
    ('{"name": "other", "parameters": {}}', '{"name": "other", "parameters": {}}', 0),
    ('{"answer": 42}', '{"answer": 42}', 0),
    ("<tool_call>{broken</tool_call>", "<tool_call>{broken</tool_call>", 0),
    (HERMES + " and then text", HERMES + " and then text", 0),
    (UNCALLABLE, UNCALLABLE, 0),
]


def read(text: str, sizes: list[int]) -> tuple[str, str, tuple[ToolCall, ...]]:
    reader, shown, at = ToolCallReader(["weather"]), "", 0
    for size in [*sizes, len(text)]:
        shown += reader.push(text[at : at + size])
        at += size
    rest, calls = reader.finish()
    return shown, rest, calls


@pytest.mark.parametrize(("text", "expected", "count"), CASES)
def test_calls_are_read_out_of_the_text(text: str, expected: str, count: int) -> None:
    shown, rest, calls = read(text, [])
    assert (shown + rest, len(calls)) == (expected, count)
    assert all(call.name == "weather" for call in calls)
    assert all(json.loads(call.arguments) == {"city": "Oslo"} for call in calls)


@given(case=st.sampled_from(CASES), sizes=st.lists(st.integers(1, 7), max_size=30))
def test_the_cuts_between_pieces_change_nothing(
    case: tuple[str, str, int], sizes: list[int]
) -> None:
    text, expected, count = case
    shown, rest, calls = read(text, sizes)
    assert (shown + rest, len(calls)) == (expected, count)


def test_text_in_front_of_a_call_does_not_wait() -> None:
    reader = ToolCallReader(["weather"])
    assert reader.push("Let me look. <to") == "Let me look. "
    assert reader.push("ast is text too") == "<toast is text too"

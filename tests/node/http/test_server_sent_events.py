import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.node.http.server_sent_events import DONE, KEEP_ALIVE, event

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def read(stream: bytes) -> list[str]:
    """What a client makes of a stream, by the letter of the standard."""
    found: list[str] = []
    data: list[str] = []
    text = stream.decode().replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        if not line:
            if data:
                found.append("\n".join(data))
            data = []
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
    return found


@settings(max_examples=40)
@given(st.lists(JSON, max_size=5))
def test_every_text_comes_out_as_it_went_in(items: list[object]) -> None:
    stream = KEEP_ALIVE + b"".join(map(event, items)) + KEEP_ALIVE + DONE
    *told, last = read(stream)
    assert [json.loads(each) for each in told] == items
    assert last == "[DONE]"

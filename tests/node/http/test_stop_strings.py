from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.http.stop_strings import StopStrings

# Few letters, so that stop strings overlap with themselves and with each other.
LETTERS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=4)


def cut(text: str, stops: list[str]) -> str:
    """What is left of the whole text: up to the stop string that is complete first."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 24), max_size=8))
def test_the_cuts_between_pieces_change_nothing(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    holder = StopStrings(stops)
    edges = sorted({0, len(text), *(min(at, len(text)) for at in cuts)})
    shown = "".join(holder.push(text[start:end]) for start, end in pairwise(edges))
    assert shown + holder.flush() == cut(text, stops)
    assert (holder.stopped_at is not None) == any(stop in text for stop in stops)


@given(text=LETTERS, stops=STOPS)
def test_nothing_is_held_that_cannot_begin_a_stop_string(text: str, stops: list[str]) -> None:
    holder, shown = StopStrings(stops), ""
    for kept, letter in enumerate(text, 1):
        shown += holder.push(letter)
        if holder.stopped_at is not None:
            return
        held = text[len(shown) : kept]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_nothing_comes_after_a_stop_string() -> None:
    holder = StopStrings(["END"])
    assert [holder.push(piece) for piece in ("oneE", "NDtwo", "three")] == ["one", "", ""]
    assert holder.flush() == ""
    assert holder.stopped_at == "END"

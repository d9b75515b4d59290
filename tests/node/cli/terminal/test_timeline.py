from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.node.cli.terminal.timeline import ASCII, draw_timeline


@dataclass(frozen=True)
class Timing:
    first_index: int = 0
    drafted_count: int = 4
    accepted_count: int = 3
    draft_seconds: float = 0.01
    wire_seconds: float = 0.01
    wait_seconds: float = 0.02
    verify_seconds: float = 0.08
    drafted_ahead: bool = False
    start_seconds: float = 0.0


def bars(text: str) -> list[str]:
    return [line.partition("|")[2].rpartition("|")[0] for line in text.splitlines()[1:-1]]


def test_nothing_is_drawn_without_blocks() -> None:
    assert draw_timeline([]) == ""


def test_parts_are_drawn_to_scale_one_after_the_other() -> None:
    assert bars(draw_timeline([Timing()], width=10, brush=ASCII)) == ["d~VVVVVVVV"]


def test_a_draft_made_ahead_lies_under_the_verify_forward_before_it() -> None:
    blocks = [
        Timing(first_index=0),
        Timing(first_index=4, start_seconds=0.1, wait_seconds=0.0, drafted_ahead=True),
    ]
    first, second = bars(draw_timeline(blocks, width=18, brush=ASCII))
    assert first == "d~VVVVVVVV" + " " * 8
    assert second == "  d~      VVVVVVVV"


def test_a_block_without_a_draft_says_that_the_verifier_was_alone() -> None:
    text = draw_timeline([Timing(drafted_count=0, accepted_count=0, wait_seconds=0)], brush=ASCII)
    assert "alone" in text
    assert set(bars(text)[0]) == {"V"}


def test_only_the_last_rows_are_shown_and_the_text_says_so() -> None:
    blocks = [Timing(first_index=index, start_seconds=index / 10) for index in range(30)]
    lines = draw_timeline(blocks, row_count=5, brush=ASCII).splitlines()
    assert [int(line.split()[0]) for line in lines[1:-1]] == [25, 26, 27, 28, 29]
    assert lines[-1].startswith("the last 5 of 30 blocks")


def test_waiting_and_drafting_ahead_are_summed_over_all_blocks() -> None:
    blocks = [
        Timing(wait_seconds=0.02, verify_seconds=0.08),
        Timing(start_seconds=0.1, wait_seconds=0.0, verify_seconds=0.1, drafted_ahead=True),
    ]
    text = draw_timeline(blocks, brush=ASCII)
    assert "waiting for drafts 10 %" in text
    assert "1 of 2 drafts made ahead" in text


@dataclass(frozen=True)
class Changed:
    start_seconds: float
    transport: str = "ring"


def test_a_change_of_a_link_has_a_row_at_its_time() -> None:
    blocks = [
        Timing(first_index=0),
        Timing(first_index=4, start_seconds=0.1),
    ]
    text = draw_timeline(blocks, [Changed(0.1), Changed(7.0)], width=20, brush=ASCII)
    first, second, mark = bars(text)
    assert mark == " " * 10 + "^" + " " * 9
    assert text.splitlines()[3].split()[:2] == ["link", "ring"]
    assert (first.strip(), second.strip()) == ("d~VVVVVVVV",) * 2
    early = draw_timeline(blocks, [Changed(0.05, "grpc")], width=20, brush=ASCII).splitlines()
    assert early[2].split()[:2] == ["link", "grpc"]


SECONDS = st.floats(0, 5, allow_nan=False)
TIMINGS = st.builds(
    Timing,
    first_index=st.integers(0, 10_000),
    drafted_count=st.integers(0, 15),
    accepted_count=st.integers(0, 15),
    draft_seconds=SECONDS,
    wire_seconds=SECONDS,
    wait_seconds=SECONDS,
    verify_seconds=SECONDS,
    drafted_ahead=st.booleans(),
    start_seconds=SECONDS,
)


@settings(max_examples=60)
@given(
    st.lists(TIMINGS, min_size=1, max_size=20),
    st.lists(st.builds(Changed, SECONDS), max_size=3),
    st.integers(4, 60),
)
def test_every_row_is_exactly_as_wide_as_the_axis(
    blocks: list[Timing], changes: list[Changed], width: int
) -> None:
    for bar in bars(draw_timeline(blocks, changes, width=width, brush=ASCII)):
        assert len(bar) == width
        assert set(bar) <= set("d~V ") or bar.strip() == "^"

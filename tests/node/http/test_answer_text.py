from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kakeya import Alternative, Tokens
from kakeya.text import Detokenizer
from kakeya_fleet.node.http.answer_text import AnswerText, Piece

END = 999


def spelled(text: str) -> list[int]:
    """A token a byte: most characters beyond ASCII take several."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    return bytes(each for each in ids if each != END).decode(errors="replace")


def blocks(ids: list[int], sizes: list[int], *, scored: bool) -> list[Tokens]:
    found, at = [], 0
    for size in [*sizes, len(ids)]:
        part = ids[at : at + size]
        if part:
            scores = tuple(-float(at + place) for place in range(len(part))) if scored else ()
            tops = tuple((Alternative(each, -1.0),) for each in part) if scored else ()
            found.append(Tokens(tuple(part), at, 0, scores, tops))
        at += size
    return found


def answered(
    ids: list[int], stops: Sequence[str], sizes: list[int], *, scored: bool = False
) -> tuple[list[Piece], AnswerText]:
    answer = AnswerText(Detokenizer(decode), stops, (END,))
    pieces = [answer.push(block) for block in blocks(ids, sizes, scored=scored)]
    return [*pieces, answer.finish()], answer


SIZES = st.lists(st.integers(1, 5), max_size=8)


@given(
    text=st.text("aé€😀", max_size=12), stop=st.text("aé€😀", min_size=1, max_size=3), sizes=SIZES
)
def test_stop_strings_of_characters_of_several_tokens(
    text: str, stop: str, sizes: list[int]
) -> None:
    pieces, answer = answered(spelled(text), [stop], sizes)
    assert "".join(piece.text for piece in pieces) == text.partition(stop)[0]
    assert answer.stopped == (stop in text)
    before, found, _ = text.partition(stop)
    assert answer.token_count == len(spelled(before + found))


@given(text=st.text("aé€😀", max_size=12), sizes=SIZES)
def test_every_token_comes_once_with_its_place(text: str, sizes: list[int]) -> None:
    pieces, _answer = answered(spelled(text), [], sizes, scored=True)
    tokens = [token for piece in pieces for token in piece.tokens]
    assert [token.token_id for token in tokens] == spelled(text)
    assert [token.log_probability for token in tokens] == [-float(i) for i in range(len(tokens))]
    # The tokens of a character stand where it begins.
    expected = [place for place, letter in enumerate(text) for _ in letter.encode()]
    assert [token.offset for token in tokens] == expected


def test_tokens_behind_a_stop_string_are_not_told() -> None:
    pieces, _answer = answered(spelled("one STOP two"), ["STOP"], [3, 2, 2], scored=True)
    tokens = [token for piece in pieces for token in piece.tokens]
    assert decode([token.token_id for token in tokens]) == "one "


def test_the_token_that_ends_an_answer_has_no_text() -> None:
    pieces, answer = answered([*spelled("yes"), END], [], [])
    assert "".join(piece.text for piece in pieces) == "yes"
    assert answer.token_count == 4


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    pieces, _answer = answered(spelled("€")[:2], [], [])
    assert "".join(piece.text for piece in pieces) == "\ufffd"

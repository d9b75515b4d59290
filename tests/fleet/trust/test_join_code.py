from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.fleet.errors import JoinCodeMalformed
from kakeya_fleet.fleet.trust.join_code import (
    JoinCode,
    JoinCodeKind,
    long_code,
    parse_join_code,
    short_code,
)

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ADDRESS = "192.168.1.5:41873"
nameplates = st.integers(0, 999).map("{:03}".format)
passwords = st.integers(0, 999_999).map("{:06}".format)
secrets = st.binary(min_size=16, max_size=16)


def test_a_short_code_is_read_as_people_type_it() -> None:
    wanted = JoinCode(JoinCodeKind.SHORT, "012", b"345678")
    assert short_code("012", "345678") == "012-345-678"
    for typed in ("012-345-678", "012345678", " 012 345 678\n", "012–345—678", "O12-345-678"):
        assert parse_join_code(typed) == wanted


@given(nameplates, passwords)
def test_every_short_code_comes_back(nameplate: str, password: str) -> None:
    code = parse_join_code(short_code(nameplate, password))
    assert (code.nameplate, code.secret) == (nameplate, password.encode())


@given(nameplates, secrets)
def test_every_long_code_comes_back_however_it_is_written(nameplate: str, secret: bytes) -> None:
    wanted = JoinCode(JoinCodeKind.LONG, nameplate, secret, ADDRESS)
    code = long_code(ADDRESS, nameplate, secret)
    assert parse_join_code(code) == wanted
    assert parse_join_code(f"  {code.replace('-', ' ').lower()} ") == wanted


def test_letters_that_look_like_digits_are_those_digits() -> None:
    code = long_code("host:1", "000", bytes(16))
    assert parse_join_code(code[:7] + code[7:].replace("0", "o")).secret == bytes(16)


@given(nameplates, secrets, st.integers(0, 29), st.sampled_from(ALPHABET))
def test_one_wrong_character_is_found(nameplate: str, secret: bytes, at: int, other: str) -> None:
    symbols = list(long_code(ADDRESS, nameplate, secret).partition("#")[2].replace("-", ""))
    if symbols[at] == other:
        return
    symbols[at] = other
    with pytest.raises(JoinCodeMalformed, match="mistyped"):
        parse_join_code(f"{ADDRESS}#{''.join(symbols)}")


@given(nameplates, secrets, st.integers(0, 28))
def test_two_neighbours_that_changed_places_are_found(
    nameplate: str, secret: bytes, at: int
) -> None:
    symbols = list(long_code(ADDRESS, nameplate, secret).partition("#")[2].replace("-", ""))
    if symbols[at] == symbols[at + 1]:
        return
    symbols[at : at + 2] = reversed(symbols[at : at + 2])
    with pytest.raises(JoinCodeMalformed, match="mistyped"):
        parse_join_code(f"{ADDRESS}#{''.join(symbols)}")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "neither nine digits"),
        ("12-345-678", "8 digits, not nine"),
        ("123-456-7890", "10 digits, not nine"),
        ("hello", "neither nine digits"),
        ("١٢٣٤٥٦٧٨٩", "neither nine digits"),
        ("#0F5D2", "before the #"),
        ("host:0#0F5D2", "before the #"),
        ("host:70#0F5D2", "5 characters, not 30"),
        ("host:70#0F5D$", "the character '$'"),
        (long_code("host:70", "123", bytes(16)).partition("#")[2], "lacks its address"),
        ("9" * 600, "600 characters"),
    ],
)
def test_what_is_no_code_is_told_as_such(typed: str, said: str) -> None:
    with pytest.raises(JoinCodeMalformed, match=said.replace("$", r"\$")):
        parse_join_code(typed)


@given(st.text(max_size=60))
def test_any_text_is_a_code_or_malformed(text: str) -> None:
    try:
        code = parse_join_code(text)
    except JoinCodeMalformed:
        return
    assert len(code.nameplate) == 3
    assert len(code.secret) in (6, 16)


def test_a_code_that_is_shown_shows_no_secret() -> None:
    assert "345678" not in repr(parse_join_code("012-345-678"))

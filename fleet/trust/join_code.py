"""The two codes of an invitation: nine digits to type, and one line to paste.

    123-456-789                                       nameplate, password
    192.168.1.5:41873#0F5D2-XK8QA-9C3ZN-7WE1H-TB6RM-04VJK

The first three digits are the nameplate: it finds the invitation and is no secret. The six
others are a password of a million values, which is safe only where each guess costs a try. The
long code carries 128 random bits in Crockford's base32, behind the address of the node that
invites. Its last two characters are a CRC of ten bits: one wrong character, or two neighbours
that changed places, are a burst of at most ten bits, which it always finds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.errors import JoinCodeMalformed

NAMEPLATES = 1000
NAMEPLATE_DIGITS = 3
PASSWORDS = 10**6
SECRET_BYTES = 16
MAX_CODE_CHARACTERS = 512

_PASSWORD_DIGITS = 6
_DIGITS = NAMEPLATE_DIGITS + _PASSWORD_DIGITS
# Without I, L, O and U, which are mistaken for others (crockford.com/base32.html).
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {symbol: value for value, symbol in enumerate(_ALPHABET)}
_READ_AS = str.maketrans({"O": "0", "I": "1", "L": "1"})
# 10 bits of nameplate and 128 of secret in 28 characters, then two of the check.
_DATA_SYMBOLS, _CHECK_SYMBOLS, _GROUP = 28, 2, 5
_SYMBOLS = _DATA_SYMBOLS + _CHECK_SYMBOLS
_SECRET_BITS = 8 * SECRET_BYTES
# x^10 + x^9 + x^5 + x^4 + x + 1, the CRC of ITU-T I.610.
_CRC_BITS, _CRC_POLYNOMIAL = 10, 0x633
# Spaces and every dash that a word processor makes of a hyphen.
_SEPARATORS = re.compile(r"[\s\-‐‑‒–—−_.]+")


class JoinCodeKind(StrEnum):
    """Which of an invitation's two codes it is."""

    SHORT = "SHORT"
    LONG = "LONG"


@dataclass(frozen=True, slots=True)
class JoinCode:
    """A code as it was read. `address` is host:port, empty for a short one.

    `nameplate` has three digits. `secret` is what both sides must know: six ASCII digits, or 16
    bytes; it is in no repr, and so in no log.
    """

    kind: JoinCodeKind
    nameplate: str
    secret: bytes = field(repr=False)
    address: str = ""


def short_code(nameplate: str, password: str) -> str:
    """The code to type, `123-456-789`."""
    half = _PASSWORD_DIGITS // 2
    return f"{nameplate}-{password[:half]}-{password[half:]}"


def long_code(address: str, nameplate: str, secret: bytes) -> str:
    """The code to paste: `address` is host:port, `secret` has 16 bytes."""
    data = int(nameplate) << _SECRET_BITS | int.from_bytes(secret, "big")
    number = data << _CRC_BITS
    number |= _remainder(number)
    symbols = "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_SYMBOLS)))
    groups = (symbols[start : start + _GROUP] for start in range(0, _SYMBOLS, _GROUP))
    return f"{address}#{'-'.join(groups)}"


def parse_join_code(text: str) -> JoinCode:
    """The code, whatever its case, spaces and hyphens; raises `JoinCodeMalformed`."""
    if len(text) > MAX_CODE_CHARACTERS:
        raise JoinCodeMalformed(f"a code has no {len(text)} characters")
    address, hash_sign, secret = text.partition("#")
    if hash_sign:
        return _parse_long(address, secret)
    symbols = _symbols(text)
    if len(symbols) == _SYMBOLS and set(symbols) <= _VALUES.keys():
        raise JoinCodeMalformed("the code lacks its address: it is HOST:PORT#SECRET")
    if not (symbols.isascii() and symbols.isdigit()):
        raise JoinCodeMalformed(f"{_shown(text)} is neither nine digits nor HOST:PORT#SECRET")
    if len(symbols) != _DIGITS:
        raise JoinCodeMalformed(f"the code has {len(symbols)} digits, not nine")
    nameplate, password = symbols[:NAMEPLATE_DIGITS], symbols[NAMEPLATE_DIGITS:]
    return JoinCode(JoinCodeKind.SHORT, nameplate, password.encode("ascii"))


def _parse_long(address: str, secret: str) -> JoinCode:
    try:
        parse_address(address.strip())
    except ValueError as error:
        raise JoinCodeMalformed(f"before the #, {error}") from error
    symbols = _symbols(secret)
    strange = sorted(set(symbols) - _VALUES.keys())
    if strange:
        raise JoinCodeMalformed(f"no code has the character {strange[0]!r}")
    if len(symbols) != _SYMBOLS:
        raise JoinCodeMalformed(f"behind the # are {len(symbols)} characters, not {_SYMBOLS}")
    number = 0
    for symbol in symbols:
        number = number << 5 | _VALUES[symbol]
    if _remainder(number):
        raise JoinCodeMalformed("a character of the code is mistyped: its check does not fit")
    data = number >> _CRC_BITS
    nameplate = data >> _SECRET_BITS
    if nameplate >= NAMEPLATES:
        raise JoinCodeMalformed("this is no code of a join, though its check fits")
    low = data & (1 << _SECRET_BITS) - 1
    return JoinCode(
        JoinCodeKind.LONG,
        f"{nameplate:0{NAMEPLATE_DIGITS}}",
        low.to_bytes(SECRET_BYTES, "big"),
        address.strip(),
    )


def _symbols(text: str) -> str:
    """In capitals, without separators, with digits for the letters that look like them."""
    return _SEPARATORS.sub("", text).upper().translate(_READ_AS)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _remainder(number: int) -> int:
    """Of the division by the CRC's polynomial, over GF(2)."""
    for place in reversed(range(_CRC_BITS, 5 * _SYMBOLS)):
        if number >> place & 1:
            number ^= _CRC_POLYNOMIAL << place - _CRC_BITS
    return number

"""Amounts of memory as people write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AMOUNT = re.compile(r"([0-9]{1,15})[ ]?([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """Bytes of a whole number with B, KiB, MiB, GiB or TiB, or none: `512MiB`.

    Raises `ValueError`: for units of 1,000 too, since who writes MB may mean either.
    """
    match = _AMOUNT.fullmatch(text)
    unit = match[2] if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is no whole number of bytes, KiB, MiB, GiB or TiB")
    return int(match[1]) * _UNITS[unit]

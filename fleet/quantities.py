"""Numbers with units, as people read and write them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AMOUNT = re.compile(r"([0-9]{1,15})[ ]?([A-Za-z]*)")


def bytes_text(count: int) -> str:
    """Such as "512 B", "1.5 MiB"."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024.0:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024.0
    return f"{amount:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Such as "85 us", "3.20 ms", "1.50 s"."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1.0:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds:.2f} s"


def parse_bytes(text: str) -> int:
    """Bytes of a whole number with B, KiB, MiB, GiB or TiB, or none: `512MiB`.

    Raises `ValueError`: for units of 1,000 too, since who writes MB may mean either.
    """
    match = _AMOUNT.fullmatch(text)
    unit = match[2] if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is no whole number of bytes, KiB, MiB, GiB or TiB")
    return int(match[1]) * _UNITS[unit]

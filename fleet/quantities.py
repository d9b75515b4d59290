"""Numbers with units, for sentences that people read."""

from __future__ import annotations


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

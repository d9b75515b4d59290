"""Quantities as people read them: bytes, seconds, speeds, hashes."""

from __future__ import annotations

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_text(count: int) -> str:
    """Bytes with a binary unit: `512 B`, `3.10 GiB`."""
    unit = _unit_of(count)
    return f"{_in_unit(count, unit)} {_BINARY_UNITS[unit]}"


def exact_bytes_text(count: int) -> str:
    """Bytes as `fleet join` takes them: `512MiB`, `3GiB`, `1000B`."""
    unit = 0
    while count and count % 1024 ** (unit + 1) == 0 and unit < len(_BINARY_UNITS) - 1:
        unit += 1
    return f"{count // 1024**unit}{_BINARY_UNITS[unit]}"


def share_of_bytes_text(part: int, whole: int) -> str:
    """Two amounts in the unit of the larger one: `1.92 / 23.5 GiB`."""
    unit = _unit_of(max(part, whole))
    return f"{_in_unit(part, unit)} / {_in_unit(whole, unit)} {_BINARY_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """A duration: `42 us`, `0.42 ms`, `9.81 ms`, `1.24 s`, `3 min 20 s`; `?` for a negative one.

    Other machines tell durations too, and clocks are set back.
    """
    if seconds < 0:
        return "?"
    if seconds == 0:
        return "0 s"
    if seconds < 1e-4:
        return f"{_three_digits(seconds * 1e6)} us"
    if seconds < 1:
        return f"{_three_digits(seconds * 1e3)} ms"
    if seconds < 60:
        return f"{_three_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def rate_text(bytes_per_second: float) -> str:
    """Bytes a second with a decimal unit, as networks are sold: `940 MB/s`; `-` when not known."""
    if bytes_per_second <= 0:
        return "-"
    for unit in ("B", "kB", "MB"):
        if bytes_per_second < 999.5:
            return f"{_three_digits(bytes_per_second)} {unit}/s"
        bytes_per_second /= 1000
    return f"{_three_digits(bytes_per_second)} GB/s"


def speed_text(tokens_per_second: float) -> str:
    """Tokens a second: `328 tok/s`, `9.41 tok/s`; `-` when it is not known."""
    return f"{_three_digits(tokens_per_second)} tok/s" if tokens_per_second > 0 else "-"


def short_speed(tokens_per_second: float) -> str:
    """Tokens a second without the unit: `328`, `9.41`; `-` when it is not known."""
    return _three_digits(tokens_per_second) if tokens_per_second > 0 else "-"


def count_text(count: int) -> str:
    """A count in few characters: `999`, `12.3k`, `4.10M`."""
    if count < 10_000:
        return str(count)
    if count < 999_500:
        return f"{_three_digits(count / 1e3)}k"
    return f"{_three_digits(count / 1e6)}M"


def ratio_text(part: float, whole: float) -> str:
    """How many times `whole` fits into `part`: `2.31x`; `-` without a whole."""
    return f"{part / whole:.2f}x" if whole > 0 else "-"


def share_text(part: float, whole: float) -> str:
    """A share in per cent: `93 %`; `-` without a whole."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def told_share_text(share: float | None) -> str:
    """A share that a node told, of 0 to 1, in per cent: `93 %`; `-` where it told none."""
    return "-" if share is None else share_text(min(1.0, max(0.0, share)), 1.0)


def _unit_of(count: int) -> int:
    unit = 0
    while count >= 1024 ** (unit + 1) and unit < len(_BINARY_UNITS) - 1:
        unit += 1
    return unit


def _in_unit(count: int, unit: int) -> str:
    return str(count) if unit == 0 else _three_digits(count / 1024**unit)


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"

"""How long ago, or for how long: `10m`, `90s`, `2h`, `1d`."""

from __future__ import annotations

import re

import click

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")


NEVER = "never"


class Duration(click.ParamType[float]):
    """A number with s, m, h or d; seconds without. `never` is 0 where it may be given."""

    name = "DURATION"

    def __init__(self, *, or_never: bool = False) -> None:
        self._or_never = or_never

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; refuses what is no duration."""
        if self._or_never and value.strip() == NEVER:
            return 0.0
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is no duration: give one such as 90s, 10m, 2h or 1d", param, ctx)
        return float(match[1]) * _UNITS[match[2] or "s"]

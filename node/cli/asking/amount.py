"""Bytes as people write them on the command line."""

from __future__ import annotations

import click


class Amount(click.ParamType[int]):
    """Bytes, written as `fleet join --serve archive=` takes them, or as a whole number."""

    name = "AMOUNT"

    def __init__(self, *, or_none: bool = False) -> None:
        """0 bytes are refused but with `or_none`."""
        self._or_none = or_none

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The bytes; refuses what is no amount."""
        from kakeya_fleet.fleet.quantities import parse_bytes

        try:
            found = parse_bytes(str(value))
        except ValueError as error:
            self.fail(f"{error}: write such as 24GiB or 512MiB", param, ctx)
        if not found and not self._or_none:
            self.fail("0 bytes hold nothing: write such as 24GiB or 512MiB", param, ctx)
        return found

"""What `fleet fit` is told: an amount of memory, and a model's shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.model_shape import ModelShape

REQUIRED = ("layers", "kv-heads", "head-dim", "parameters")
OPTIONAL = ("positions", "sliding-window")
MOST = {
    "layers": 4096,
    "kv-heads": 1 << 16,
    "head-dim": 1 << 16,
    "parameters": 10**15,
    "positions": 2**32 - 1,
    "sliding-window": 2**32 - 1,
}
"""Beyond every model that there is."""


class Memory(click.ParamType[int]):
    """Bytes, written as `fleet join --serve archive=` takes them."""

    name = "AMOUNT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The bytes; refuses what is no amount, and none."""
        from kakeya_fleet.fleet.quantities import parse_bytes

        try:
            found = parse_bytes(str(value))
        except ValueError as error:
            self.fail(f"{error}: write such as 24GiB or 512MiB", param, ctx)
        if not found:
            self.fail("0 bytes hold no model: write such as 24GiB or 512MiB", param, ctx)
        return found


class Shape(click.ParamType["ModelShape"]):
    """A model's sizes: `layers=32,kv-heads=8,head-dim=128,parameters=7e9`."""

    name = "SIZES"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ModelShape:
        """The shape; refuses fields that are missing, unknown, given twice or no such number."""
        from kakeya_fleet.engine.contracts.model_shape import ModelShape

        fields: dict[str, int] = {}
        for part in str(value).split(","):
            name, equals, text = part.strip().partition("=")
            if not equals or name not in MOST:
                known = ", ".join((*REQUIRED, *OPTIONAL))
                self.fail(f"{part.strip()!r} is no field of a shape; they are {known}", param, ctx)
            if name in fields:
                self.fail(f"{name} is given twice", param, ctx)
            number = _whole(text)
            if number is None or not 1 <= number <= MOST[name]:
                self.fail(
                    f"{name} is {text!r}: give a whole number of 1 to {MOST[name]:,}", param, ctx
                )
            fields[name] = number
        missing = [name for name in REQUIRED if name not in fields]
        if missing:
            self.fail(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: write such"
                " as layers=32,kv-heads=8,head-dim=128,parameters=7e9",
                param,
                ctx,
            )
        return ModelShape(
            layers=fields["layers"],
            kv_heads=fields["kv-heads"],
            head_dim=fields["head-dim"],
            parameters=fields["parameters"],
            positions=fields.get("positions", 0),
            sliding_window=fields.get("sliding-window", 0),
        )


def _whole(text: str) -> int | None:
    """A whole number, also one such as 7e9 or 6.74e9; None for anything else."""
    try:
        found = float(text)
    except ValueError:
        return None
    if not math.isfinite(found) or found != int(found):
        return None
    return int(text) if text.isascii() and text.isdigit() else int(found)

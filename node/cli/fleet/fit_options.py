"""What `fleet fit` is told besides the model: memory, tokens, weights; and a model's shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.amount import Amount
from kakeya_fleet.node.cli.asking.kv_options import WindowChoice, window_options

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


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for; None leaves it to the machine, the model and the node."""

    weights: str
    memory_bytes: int | None
    context_tokens: int | None
    window: WindowChoice


_OPTIONS = (
    click.option(
        "--weights",
        type=click.Choice(["auto", "bf16", "int8", "int4"]),
        default="auto",
        show_default=True,
        help="What products take the weights as, as `fleet join` has it.",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        type=Amount(),
        help="Memory for weights, keys and values, such as 24GiB. Default: what is free here, or "
        "in this container.",
    ),
    click.option(
        "--context",
        "context_tokens",
        type=click.IntRange(1, 2**32 - 1),
        help="Tokens of the history. Default: all positions of the model.",
    ),
)


def asked_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--weights`, `--memory`, `--context`, `--sink` and `--window`, as one `Asked`, `asked`."""

    @wraps(command)
    def collecting(
        *args: object,
        weights: str,
        memory_bytes: int | None,
        context_tokens: int | None,
        window: WindowChoice,
        **kwargs: object,
    ) -> int:
        asked = Asked(weights, memory_bytes, context_tokens, window)
        return command(*args, asked=asked, **kwargs)

    decorated = window_options(collecting)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

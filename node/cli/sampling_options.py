"""Options that say how tokens are chosen and how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def max_tokens_option(default: int) -> Callable[[Decorated], Decorated]:
    """`--max-tokens`: the longest answer."""

    def decorate(command: Decorated) -> Decorated:
        return click.option(
            "--max-tokens",
            type=click.IntRange(1, 1_048_576),
            default=default,
            show_default=True,
            help="Tokens to generate at most.",
        )(command)

    return decorate


def sampling_options(command: Decorated) -> Decorated:
    """`--temperature`, `--top-p`, `--top-k`, `--seed`."""
    temperature = click.option(
        "--temperature",
        type=click.FloatRange(0, 100),
        default=0.0,
        show_default=True,
        help="0 is greedy.",
    )
    top_p = click.option(
        "--top-p",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Keep the likeliest tokens that together reach this probability.",
    )
    top_k = click.option(
        "--top-k",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Keep the K likeliest tokens; 0 keeps all.",
    )
    seed = click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        help="The same seed gives the same tokens. Default: the node draws one.",
    )
    return temperature(top_p(top_k(seed(command))))

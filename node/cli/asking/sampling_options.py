"""Options that say how tokens are chosen and how many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from kakeya import GenerateOptions

Decorated = TypeVar("Decorated", bound=Callable[..., object])

MAX_BIAS = 1e4


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; temperature 0 is greedy, `seed` None is drawn by the node."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def options(self, top_log_probabilities: int | None = None) -> GenerateOptions:
        """For `Session.generate`."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "logit_bias": self.logit_bias,
            "seed": self.seed,
            "top_log_probabilities": top_log_probabilities,
        }


class Bias(click.ParamType[tuple[int, float]]):
    """ID=VALUE: what is added to the logit of a token id."""

    name = "ID=VALUE"

    def convert(
        self,
        value: str | tuple[int, float],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[int, float]:
        """The id and its bias; refuses what is neither."""
        if isinstance(value, tuple):
            return value
        token_id, _, bias = value.partition("=")
        try:
            given = int(token_id), float(bias)
        except ValueError:
            self.fail(f"{value!r} is no bias: give ID=VALUE, such as 42=-5", param, ctx)
        if given[0] < 0:
            self.fail(f"{given[0]} is no token id: ids begin at 0", param, ctx)
        if given[1] != -math.inf and not abs(given[1]) <= MAX_BIAS:
            self.fail(
                f"{bias} is no bias: give -{MAX_BIAS:g} to {MAX_BIAS:g}, or -inf to ban the id",
                param,
                ctx,
            )
        return given


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


def _collected(command: Callable[..., int]) -> Callable[..., int]:
    """The command, given `sampling` in place of an argument an option."""

    @wraps(command)
    def collecting(  # noqa: PLR0913 - one parameter an option
        *args: object,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        repetition_penalty: float,
        frequency_penalty: float,
        presence_penalty: float,
        biases: tuple[tuple[int, float], ...],
        seed: int | None,
        **kwargs: object,
    ) -> int:
        if len(dict(biases)) < len(biases):
            raise click.UsageError("--logit-bias names a token id twice; give each id once")
        kwargs["sampling"] = Sampling(
            temperature,
            top_p,
            top_k,
            min_p,
            repetition_penalty,
            dict(biases),
            seed,
            frequency_penalty,
            presence_penalty,
        )
        return command(*args, **kwargs)

    return collecting


_OPTIONS = (
    click.option(
        "--temperature",
        type=click.FloatRange(0, 100),
        default=0.0,
        show_default=True,
        help="0 is greedy.",
    ),
    click.option(
        "--top-p",
        type=click.FloatRange(0, 1, min_open=True),
        default=1.0,
        show_default=True,
        help="Keep the likeliest tokens that together reach this probability.",
    ),
    click.option(
        "--top-k",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Keep the K likeliest tokens; 0 keeps all.",
    ),
    click.option(
        "--min-p",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Keep tokens at least this many times as likely as the likeliest.",
    ),
    click.option(
        "--repetition-penalty",
        type=click.FloatRange(1 / 64, 64),
        default=1.0,
        show_default=True,
        help="Above 1 makes tokens of the prompt and the answer less likely to come again.",
    ),
    click.option(
        "--frequency-penalty",
        type=click.FloatRange(-2, 2),
        default=0.0,
        show_default=True,
        help="Above 0 makes tokens less likely each time that the answer has them.",
    ),
    click.option(
        "--presence-penalty",
        type=click.FloatRange(-2, 2),
        default=0.0,
        show_default=True,
        help="Above 0 makes tokens that the answer has less likely, however often.",
    ),
    click.option(
        "--logit-bias",
        "biases",
        type=Bias(),
        multiple=True,
        metavar="ID=VALUE",
        help="Add VALUE to the logit of token ID; -inf bans it. May be given several times.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        help="The same seed gives the same tokens. Default: the node draws one.",
    ),
)


def sampling_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--temperature`, `--top-p`, `--top-k`, `--min-p`, `--repetition-penalty` and more.

    The command gets all of them as one `Sampling`, named `sampling`.
    """
    decorated = _collected(command)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

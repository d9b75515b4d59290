"""Options that say what an answer is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kakeya import GenerateOptions


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer is held to: at most one of them, None for anything.

    A JSON schema as its JSON, a regular expression, or a Lark grammar.
    """

    json_schema: str | None = None
    regex: str | None = None
    lark: str | None = None

    def options(self) -> GenerateOptions:
        """For `Session.generate`."""
        return {"json_schema": self.json_schema, "regex": self.regex, "lark": self.lark}


class TextOfFile(click.ParamType[str]):
    """FILE: the text in it."""

    name = "FILE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reads the file; refuses one that cannot be read, or is no text."""
        try:
            text = Path(value).expanduser().read_text("utf-8")
        except OSError as error:
            self.fail(f"{value} cannot be read ({error.strerror})", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{value} is not UTF-8 text", param, ctx)
        if not text.strip():
            self.fail(f"{value} is empty", param, ctx)
        return text


def form_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--json-schema`, `--regex` and `--lark`; the command gets an `AnswerForm`, named `form`."""

    @click.option(
        "--json-schema",
        type=TextOfFile(),
        metavar="FILE",
        help="The answer is JSON that fits the JSON schema in FILE.",
    )
    @click.option(
        "--regex",
        metavar="PATTERN",
        help="The answer is what this regular expression matches, first to last character.",
    )
    @click.option(
        "--lark",
        type=TextOfFile(),
        metavar="FILE",
        help="The answer is what the rule `start` of the Lark grammar in FILE derives.",
    )
    @wraps(command)
    def collecting(
        *args: object,
        json_schema: str | None,
        regex: str | None,
        lark: str | None,
        **kwargs: object,
    ) -> int:
        given = {"--json-schema": json_schema, "--regex": regex, "--lark": lark}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise click.UsageError(f"an answer is held to one of {' and '.join(named)}")
        kwargs["form"] = AnswerForm(json_schema, regex, lark)
        return command(*args, **kwargs)

    return collecting

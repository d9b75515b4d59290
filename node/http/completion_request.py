"""The body of /v1/completions, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from kakeya_fleet.node.http.fields import Fields
from kakeya_fleet.node.http.refusal import bad_field, unsupported
from kakeya_fleet.node.http.request_options import (
    MAX_CHOICES,
    MAX_TOP_LOG_PROBABILITIES,
    SHARED_FIELDS,
    RequestOptions,
    read_options,
)

DEFAULT_TOKENS = 16
"""OpenAI's, when max_tokens is not given."""
MAX_PROMPT_TOKENS = 1 << 20

Prompt: TypeAlias = str | tuple[int, ...]
"""Text to encode, or token ids."""

KNOWN = SHARED_FIELDS | {"prompt", "echo", "suffix", "best_of"}
"""Fields of a body; others are refused by name."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A checked body; with `echo` each answer begins with its prompt.

    Where its options have no max_tokens an answer has `default_tokens` at most.
    With a `suffix` the answers stand between their prompts, which are text then, and it.
    """

    options: RequestOptions
    prompts: tuple[Prompt, ...]
    echo: bool
    default_tokens: int = DEFAULT_TOKENS
    suffix: str = ""


def read_completion(body: Mapping[str, object]) -> CompletionRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(KNOWN)
    fields.refuse("best_of", (1,), "ask for n answers and choose among them")
    top = fields.whole("logprobs", 0, MAX_TOP_LOG_PROBABILITIES)
    options = read_options(fields, top)
    prompts = _prompts(fields.get("prompt"), options.choices)
    request = CompletionRequest(
        replace(options, ignored=(*options.ignored, *fields.present({"user"}))),
        prompts,
        fields.flag("echo"),
        suffix=fields.text("suffix"),
    )
    if request.suffix and not all(isinstance(prompt, str) for prompt in prompts):
        raise bad_field("suffix", "a suffix goes with a prompt that is text; give both as text")
    if request.echo and top is not None:
        raise unsupported("echo", "a prompt has no log-probabilities here; leave out echo")
    return request


def _prompts(value: object, choices: int) -> tuple[Prompt, ...]:
    prompts: list[Any] = value if isinstance(value, list) else [value]
    if are_ids(prompts) and isinstance(value, list):
        return (tuple(prompts),)
    if len(prompts) * choices > MAX_CHOICES and isinstance(prompts[0], str | list):
        raise bad_field("n", f"prompts times n are {len(prompts) * choices}, above {MAX_CHOICES}")
    if len(prompts) <= MAX_CHOICES and prompts:
        if all(isinstance(each, str) for each in prompts):
            return tuple(prompts)
        if all(isinstance(each, list) and are_ids(each) for each in prompts):
            return tuple(tuple(each) for each in prompts)
    raise bad_field(
        "prompt", "prompt is a string, a list of strings, token ids, or a list of lists of them"
    )


def are_ids(values: list[Any]) -> bool:
    """Whether they are a prompt's, at least one; in a fifth of the time of a look at each."""
    if not 0 < len(values) <= MAX_PROMPT_TOKENS or set(map(type, values)) != {int}:
        return False
    return bool(min(values) >= 0 and max(values) < 1 << 31)

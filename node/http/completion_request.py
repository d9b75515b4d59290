"""The body of /v1/completions, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

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

_KNOWN = SHARED_FIELDS | {"prompt", "echo", "suffix", "best_of"}


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A checked body; with `echo` each answer begins with its prompt."""

    options: RequestOptions
    prompts: tuple[Prompt, ...]
    echo: bool


def read_completion(body: Mapping[str, object]) -> CompletionRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(_KNOWN)
    fields.refuse("suffix", ("",), "write what follows into the prompt, as the model was trained")
    fields.refuse("best_of", (1,), "ask for n answers and choose among them")
    top = fields.whole("logprobs", 0, MAX_TOP_LOG_PROBABILITIES)
    options = read_options(fields, top)
    request = CompletionRequest(options, _prompts(fields.get("prompt")), fields.flag("echo"))
    if request.echo and top is not None:
        raise unsupported("echo", "a prompt has no log-probabilities here; leave out echo")
    if len(request.prompts) * options.choices > MAX_CHOICES:
        raise bad_field(
            "n",
            f"prompts times n are {len(request.prompts) * options.choices}, above {MAX_CHOICES}",
        )
    return request


def _prompts(value: object) -> tuple[Prompt, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return tuple(value)
        if _are_ids(value):
            return (tuple(value),)
        if all(isinstance(each, list) and each and _are_ids(each) for each in value):
            return tuple(tuple(each) for each in value)
    raise bad_field(
        "prompt", "prompt is a string, a list of strings, token ids, or a list of lists of them"
    )


def _are_ids(values: list[object]) -> bool:
    fits = len(values) <= MAX_PROMPT_TOKENS
    return fits and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 31
        for each in values
    )

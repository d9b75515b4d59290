"""One question to a chat model, as its family wants it: each has switches of its own.

    python chat_families.py HOST:PORT MODEL FAMILY [--no-thinking] [QUESTION]

A template takes what is passed to `tokens_for_chat` by name; which names it knows is in
the model's chat_template.jinja. One that it does not know changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kakeya import Client
from kakeya.text import TextCodec, from_openai_messages

Messages: TypeAlias = Sequence[Mapping[str, Any]]


def qwen3(codec: TextCodec, messages: Messages, *, thinking: bool) -> list[int]:
    """Thinks unless told not to; then the prompt has an empty <think> block."""
    return codec.tokens_for_chat(messages, enable_thinking=thinking)


def qwen3_5(codec: TextCodec, messages: Messages, *, thinking: bool) -> list[int]:
    """As Qwen3, but the prompt itself opens <think>: an answer begins within its thoughts."""
    return codec.tokens_for_chat(messages, enable_thinking=thinking)


def gemma4(codec: TextCodec, messages: Messages, *, thinking: bool) -> list[int]:
    """Thinks when told to, which its template says in the system turn."""
    return codec.tokens_for_chat(messages, enable_thinking=thinking)


def mistral(codec: TextCodec, messages: Messages, *, thinking: bool) -> list[int]:
    """The switch of those that can reason is an effort; older templates know none."""
    return codec.tokens_for_chat(messages, reasoning_effort="high" if thinking else "none")


def llama3(codec: TextCodec, messages: Messages) -> list[int]:
    """Has no switch. Its template names a day, which makes prompts differ from day to day."""
    return codec.tokens_for_chat(messages, date_string="22 Nov 2026")


def gemma3(codec: TextCodec, messages: Messages) -> list[int]:
    """Has no switch and no system turn: the template puts those words before the user's."""
    return codec.tokens_for_chat(messages)


THINKING: Mapping[str, Callable[..., list[int]]] = {
    "qwen3": qwen3,
    "qwen3_5": qwen3_5,
    "gemma4": gemma4,
    "mistral": mistral,
}
PLAIN: Mapping[str, Callable[..., list[int]]] = {"llama3": llama3, "gemma3": gemma3}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the answer as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("model")
    parser.add_argument("family", choices=[*THINKING, *PLAIN])
    parser.add_argument("question", nargs="?", default="What is a Kakeya set?")
    parser.add_argument("--no-thinking", action="store_true")
    asked = parser.parse_args(arguments)
    messages = from_openai_messages(
        [
            {"role": "developer", "content": "Answer in one sentence."},
            {"role": "user", "content": [{"type": "text", "text": asked.question}]},
        ]
    )
    with Client(asked.address) as client:
        codec = client.text(asked.model)
        if asked.family in THINKING:
            tokens = THINKING[asked.family](codec, messages, thinking=not asked.no_thinking)
        else:
            tokens = PLAIN[asked.family](codec, messages)
        stops = codec.stop_token_ids
        with client.create_session(asked.model, tokens=tokens, stop_token_ids=stops) as session:
            text = codec.detokenizer(skip_special_tokens=True)
            for block in session.generate(256):
                print(text.push(block.token_ids), end="", flush=True)
            print(text.flush())


if __name__ == "__main__":
    main()

"""The prompt of a command: typed behind it, piped into it, or both."""

from __future__ import annotations

import sys

from kakeya_fleet.node.cli.asking.prompts import read_input
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode


def given_prompt(words: tuple[str, ...]) -> str | None:
    """What is to be answered; None where a person is there to talk.

    What is piped comes first, then the words, as a question behind a text. Raises `CommandFailed`
    where neither has any.
    """
    typed = " ".join(words)
    if sys.stdin.isatty():
        return typed or None
    piped = read_input().strip()
    prompt = "\n\n".join(filter(None, (piped, typed)))
    if not prompt:
        raise CommandFailed(
            "EMPTY_PROMPT",
            "there is nothing to answer: give a prompt, or talk at a terminal.",
            exit_code=ExitCode.USAGE,
        )
    return prompt

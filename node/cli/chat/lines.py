"""What a person types in a chat: words for the model, or a command."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

COMMANDS = {
    "stats": "acceptance, speed, K/V, history, proposer and where it runs",
    "fork": "[N]: go on in a fork with the first N turns, all of them without N",
    "sessions": "[N]: list the sessions of this chat, or go over to number N",
    "undo": "forget the latest question and its answer",
    "retry": "have the latest question answered anew",
    "edit": "the latest question back into the line, to be asked otherwise",
    "system": "TEXT: what the system says before all else; without TEXT, shows it",
    "save": "FILE: write the conversation, as JSON where FILE ends with .json",
    "help": "this list",
    "quit": "end the chat; Ctrl-D does too",
}


@dataclass(frozen=True, slots=True)
class Said:
    """Words for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the chat and what follows its name."""

    name: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A command that does not exist, and what is said of it."""

    message: str


def read(text: str) -> Said | Command | Unknown | None:
    """What was typed; None for nothing. `//` begins words that start with a slash."""
    if not text.strip():
        return None
    if text.startswith("//"):
        return Said(text[1:])
    if not text.startswith("/"):
        return Said(text)
    name, _, argument = text[1:].partition(" ")
    name = name.strip()
    if name in COMMANDS:
        return Command(name, argument.strip())
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    return Unknown(f"there is no command /{name}: {hint} (// begins words with a slash)")


def as_typed(text: str) -> str:
    """What is typed for these words to be said: the other way round than `read`."""
    return f"/{text}" if text.startswith("/") else text


def help_lines() -> list[str]:
    """The commands, one a line."""
    lines = []
    for name, text in COMMANDS.items():
        head, colon, rest = text.partition(": ") if text[0] in "[TF" else ("", "", text)
        usage = f"/{name} {head}" if colon else f"/{name}"
        lines.append(f"  {usage:<14}  {rest if colon else text}")
    lines.append("  A line that ends with \\ goes on in the next; so does what is pasted.")
    lines.append("  Ctrl-C stops an answer, and at the prompt, given twice, the chat.")
    return lines


def joined(lines: list[str]) -> str:
    """Lines as one text, the backslashes that joined them left out."""
    return "\n".join([line[:-1] if line.endswith("\\") else line for line in lines])

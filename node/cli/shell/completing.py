"""Answers a shell that asks what could come next on the command line.

`fleet completion SHELL` prints the script that asks. The answer is a line for each
possibility: its kind (`plain`, `file` or `dir`), its text and its help, tabs between.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.terminal.printable import on_one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Where bash cuts words of its own accord; it replaces what follows the last cut alone.
_BASH_CUTS = ":="


def complete(shell: str, arguments: Sequence[str]) -> int:
    """Writes the possibilities for the last of the words on stdout; returns the exit code.

    bash gives the line up to the cursor as one word, the others give words without the
    command's own name.
    """
    words = _bash_words(arguments[0]) if shell == "bash" and arguments else list(arguments)
    incomplete = words[-1] if words else ""
    for item in possibilities(words[:-1], incomplete):
        value, help_text = on_one_line(str(item.value)), on_one_line(item.help or "")
        if shell == "bash":
            value = _after_cut(value, incomplete)
        sys.stdout.write(f"{item.type}\t{value}\t{help_text}\n")
    return 0


def possibilities(words: Sequence[str], incomplete: str) -> list[CompletionItem[str]]:
    """What the unfinished word can become after `words`; nothing after words that are wrong."""
    from click.shell_completion import ShellComplete

    from kakeya_fleet.node.cli.shell.dispatch import fleet_group

    try:
        asked = ShellComplete(fleet_group(), {}, "fleet", "")
        return list(asked.get_completions(list(words), incomplete))
    except click.ClickException:
        return []


def _bash_words(line: str) -> list[str]:
    from click.shell_completion import split_arg_string

    words = split_arg_string(line)[1:]
    return [*words, ""] if line[-1:].isspace() or not words else words


def _after_cut(value: str, incomplete: str) -> str:
    cut = max(incomplete.rfind(character) for character in _BASH_CUTS) + 1
    return value[cut:] if value.startswith(incomplete[:cut]) else value

"""Prompts: read from a file, or built in for measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

CODE_PROMPTS = (
    "def parse_header(line):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef main():\n    parser = argparse.ArgumentParser()\n",
    "def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n        self.assertEqual(",
)


def read_prompts(source: str) -> list[str]:
    """Prompts of a file, `-` for stdin: one a line, or JSON lines {"prompt": "..."}.

    A file whose first line begins with `{` is JSON lines. Empty lines are
    passed over. Raises `CommandFailed`.
    """
    lines = [line for line in _text(source).splitlines() if line.strip()]
    if not lines:
        raise _unusable(source, "has no prompts", "write one a line")
    if not lines[0].lstrip().startswith("{"):
        return lines
    return [_json_prompt(source, number, line) for number, line in enumerate(lines, 1)]


def read_input() -> str:
    """All of standard input. Raises `CommandFailed` where it is no text."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise not_text(error) from error


def not_text(error: UnicodeDecodeError) -> CommandFailed:
    """What is said of standard input that is in another encoding."""
    problem = f"is not {error.encoding.upper()} text"
    return _unusable("standard input", problem, f"convert it to {error.encoding.upper()}")


def shown(prompt: str, width: int = 48) -> str:
    """The prompt on one line, shortened."""
    flat = " ".join(prompt.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def _text(source: str) -> str:
    try:
        if source == "-":
            return read_input()
        return Path(source).expanduser().read_text("utf-8")
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise _unusable(source, problem, "name a file of prompts with --prompts") from error
    except UnicodeDecodeError as error:
        raise _unusable(source, "is not UTF-8 text", "save it as UTF-8") from error


def _json_prompt(source: str, number: int, line: str) -> str:
    try:
        prompt = json.loads(line)["prompt"]
    except (ValueError, KeyError, TypeError):
        prompt = None
    if not isinstance(prompt, str) or not prompt:
        raise _unusable(source, f"has no prompt in line {number}", 'write {"prompt": "..."}')
    return prompt


def _unusable(source: str, problem: str, mend: str) -> CommandFailed:
    return CommandFailed(
        "BAD_PROMPTS",
        f"{source} {problem}: {mend}.",
        metadata={"file": source},
        exit_code=ExitCode.USAGE,
    )

"""Every command that the pages show exists, with the options that they give it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kakeya_fleet.node.cli.shell.dispatch import fleet_group

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(page: str) -> list[list[str]]:
    """The `fleet` commands in the page's blocks of shell, as words."""
    found = []
    for language, block in FENCE.findall(page):
        if language:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&|;| > ", line.split("  #")[0]):
                words = shlex.split(part.replace("...", ""), comments=True)
                if "fleet" in words:
                    found.append(words[words.index("fleet") + 1 :])
    return found


@pytest.fixture(scope="module")
def group() -> click.Group:
    return fleet_group()


def wrong(group: click.Group, words: list[str]) -> list[str]:
    """What of a command does not exist."""
    context = click.Context(group)
    command = group.get_command(context, words[0])
    if command is None:
        return words[:1] if not words[0].startswith("-") else []
    if isinstance(command, click.Group):
        return wrong(command, words[1:]) if words[1:] else []
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    known |= set(command.get_help_option_names(context))
    return [word for word in words[1:] if word.startswith("-") and word not in {"-", *known}]


def test_commands_and_options_exist(docs: Path, group: click.Group) -> None:
    commands = [
        (page.name, words)
        for page in sorted(docs.glob("*.md"))
        for words in shown(page.read_text("utf-8"))
        if words
    ]
    assert len(commands) > 20
    assert [(page, words) for page, words in commands if wrong(group, words)] == []


def test_a_command_that_is_not_there_would_be_found(group: click.Group) -> None:
    assert wrong(group, ["join", "--serve", "x", "--metrics-bind", "off"]) == ["--metrics-bind"]
    assert wrong(group, ["telemetry"]) == ["telemetry"]
    assert wrong(group, ["service", "install", "--at-boot"]) == ["--at-boot"]
    assert wrong(group, ["service", "renew"]) == ["renew"]


def test_blocks_of_python_are_python(docs: Path) -> None:
    for page in docs.glob("*.md"):
        for language, block in FENCE.findall(page.read_text("utf-8")):
            if language == "python":
                compile(block, page.name, "exec")

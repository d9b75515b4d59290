"""Every command that asks one node takes its name, and says which there are for one that is not."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kakeya_fleet.node.cli.asking.options import NodeChoice
from kakeya_fleet.node.cli.shell.dispatch import COMMANDS, fleet_group
from tests.support.commands import Terminal

# Words behind the command, where it takes any before it asks.
ASKED = {
    "status": (),
    "top": ("--once",),
    "plan": ("--verifier", "tiny"),
    "fit": ("tiny", "--fleet"),
    "run": ("tiny", "hello"),
    "chat": (),
    "generate": ("hello",),
    "bench": (),
    "hostfile": (),
    "codecs": (),
    "limits": (),
    "logs": (),
    "trace": ("a" * 32,),
    "load": ("tiny",),
    "unload": ("tiny",),
    "pull": ("tiny",),
    "rm": ("tiny",),
    "models": ("--fleet",),
    "leave": (),
    "sessions": (),
    "sessions close": ("--all",),
}
# Of a node of this machine in a fleet with an authority, which there is none of here.
OWNED = {"members", "invite", "revoke", "allow", "keeper", "keeper add", "certificate"}
OWNED |= {"key", "key create", "key list", "key revoke"}
# Asks in another way: a browser, checks that go on, prompts of a file.
APART = {"dashboard", "doctor", "verify"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and those below it, by what is typed."""
    group = fleet_group()
    context = click.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                found = command.get_command(context, below)
                assert found is not None
                yield f"{name} {below}", found


def test_every_command_that_asks_a_node_has_one_option_for_it() -> None:
    asking = {
        name: param
        for name, command in commands()
        for param in command.params
        if param.name == "node"
    }
    assert all(
        isinstance(param.type, NodeChoice) and "--node" in param.opts for param in asking.values()
    )
    assert set(asking) - OWNED - APART == set(ASKED)


@pytest.fixture
def here(fleet: Terminal) -> Iterator[str]:
    """The name of the only node of this machine."""
    process = fleet.start("join", "--json", "--name", "mini-7", "--no-mdns")
    assert process.event()["event"] == "ready"
    yield "mini-7"
    process.kill()


def test_a_name_that_nobody_has_is_told_with_those_that_there_are(
    fleet: Terminal, here: str
) -> None:
    for name, words in ASKED.items():
        done = fleet.run(*name.split(), *words, "--node", "nobody", "--json")
        error = done.json["error"]
        assert (done.code, error["reason"]) == (3, "NODE_NOT_FOUND"), (name, error)
        assert f"there are: {here}" in error["message"], name

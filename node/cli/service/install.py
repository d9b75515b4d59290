"""`fleet service install`: the machine starts a node, and keeps it running."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.join.options import flags_of, node_options
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.service.manager import ServiceManager
    from kakeya_fleet.node.config.config import Config

EXAMPLE = """\b
Example:
  fleet service install --name mini-1 --serve verifier=tiny
  fleet service install --serve proposer=ngram --bind 0.0.0.0:7600 --insecure
  fleet service install --config node.toml --json
"""


@click.command("install", epilog=EXAMPLE)
@node_options
@json_option
def command(config_file: Path | None, *, as_json: bool, **given: object) -> int:
    """Have this machine start a node at login, and again when it fails.

    Takes the options of `fleet join` and checks them as that does. They are kept, with
    the KAKEYA_* variables and the file of configuration as they are now, in service.toml
    in the node's state directory, and the node reads that alone. Run again with other options,
    it changes the service and restarts the node, which drains first; with the same ones
    it changes nothing. If the node does not start, everything is as before.
    """
    from kakeya_fleet.node.cli.join.failures import told_as_failures

    with told_as_failures():
        return _install(flags_of(given), config_file, as_json=as_json)


def _install(flags: dict[str, object], config_file: Path | None, *, as_json: bool) -> int:
    from kakeya_fleet.node.cli.service.checked_options import checked_config
    from kakeya_fleet.node.cli.service.definition import definition
    from kakeya_fleet.node.cli.service.found import the_service
    from kakeya_fleet.node.cli.service.installing import place
    from kakeya_fleet.node.cli.service.manager_here import manager_here
    from kakeya_fleet.node.cli.service.node_config import CONFIG_NAME, config_text
    from kakeya_fleet.node.cli.service.told import facts_of, lines_of
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    config = checked_config(flags, os.environ, config_file)
    manager = manager_here(os.environ)
    config = _with_log(config, manager)
    _refuse_by_hand(config, manager)
    state = config.state_path
    service = definition(config.name, state / CONFIG_NAME, state, config.drain_seconds, os.environ)
    placed = place(manager, service, config_text(config))
    notes = [note for note in (manager.without_login(), _token_note()) if note]
    found = the_service(manager, config.name)
    changed = [str(path) for path in placed.changed]
    if as_json:
        facts = facts_of(manager, found)
        write_json({"event": "installed", **facts, "changed": changed, "notes": notes})
        return ExitCode.OK
    for line in lines_of(manager, found):
        say(line)
    say(f"wrote {' and '.join(changed)}" if changed else "nothing changed: it was so already")
    for note in notes:
        say(note)
    return ExitCode.OK


def _with_log(config: Config, manager: ServiceManager) -> Config:
    """The configuration with a log that somebody bounds."""
    import dataclasses

    if manager.keeps_log or config.log_file:
        return config
    return dataclasses.replace(config, log_file=str(config.state_path / "node.log"))


def _refuse_by_hand(config: Config, manager: ServiceManager) -> None:
    from kakeya_fleet.node.cli.service.found import agent_of

    agent = agent_of(config.name, config.state_path)
    if agent is None or agent.process_id == manager.condition(config.name).process_id:
        return
    raise CommandFailed(
        "STATE_LOCKED",
        f"{config.name} runs already by hand, as process {agent.process_id}: end it with "
        f"`fleet leave --node {config.name}`, then install the service.",
        metadata={"name": config.name, "pid": str(agent.process_id)},
    )


def _token_note() -> str:
    if not os.environ.get("HF_TOKEN"):
        return ""
    return (
        "HF_TOKEN is a secret and not kept for the service: `hf auth login` keeps it where the "
        "node finds it"
    )

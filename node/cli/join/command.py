"""`fleet join`: a node agent on this machine."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_roles
from kakeya_fleet.node.cli.asking.options import Address, json_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed

if TYPE_CHECKING:
    from kakeya_fleet.node.config.config import Config
    from kakeya_fleet.node.config.state_directory import StateDirectory

EXAMPLE = """\b
Example:
  fleet join --name mini-1 --serve verifier=tiny
  fleet join --name mini-2 --serve proposer=ngram --peer 127.0.0.1:7600
  fleet join --serve verifier=Qwen/Qwen3-14B --group hosts.json
  fleet join --serve verifier=Qwen/Qwen3-0.6B --bind 192.168.1.20:7600 --insecure

\b
Every option but --config and --json is also a key of the TOML file and a
KAKEYA_* variable; flags win. docs/configuration.md lists all keys.
"""


@click.command("join", epilog=EXAMPLE)
@click.option("--name", help="Name for people. Default: the host's name.")
@click.option(
    "--serve",
    shell_complete=complete_roles,
    multiple=True,
    metavar="ROLE=MODEL",
    help="Serve a model or memory: verifier=MODEL, proposer=ngram, proposer=MODEL[@TARGET] or "
    "archive=512MiB. Repeatable.",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=Address(),
    metavar="HOST:PORT",
    help="A node that is known already. Repeatable; without one, multicast DNS finds the fleet.",
)
@click.option(
    "--bind",
    type=Address(allow_any_port=True),
    metavar="HOST:PORT",
    help="Where to answer. Default: 127.0.0.1, the last port or a free one. With a --peer on "
    "another machine: an address that it reaches, such as 0.0.0.0:0 with --insecure.",
)
@click.option(
    "--state",
    metavar="DIR",
    help="Identity and known peers. Default: one directory a name.",
)
@click.option("--fleet", "fleet_name", metavar="NAME", help="Fleet to join. Default: default.")
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Allow an address that other machines reach, without encryption.",
)
@click.option("--no-mdns", is_flag=True, help="Neither announce nor look by multicast DNS.")
@click.option(
    "--http",
    "http_bind",
    metavar="HOST:PORT|off",
    help="Where /v1, /health and /metrics answer. Default: 127.0.0.1, the last port or a free one.",
)
@click.option(
    "--kv-budget-bytes",
    type=click.IntRange(min=0),
    help="Bytes of keys and values for all sessions. Default: a quarter of the free memory.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16"]),
    help="Number format of verifiers. Default: float32.",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "torch", "mlx"]),
    help="What computes. Default: auto, mlx on Apple silicon and torch elsewhere.",
)
@click.option(
    "--links",
    type=click.Choice(["auto", "grpc", "local", "ring"]),
    help="What carries tensors between nodes. Default: auto, the fastest that was measured.",
)
@click.option(
    "--trusted-network",
    is_flag=True,
    default=None,
    help="Nobody listens on this network: rings and groups may carry tensors between hosts "
    "unencrypted, in a fleet with an authority too.",
)
@click.option(
    "--group",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Serve the verifier by the ranks of this hostfile, together. `fleet hostfile` writes one.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML file of keys, docs/configuration.md lists them (KAKEYA_CONFIG).",
)
@json_option
def command(config_file: Path | None, *, as_json: bool, no_mdns: bool, **given: object) -> int:
    """Start a node on this machine and join the fleet.

    Runs until Ctrl-C, SIGTERM or `fleet leave`: then it drains and leaves,
    with exit code 0; a second Ctrl-C ends it at once.
    With --json each line is an event: first {"event": "joined", "node_id": ..., "address": ...}
    when models are to be loaded, then "ready", with the same, when everything is.
    """
    flags = {key: value for key, value in given.items() if value not in (None, ())}
    if no_mdns:
        flags["mdns"] = False
    from kakeya_fleet.engine.errors import EngineError
    from kakeya_fleet.fleet.errors import FleetError
    from kakeya_fleet.node.cli.shell.remedies import sentence
    from kakeya_fleet.node.errors import NodeError
    from kakeya_fleet.node.rpc.refusals import Refusal

    try:
        return _run(flags, config_file, as_json=as_json)
    except (NodeError, EngineError, FleetError, Refusal) as error:
        message = sentence(str(error))
        raise CommandFailed(error.reason, message, metadata=error.metadata) from error


def _run(flags: dict[str, object], config_file: Path | None, *, as_json: bool) -> int:
    # Read when the tensor library loads. Threads that spin while they wait starve
    # each other beside busy processes: 5 against 117 tokens a second were measured.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

    from kakeya_fleet.node.config.config import build
    from kakeya_fleet.node.config.machine import process_started_at
    from kakeya_fleet.node.config.state_directory import StateDirectory
    from kakeya_fleet.node.trust.membership_files import fleet_name_of

    config = build(flags, os.environ, config_file, fleet_name_of)
    state = StateDirectory(config.state_path)
    with closing(state):
        # What follows takes seconds, in which other commands look for this node.
        state.announce_start(config.name, process_started_at())
        return _run_node(config, state, as_json=as_json)


def _run_node(config: Config, state: StateDirectory, *, as_json: bool) -> int:
    import asyncio
    import dataclasses

    from kakeya_fleet.node.app.agent import run_agent
    from kakeya_fleet.node.cli.join.agent_view import view_for
    from kakeya_fleet.node.cli.join.lasting_view import LastingView
    from kakeya_fleet.node.watch.activity import NodeActivity
    from kakeya_fleet.node.watch.watched_loop import WatchedLoop

    activity = NodeActivity()
    view = LastingView(view_for(as_json=as_json, transfers=activity.transfers.statuses))
    if not as_json and config.log_level == "info":
        # The view says in words what the log says at that level.
        config = dataclasses.replace(config, log_level="warning")
    view.loading(config.serve)
    try:
        with asyncio.Runner(loop_factory=WatchedLoop) as runner:
            return runner.run(run_agent(config, on_event=view.take, activity=activity, state=state))
    finally:
        view.close()

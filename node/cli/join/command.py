"""`fleet join`: a node agent on this machine."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.join.options import flags_of, node_options
from kakeya_fleet.node.cli.shell.failure import CommandFailed

if TYPE_CHECKING:
    from kakeya_fleet.node.app.supervisor import Supervisor
    from kakeya_fleet.node.cli.join.agent_view import Event
    from kakeya_fleet.node.config.config import Config
    from kakeya_fleet.node.config.state_directory import StateDirectory

EXAMPLE = """\b
Example:
  fleet join --name mini-1 --serve verifier=tiny
  fleet join --name mini-2 --serve proposer=ngram --peer 127.0.0.1:7600
  fleet join 482-190-337 --serve proposer=ngram
  fleet join --serve verifier=Qwen/Qwen3-14B --group hosts.json
  fleet join --serve verifier=Qwen/Qwen3-0.6B --bind 192.168.1.20:7600 --insecure

\b
Every option but --config and --json is also a key of the TOML file and a
KAKEYA_* variable; flags win. docs/configuration.md lists all keys.
"""


@click.command("join", epilog=EXAMPLE)
@click.argument("code", required=False, metavar="[CODE]")
@node_options
@json_option
def command(code: str | None, config_file: Path | None, *, as_json: bool, **given: object) -> int:
    """Start a node on this machine and join the fleet.

    CODE is one of `fleet invite`: with it the machine becomes a member of that fleet first, once
    and for all; later starts need none.

    Runs until Ctrl-C, SIGTERM or `fleet leave`: then it drains and leaves,
    with exit code 0; a second Ctrl-C ends it at once. A configuration that no
    second try mends is exit code 2, like any wrong usage.
    With --json each line is an event: first {"event": "joined", "node_id": ..., "address": ...}
    when models are to be loaded, then "ready", with the same, when everything is.
    """
    _load_little()
    from kakeya_fleet.node.app.supervisor import Supervisor
    from kakeya_fleet.node.cli.join.failures import told_as_failures

    supervisor = Supervisor.of(os.environ)
    try:
        with told_as_failures():
            flags = flags_of(given)
            if code is not None:
                _enter(code, flags, config_file, as_json=as_json)
            return _run(flags, config_file, supervisor, as_json=as_json)
    except CommandFailed as failure:
        supervisor.failed(failure.message)
        raise


def _load_little() -> None:
    """Leaves out of the process what an agent may never use."""
    import gc

    from kakeya_fleet.node.config.deferred_import import defer, without
    from kakeya_fleet.node.roles.cycles import THRESHOLDS

    # What imports make lives on: by Python's own thresholds to look through it, again and again,
    # is an eighth of a start.
    gc.set_threshold(*THRESHOLDS)
    defer("numpy")
    # For files of measured codecs, for certificates and their keys, for what models do, for pages.
    certificates = "cryptography.x509", "cryptography.hazmat.primitives.serialization"
    for library in ("sqlite3", *certificates, "statistics", "html"):
        defer(library)
    with without("rich"):
        # structlog would load it for tracebacks in colour, which nobody is shown here.
        import structlog  # noqa: F401 - for all that import it later


def _enter(code: str, flags: dict[str, object], config_file: Path | None, *, as_json: bool) -> None:
    """Becomes a member of the fleet that the code is of, and says so."""
    import asyncio

    from kakeya_fleet.node.cli.terminal.output import say, write_json
    from kakeya_fleet.node.config.config import build
    from kakeya_fleet.node.config.state_directory import StateDirectory
    from kakeya_fleet.node.joining.entering import enter_by_code

    given = {key: value for key, value in flags.items() if key in ("name", "state")}
    config = build(given, os.environ, config_file)
    with closing(StateDirectory(config.state_path)) as state:
        trust = asyncio.run(enter_by_code(code, config.name, state))
    if as_json:
        write_json(
            {
                "event": "let_in",
                "fleet_name": trust.fleet.name,
                "fleet_id": trust.fleet.fleet_id,
                "node_id": trust.node_id,
                "name": config.name,
            }
        )
    else:
        say(f"{config.name} is a member of the fleet {trust.fleet.name} now")


def _run(
    flags: dict[str, object], config_file: Path | None, supervisor: Supervisor, *, as_json: bool
) -> int:
    # Read when the tensor library loads. Threads that spin while they wait starve
    # each other beside busy processes: 5 against 117 tokens a second were measured.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Those of numpy's products cannot but spin, for some 25 ms behind each: context vectors made a
    # forward of five rows take 47 ms instead of 12. What is computed by numpy is small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # gRPC's core writes a line to standard error for each header that it cannot read, as many as
    # whoever sends them likes; what became of a call is counted here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

    from kakeya_fleet.node.config.config import build
    from kakeya_fleet.node.config.machine import process_started_at
    from kakeya_fleet.node.config.state_directory import StateDirectory
    from kakeya_fleet.node.rpc.free_port import require_free
    from kakeya_fleet.node.trust.membership_files import fleet_name_of

    config = build(flags, os.environ, config_file, fleet_name_of)
    host, port = config.bind_address
    if port:
        # What follows takes seconds until the port is bound.
        require_free(host, port)
    state = StateDirectory(config.state_path)
    with closing(state):
        # What follows takes seconds, in which other commands look for this node.
        state.announce_start(config.name, process_started_at())
        return _run_node(config, state, supervisor, as_json=as_json)


def _run_node(
    config: Config, state: StateDirectory, supervisor: Supervisor, *, as_json: bool
) -> int:
    import asyncio
    import dataclasses

    from kakeya_fleet.node.app.agent import run_agent
    from kakeya_fleet.node.cli.join.agent_view import view_for
    from kakeya_fleet.node.cli.join.lasting_view import LastingView
    from kakeya_fleet.node.cli.terminal.writing_aside import written_aside
    from kakeya_fleet.node.watch.activity import NodeActivity
    from kakeya_fleet.node.watch.watched_loop import WatchedLoop

    activity = NodeActivity()
    if not as_json and config.log_level == "info" and not config.log_file:
        # The view says in words what the log says at that level.
        config = dataclasses.replace(config, log_level="warning")
    with written_aside():
        view = LastingView(view_for(as_json=as_json, transfers=activity.transfers.statuses))

        def on_event(event: Event) -> None:
            supervisor.take(event)
            view.take(event)

        view.loading(config.serve)
        try:
            with asyncio.Runner(loop_factory=WatchedLoop) as runner:
                return runner.run(
                    run_agent(config, on_event=on_event, activity=activity, state=state)
                )
        finally:
            view.close()

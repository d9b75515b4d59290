"""The `fleet` command group, and what becomes of each way in which a command can end."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode, report
from kakeya_fleet.node.cli.shell.lazy_group import LazyCommand, LazyGroup

COMMANDS = {
    "run": LazyCommand(
        "kakeya_fleet.node.cli.run.command", "Talk with a model by its name, loaded if need be."
    ),
    "join": LazyCommand(
        "kakeya_fleet.node.cli.join.command", "Start a node on this machine and join the fleet."
    ),
    "init": LazyCommand(
        "kakeya_fleet.node.cli.members.init", "Make a fleet that lets in invited machines alone."
    ),
    "invite": LazyCommand(
        "kakeya_fleet.node.cli.members.invite", "Let one more machine into the fleet, by a code."
    ),
    "members": LazyCommand(
        "kakeya_fleet.node.cli.members.members", "Show who is in the fleet, and who keeps it."
    ),
    "revoke": LazyCommand(
        "kakeya_fleet.node.cli.members.revoke", "Put a machine out of the fleet, for good."
    ),
    "allow": LazyCommand(
        "kakeya_fleet.node.cli.members.allow", "Say which roles a member may serve for others."
    ),
    "keeper": LazyCommand(
        "kakeya_fleet.node.cli.members.keeper", "Have another node let machines in, too."
    ),
    "key": LazyCommand(
        "kakeya_fleet.node.cli.members.key", "Let applications of other machines in, by a key."
    ),
    "certificate": LazyCommand(
        "kakeya_fleet.node.cli.members.certificate", "Print what clients know the fleet by."
    ),
    "status": LazyCommand(
        "kakeya_fleet.node.cli.fleet.status", "Show nodes, roles, models, memory, liveness."
    ),
    "sessions": LazyCommand(
        "kakeya_fleet.node.cli.sessions.command", "Show open sessions, and end them."
    ),
    "top": LazyCommand(
        "kakeya_fleet.node.cli.top.command", "Watch nodes, sessions, transfers and events live."
    ),
    "dashboard": LazyCommand(
        "kakeya_fleet.node.cli.fleet.dashboard", "Show the fleet in a browser, live."
    ),
    "plan": LazyCommand(
        "kakeya_fleet.node.cli.fleet.plan", "Show who would draft for whom, and why (dry run)."
    ),
    "fit": LazyCommand(
        "kakeya_fleet.node.cli.fleet.fit", "Say what a context costs in memory, on paper."
    ),
    "check": LazyCommand(
        "kakeya_fleet.node.cli.check.command", "Prove that a model is exact here, and how fast."
    ),
    "generate": LazyCommand(
        "kakeya_fleet.node.cli.answers.generate", "Continue a prompt; text streams to stdout."
    ),
    "chat": LazyCommand(
        "kakeya_fleet.node.cli.chat.command", "Talk with a model over one session."
    ),
    "verify": LazyCommand(
        "kakeya_fleet.node.cli.answers.verify", "Prove that the proposer changes no token."
    ),
    "bench": LazyCommand(
        "kakeya_fleet.node.cli.answers.bench", "Measure with and without the proposer."
    ),
    "hostfile": LazyCommand(
        "kakeya_fleet.node.cli.fleet.hostfile", "Write a group's hostfile from the cards."
    ),
    "codecs": LazyCommand(
        "kakeya_fleet.node.cli.fleet.codecs",
        "Show what a node measured of the codecs that pack sessions.",
    ),
    "limits": LazyCommand(
        "kakeya_fleet.node.cli.fleet.limits", "Show what others may have of a node at once."
    ),
    "doctor": LazyCommand(
        "kakeya_fleet.node.cli.doctor.command", "Find what is wrong here and in the fleet."
    ),
    "logs": LazyCommand(
        "kakeya_fleet.node.cli.logs.command", "Show a node's events, and its log where it is."
    ),
    "trace": LazyCommand(
        "kakeya_fleet.node.cli.trace.command", "Show a request's way through the fleet."
    ),
    "load": LazyCommand(
        "kakeya_fleet.node.cli.fleet.load", "Have a node that runs serve one more model."
    ),
    "unload": LazyCommand(
        "kakeya_fleet.node.cli.fleet.unload", "Have a node that runs serve a model no more."
    ),
    "pull": LazyCommand(
        "kakeya_fleet.node.cli.fleet.pull", "Have a node copy a model from others that have it."
    ),
    "rm": LazyCommand(
        "kakeya_fleet.node.cli.fleet.remove", "Remove from a node's disk what was pulled."
    ),
    "models": LazyCommand(
        "kakeya_fleet.node.cli.fleet.models", "Show the models converted or pulled; clear them."
    ),
    "leave": LazyCommand(
        "kakeya_fleet.node.cli.fleet.leave", "Drain a node and make it leave the fleet."
    ),
    "service": LazyCommand(
        "kakeya_fleet.node.cli.service.command", "Have this machine keep a node running."
    ),
    "upgrade": LazyCommand(
        "kakeya_fleet.node.cli.upgrade.command", "Install a newer version, restart with drain."
    ),
    "completion": LazyCommand(
        "kakeya_fleet.node.cli.asking.completion", "Print a shell's completion script."
    ),
}

DESCRIPTION = """One fleet out of the machines on your desk.

A verifier decides every token; a proposer on another machine guesses ahead.
With or without the proposer, the answer is the same, bit for bit.
"""

EXAMPLE = """\b
Example:
  fleet run smollm2
or, in three terminals:
  fleet join --name mini-1 --serve verifier=tiny
  fleet join --name mini-2 --serve proposer=ngram --peer 127.0.0.1:7600
  fleet generate --verifier tiny "def parse_header(line):"

\b
Exit codes:
  0 done   1 a negative result   2 wrong usage
  3 an error of the fleet or of this machine
  130 stopped with Ctrl-C   141 nobody reads the output
"""


def fleet_group() -> LazyGroup:
    """The group of all commands."""
    return LazyGroup(
        name="fleet",
        help=DESCRIPTION,
        epilog=EXAMPLE,
        commands_by_name=COMMANDS,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        params=[
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_version,
                help="Show the version and exit.",
            )
        ],
    )


def dispatch(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit code. Raises KeyboardInterrupt on Ctrl-C."""
    as_json = "--json" in _before_double_dash(arguments)
    try:
        # Not click's own `main`: it answers a closed pipe with exit code 1.
        group = fleet_group()
        _require_text(arguments)
        with group.make_context("fleet", list(arguments)) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as missing:
        click.echo(missing.ctx.get_help() if missing.ctx else missing.message)
        return int(ExitCode.USAGE)
    except click.UsageError as usage:
        return report(_usage_failure(usage), as_json=as_json)
    except click.ClickException as refused:
        failure = CommandFailed("USAGE", refused.format_message(), exit_code=ExitCode.USAGE)
        return report(failure, as_json=as_json)
    except CommandFailed as failure:
        return report(failure, as_json=as_json)
    except click.Abort:
        return int(ExitCode.INTERRUPTED)
    return result if isinstance(result, int) else int(ExitCode.OK)


def _require_text(arguments: Sequence[str]) -> None:
    """Raises UsageError for bytes that are no characters; Python stands surrogates for them."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            raise click.UsageError(f"{argument!a} is not {sys.getfilesystemencoding()} text")


def _usage_failure(usage: click.UsageError) -> CommandFailed:
    path = usage.ctx.command_path if usage.ctx else "fleet"
    # click lists what can be chosen on lines of their own.
    message = " ".join(usage.format_message().split())
    if "--help`" not in message and "did you mean" not in message:
        message = f"{message.rstrip('.')}; see `{path} --help`."
    return CommandFailed("USAGE", message, exit_code=ExitCode.USAGE)


def _before_double_dash(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _show_version(context: click.Context, _option: click.Parameter, value: object) -> None:
    if not value:
        return
    from importlib.metadata import version

    sys.stdout.write(f"fleet {version('kakeya-fleet')}\n")
    context.exit()

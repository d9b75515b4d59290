"""`fleet key`: applications on machines that are no members come in by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.members.known_keys import complete_keys
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

EXAMPLE = """\b
Example:
  fleet key create notebook
  fleet key create grafana --scope observe
  fleet key list
  fleet key revoke notebook
"""
CREATE_EXAMPLE = """\b
Example:
  fleet key create notebook
  fleet key create agent --sessions 8 --generations 2 --tokens-per-minute 20000 --expires 30
  fleet key create grafana --scope observe --json | jq -r .key
"""
LIST_EXAMPLE = """\b
Example:
  fleet key list
  fleet key list --json | jq '.keys[] | select(.revoked | not)'
"""
REVOKE_EXAMPLE = """\b
Example:
  fleet key revoke notebook
  fleet key revoke 3f9a1c0b2d4e5f60 --json
"""
COUNT = click.IntRange(1, 1 << 30)


@click.group("key", epilog=EXAMPLE)
def command() -> None:
    """Make, show and revoke keys of applications on machines that are no members.

    Whoever shows a key may do what it is for at every node of the fleet, and sees its own
    sessions alone. Each command has --json.
    """


@command.command("create", epilog=CREATE_EXAMPLE)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["generate", "observe"]),
    multiple=True,
    help="What it is for, generate if nothing is said: sessions, plans and models; or observe: "
    "the fleet, its metrics, and how much all sessions do. May be given twice.",
)
@click.option("--sessions", type=COUNT, help="Sessions that it may have on a node at once.")
@click.option(
    "--tokens-per-minute",
    type=COUNT,
    help="Tokens that it may append and generate on a node in a minute.",
)
@click.option("--generations", type=COUNT, help="Generations that it may run on a node at once.")
@click.option(
    "--expires", type=click.FloatRange(0, 36_500, min_open=True), metavar="DAYS", help="Its life."
)
@node_option
@json_option
def create(
    name: str,
    scopes: tuple[str, ...],
    sessions: int | None,
    tokens_per_minute: int | None,
    generations: int | None,
    expires: float | None,
    node: str | None,
    *,
    as_json: bool,
) -> int:
    """Make a key called NAME, and print it: this once, for nobody keeps it.

    It works at every node within seconds. Limits are those of each node by itself; without one
    the key has what everybody has. Works on a keeper.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)
    request = trust_pb2.CreateKeyRequest(
        name=name,
        scopes=[_number(scope) for scope in dict.fromkeys(scopes)],
        session_limit=sessions or 0,
        tokens_per_minute=tokens_per_minute or 0,
        generation_limit=generations or 0,
        valid_seconds=(expires or 0) * 86_400,
    )

    async def make(stub: TrustServiceAsyncStub) -> trust_pb2.CreateKeyResponse:
        return await stub.CreateKey(request, metadata=asked.metadata, timeout=SECONDS)

    answer = ask_trust(asked, make)
    if as_json:
        write_json(
            {
                "event": "key_made",
                "key": answer.key,
                **facts(answer.made),
                "told_count": answer.told_count,
            }
        )
        return ExitCode.OK
    say(answer.key)
    told = [
        f"{answer.made.name} ({answer.made.key_id}) is shown this once.",
        "Give clients the fleet's certificate as well: fleet certificate > fleet.pem",
    ]
    for line in told:
        click.echo(line, err=True)
    return ExitCode.OK


@command.command("list", epilog=LIST_EXAMPLE)
@node_option
@json_option
def show(node: str | None, *, as_json: bool) -> int:
    """Show the fleet's keys, those in force first; never the keys themselves."""
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def look(stub: TrustServiceAsyncStub) -> trust_pb2.ListKeysResponse:
        request = trust_pb2.ListKeysRequest()
        return await stub.ListKeys(request, metadata=asked.metadata, timeout=SECONDS)

    keys = ask_trust(asked, look).keys
    if as_json:
        write_json({"keys": [facts(each) for each in keys]})
    elif keys:
        _table(keys)
    else:
        say("no key was ever made: fleet key create NAME")
    return ExitCode.OK


@command.command("revoke", epilog=REVOKE_EXAMPLE)
@click.argument("wanted", metavar="NAME|ID", shell_complete=complete_keys)
@node_option
@json_option
def revoke(wanted: str, node: str | None, *, as_json: bool) -> int:
    """Put a key out of force, for good, by its name or id; what it has open ends.

    Every member is told at once. Works on a keeper.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned, told_text
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def put_out(stub: TrustServiceAsyncStub) -> trust_pb2.RevokeKeyResponse:
        request = trust_pb2.RevokeKeyRequest(key=wanted)
        return await stub.RevokeKey(request, metadata=asked.metadata, timeout=SECONDS)

    answer = ask_trust(asked, put_out)
    if as_json:
        write_json(
            {"event": "key_revoked", **facts(answer.revoked), "told_count": answer.told_count}
        )
    else:
        key, told = answer.revoked, told_text(answer.told_count)
        say(f"the key {key.name} ({key.key_id}) is revoked; {told}")
    return ExitCode.OK


def facts(key: trust_pb2.ApplicationKey) -> dict[str, object]:
    """A key as JSON; 0 stands for no limit, and for no end."""
    return {
        "key_id": key.key_id,
        "name": key.name,
        "scopes": _words(key),
        "session_limit": key.session_limit,
        "tokens_per_minute": key.tokens_per_minute,
        "generation_limit": key.generation_limit,
        "expires_at_unix": key.expires_at_unix,
        "made_at_unix": key.made_at_unix,
        "revoked": key.revoked,
        "expired": key.expired,
    }


def _number(scope: str) -> trust_pb2.KeyScope.ValueType:
    from kakeya.v1 import trust_pb2

    return trust_pb2.KeyScope.Value(f"KEY_SCOPE_{scope.upper()}")


def _words(key: trust_pb2.ApplicationKey) -> list[str]:
    from kakeya.v1 import trust_pb2

    names = (trust_pb2.KeyScope.Name(each) for each in key.scopes)
    return [name.removeprefix("KEY_SCOPE_").lower() for name in names]


def _table(keys: Iterable[trust_pb2.ApplicationKey]) -> None:
    import sys
    import time

    from kakeya_fleet.node.cli.terminal.output import print_table
    from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

    def limit(count: int) -> Cell:
        return Cell(f"{count:,}" if count else "-")

    def standing(key: trust_pb2.ApplicationKey) -> str:
        if key.revoked:
            return "revoked"
        if key.expired:
            return "over"
        if not key.expires_at_unix:
            return "in force"
        return f"{(key.expires_at_unix - time.time()) / 86_400:.1f} days"

    rows: list[Row] = [
        [
            Cell(each.name, "bold"),
            Cell(each.key_id, "dim"),
            Cell(", ".join(_words(each))),
            Cell(standing(each)),
            limit(each.session_limit),
            limit(each.generation_limit),
            limit(each.tokens_per_minute),
        ]
        for each in keys
    ]
    names = ("key", "id", "for", "is", "sessions", "generations", "tokens/min")
    print_table([Column(name) for name in names], rows, stream=sys.stdout, title="keys")

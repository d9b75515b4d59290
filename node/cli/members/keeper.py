"""`fleet keeper add`: another node lets machines in, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import NodeStatus
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

EXAMPLE = """\b
Example:
  fleet keeper add mini-2
"""


@click.group("keeper", epilog=EXAMPLE)
def command() -> None:
    """Have other nodes keep the fleet, too: a fleet lives on with any of its keepers.

    Each command has --json.
    """


@command.command("add", epilog=EXAMPLE)
@click.argument("member", metavar="NODE")
@node_option
@json_option
def add(member: str, node: str | None, *, as_json: bool) -> int:
    """Have NODE let machines in, put them out and renew certificates, as this keeper does.

    Its key is made on its own machine, and leaves it never.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.named_member import member_called
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def name_keeper(stub: TrustServiceAsyncStub) -> tuple[NodeStatus, str]:
        found = await member_called(asked.address, member)
        request = trust_pb2.AddKeeperRequest(node_id=found.node_id)
        answer = await stub.AddKeeper(request, metadata=asked.metadata, timeout=SECONDS)
        return found, answer.authority_id

    found, authority = ask_trust(asked, name_keeper)
    if as_json:
        write_json(
            {
                "event": "keeper_added",
                "node_id": found.node_id,
                "name": found.name,
                "authority_id": authority,
            }
        )
    else:
        say(f"{found.name} is a keeper now")
    return ExitCode.OK

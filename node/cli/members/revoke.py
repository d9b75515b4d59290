"""`fleet revoke`: a machine is put out of the fleet, for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import NodeStatus
    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

EXAMPLE = """\b
Example:
  fleet revoke mini-3
  fleet revoke 3f9a1c --json
"""


@click.command("revoke", epilog=EXAMPLE)
@click.argument("member", metavar="NODE")
@node_option
@json_option
def command(member: str, node: str | None, *, as_json: bool) -> int:
    """Put NODE out of the fleet, by its name or the beginning of its id.

    Every member is told at once; whoever is told ends its calls and refuses all further ones.
    The machine can join again only as a new node, with a new code. Works on a keeper.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.named_member import member_called
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned, told_text
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def revoke(
        stub: TrustServiceAsyncStub,
    ) -> tuple[NodeStatus, trust_pb2.RevokeResponse]:
        found = await member_called(asked.address, member)
        request = trust_pb2.RevokeRequest(node_id=found.node_id)
        return found, await stub.Revoke(request, metadata=asked.metadata, timeout=SECONDS)

    found, answer = ask_trust(asked, revoke)
    if as_json:
        write_json(
            {
                "event": "revoked",
                "node_id": found.node_id,
                "name": found.name,
                "told_count": answer.told_count,
            }
        )
    else:
        say(f"{found.name} is put out of the fleet; {told_text(answer.told_count)}")
    return ExitCode.OK

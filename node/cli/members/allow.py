"""`fleet allow`: which roles a member may serve for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import NodeStatus
    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

ROLES = tuple(role.value for role in Role)
EVERY, NONE = "all", "none"

EXAMPLE = """\b
Example:
  fleet allow mini-3 proposer            # drafts, and decides no token for others
  fleet allow mini-3 proposer archive
  fleet allow mini-3 none
  fleet allow mini-3 all                 # as every member at first
"""


@click.command("allow", epilog=EXAMPLE)
@click.argument("member", metavar="NODE")
@click.argument(
    "roles", metavar="ROLE...", nargs=-1, required=True, type=click.Choice((*ROLES, EVERY, NONE))
)
@node_option
@json_option
def command(member: str, roles: tuple[str, ...], node: str | None, *, as_json: bool) -> int:
    """Say which roles NODE may serve for others: verifier, proposer, archive; all or none.

    Tokens go to no node in a role that it may not serve: no plan pairs it, no redirect and no
    resumed session goes there, and drafts that it makes end. Programs of its own machine use it
    as before. Works on a keeper; `fleet members` shows who may serve what.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.named_member import member_called
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned, told_text
    from kakeya_fleet.node.cli.terminal.output import say, write_json
    from kakeya_fleet.node.trust import statement_wire

    if len(roles) > 1 and {EVERY, NONE} & set(roles):
        raise click.UsageError("`all` and `none` stand alone.")
    asked = owned(node)
    named = [role for role in ROLES if role in roles]

    async def allow(
        stub: TrustServiceAsyncStub,
    ) -> tuple[NodeStatus, trust_pb2.AllowRolesResponse]:
        found = await member_called(asked.address, member)
        request = trust_pb2.AllowRolesRequest(
            node_id=found.node_id,
            roles=[statement_wire.ROLES[Role(role)] for role in named],
            any=EVERY in roles,
        )
        return found, await stub.AllowRoles(request, metadata=asked.metadata, timeout=SECONDS)

    found, answer = ask_trust(asked, allow)
    if as_json:
        write_json(
            {
                "event": "roles_allowed",
                "node_id": found.node_id,
                "name": found.name,
                "roles": list(ROLES) if EVERY in roles else named,
                "told_count": answer.told_count,
            }
        )
    else:
        may = "every role" if EVERY in roles else " and ".join(named) or "no role"
        say(f"{found.name} may serve others in {may}; {told_text(answer.told_count)}")
    return ExitCode.OK

"""`fleet members`: who is in the fleet, who keeps it, and who was put out."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.members.allow import ROLES
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya import NodeStatus
    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

COLUMNS = ("node", "id", "liveness", "is", "may serve", "certificate", "address")

EXAMPLE = """\b
Example:
  fleet members
  fleet members --json | jq '.members[] | select(.is_keeper)'
"""


@click.command("members", epilog=EXAMPLE)
@node_option
@json_option
def command(node: str | None, *, as_json: bool) -> int:
    """Show the members of the fleet of this machine's node, and its keepers.

    Keepers let machines in, put them out, and renew certificates, which are good for a week.
    """
    from kakeya.generated import wire
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.asking.access import client_of
    from kakeya_fleet.node.cli.asking.certificate_ends import ends_text, ends_unix, first_end
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def look(
        stub: TrustServiceAsyncStub,
    ) -> tuple[trust_pb2.GetTrustResponse, tuple[NodeStatus, ...]]:
        found = await stub.GetTrust(trust_pb2.GetTrustRequest(), timeout=SECONDS)
        async with client_of(asked.address) as client:
            return found, await client.fleet.nodes()

    trust, nodes = ask_trust(asked, look)
    keepers = {keeper.node_id for keeper in trust.keepers}
    allowed = {
        each.node_id: [wire.role(role).value for role in each.roles] for each in trust.allowed_roles
    }
    if as_json:
        write_json(
            {
                "fleet_name": trust.fleet_name,
                "fleet_id": trust.fleet_id,
                "certificate_ends_unix": trust.certificate_ends_unix,
                "members": [
                    {
                        "name": each.name,
                        "node_id": each.node_id,
                        "liveness": each.liveness.value,
                        "is_keeper": each.node_id in keepers,
                        "allowed_roles": allowed.get(each.node_id, sorted(ROLES)),
                        "address": each.address,
                        "certificate_ends_unix": ends_unix(each),
                    }
                    for each in nodes
                ],
                "revoked_node_ids": list(trust.revoked_node_ids),
            }
        )
        return ExitCode.OK
    _table(trust.fleet_name, nodes, keepers, allowed)
    first = first_end(nodes)
    if first is not None and not _is_kept(nodes, keepers):
        text = ends_text(first[1], time.time())
        say(
            "no keeper answers: the fleet runs on, nobody is let in, and no certificate is "
            f"renewed; {first[0].name}'s {text}, before all others: start a keeper"
        )
    if len(keepers) < 2:
        say("one keeper alone: `fleet keeper add NODE` makes another, should it be lost")
    for node_id in trust.revoked_node_ids:
        say(f"put out: {node_id[:12]}")
    return ExitCode.OK


def _is_kept(nodes: tuple[NodeStatus, ...], keepers: set[str]) -> bool:
    from kakeya import Liveness

    return any(each.liveness is Liveness.ALIVE and each.node_id in keepers for each in nodes)


def _table(
    fleet_name: str,
    nodes: tuple[NodeStatus, ...],
    keepers: set[str],
    allowed: Mapping[str, Sequence[str]],
) -> None:
    from kakeya_fleet.node.cli.terminal.output import print_table
    from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

    rows: list[Row] = [
        [
            Cell(each.name, "bold"),
            Cell(each.node_id[:12], "dim"),
            Cell(each.liveness.value),
            Cell("keeper" if each.node_id in keepers else "member"),
            Cell(", ".join(allowed.get(each.node_id, ("all",))) or "none"),
            Cell(_certificate(each), "dim"),
            Cell(each.address),
        ]
        for each in nodes
    ]
    columns = [Column(name) for name in COLUMNS]
    print_table(columns, rows, stream=sys.stdout, title=f"members of {fleet_name}")


def _certificate(node: NodeStatus) -> str:
    from kakeya_fleet.node.cli.asking.certificate_ends import ends_text, ends_unix

    ends = ends_unix(node)
    return "-" if ends is None else ends_text(ends, time.time())

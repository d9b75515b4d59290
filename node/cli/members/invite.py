"""`fleet invite`: opens the door for one machine, for ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya.v1 import trust_pb2
    from kakeya.v1.trust_pb2_grpc import TrustServiceAsyncStub

EXAMPLE = """\b
Example:
  fleet invite
  fleet invite --json | jq -r .short_code
"""


@click.command("invite", epilog=EXAMPLE)
@node_option
@json_option
def command(node: str | None, *, as_json: bool) -> int:
    """Open the door of the fleet for one machine, and print the code that it joins by.

    The short code is typed on the other machine, which finds this one on the network; the long
    one says where to go. Each is good once, for ten minutes and three wrong codes. Works on a
    keeper.
    """
    from kakeya.v1 import trust_pb2
    from kakeya_fleet.node.cli.members.owned_node import SECONDS, ask_trust, owned
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    asked = owned(node)

    async def invite(stub: TrustServiceAsyncStub) -> trust_pb2.InviteResponse:
        request = trust_pb2.InviteRequest()
        return await stub.Invite(request, metadata=asked.metadata, timeout=SECONDS)

    answer = ask_trust(asked, invite)
    if as_json:
        write_json(
            {
                "short_code": answer.short_code,
                "long_codes": list(answer.long_codes),
                "valid_seconds": answer.valid_seconds,
                "tries": answer.tries,
                "multicast_fault": answer.multicast_fault,
            }
        )
        return ExitCode.OK
    minutes = answer.valid_seconds / 60
    say(f"On the other machine, within {minutes:.0f} minutes:")
    if answer.multicast_fault:
        say(f"(by its address alone: {answer.multicast_fault})")
    else:
        say(f"  fleet join {answer.short_code}")
        say("or, where that finds nobody:")
    for code in answer.long_codes:
        say(f"  fleet join '{code}'")
    return ExitCode.OK

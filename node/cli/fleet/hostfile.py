"""`fleet hostfile`: a group's hostfile for `mlx.launch` and `fleet join --group`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_nodes
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kakeya import AsyncClient, NodeStatus
    from kakeya_fleet.fleet.hostfiles.from_cards import HostfileRequest, Member
    from kakeya_fleet.fleet.hostfiles.hostfile import Hostfile

EXAMPLE = """\b
Example:
  fleet hostfile --nodes mini-1,mini-2 --ssh-user me --output minis.json
  fleet hostfile --backend jaccl --nodes mini-1,mini-2 \\
    --rdma mini-1:mini-2=rdma_en2 --rdma mini-2:mini-1=rdma_en2
  fleet hostfile --backend gloo --nodes box --ranks-per-node 2
"""


@click.command("hostfile", epilog=EXAMPLE)
@click.option(
    "--nodes",
    shell_complete=complete_nodes,
    metavar="A,B,...",
    default="",
    help="Nodes by name or the start of their ids, rank 0 first. Default: all live nodes with a "
    "ring address, by name.",
)
@click.option(
    "--backend",
    type=click.Choice(["ring", "jaccl", "jaccl-ring", "gloo"]),
    default="ring",
    show_default=True,
    help="ring: mlx over TCP; jaccl: mlx over Thunderbolt 5; gloo: torch.",
)
@click.option(
    "--ranks-per-node",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    help="Ranks on each node.",
)
@click.option("--ssh-user", metavar="USER", default="", help="User of ssh. Default: ssh's own.")
@click.option(
    "--rdma",
    multiple=True,
    metavar="A:B=DEVICE",
    help="With jaccl: the device of node A towards node B. Repeatable.",
)
@click.option(
    "--env",
    "envs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable for every rank. Repeatable.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it. Default: stdout.",
)
@node_option
@json_option
def command(  # noqa: PLR0913 - one parameter an option
    nodes: str,
    backend: str,
    ranks_per_node: int,
    ssh_user: str,
    rdma: Sequence[str],
    envs: Sequence[str],
    output: Path | None,
    node: str | None,
    *,
    as_json: bool,
) -> int:
    """Write the hostfile of a group from the fleet's cards.

    One entry is one rank. `mlx.launch --hostfile FILE` takes it, and `fleet join
    --group FILE`. With --json it is one line.
    """
    from kakeya_fleet.fleet.hostfiles.from_cards import (
        HostfileRequest,
        chosen_members,
        make_hostfile,
    )
    from kakeya_fleet.fleet.hostfiles.hostfile import GroupBackend, HostfileError
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.terminal.output import note

    request = HostfileRequest(
        backend=GroupBackend(backend),
        nodes=tuple(name.strip() for name in nodes.split(",")) if nodes else (),
        ranks_per_node=ranks_per_node,
        ssh_user=ssh_user,
        envs=tuple(envs),
        rdma=dict(_device(text) for text in rdma),
    )

    async def run(client: AsyncClient) -> int:
        members = [_member(status) for status in await client.fleet.nodes()]
        try:
            hostfile = make_hostfile(members, request)
            ranks = chosen_members(members, request.nodes)
        except HostfileError as error:
            raise CommandFailed(error.reason, f"{error}.", metadata=error.metadata) from error
        _write(hostfile, output, as_json=as_json)
        note(_summary(ranks, members, request))
        return ExitCode.OK

    return ask(node, run)


def _device(text: str) -> tuple[tuple[str, str], str]:
    """((node, other), device) of `A:B=DEVICE`."""
    way, _, device = text.partition("=")
    one, _, other = way.partition(":")
    if not (one and other and device):
        raise click.UsageError(f"--rdma {text!r} is not A:B=DEVICE, such as a:b=rdma_en2")
    return (one, other), device


def _member(status: NodeStatus) -> Member:
    from kakeya_fleet.fleet.hostfiles.from_cards import Member

    return Member(
        node_id=status.node_id,
        name=status.name,
        liveness=status.liveness.value,
        address=status.address,
        ring_address=status.card.ring_address if status.card else "",
    )


def _write(hostfile: Hostfile, output: Path | None, *, as_json: bool) -> None:
    import json

    from kakeya_fleet.fleet.hostfiles.hostfile import hostfile_text
    from kakeya_fleet.node.cli.terminal.output import say

    text = hostfile_text(hostfile)
    if as_json:
        text = json.dumps(json.loads(text)) + "\n"
    if output is None:
        say(text.rstrip("\n"))
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise CommandFailed("HOSTFILE_UNWRITABLE", f"{output}: {error.strerror}.") from error


def _summary(ranks: Sequence[Member], members: Sequence[Member], request: HostfileRequest) -> str:
    """`ranks 0 to 1: mini-1; rank 2...`, and which nodes with a ring are not alive."""
    words: list[str] = []
    for index, member in enumerate(ranks):
        first = index * request.ranks_per_node
        last = first + request.ranks_per_node - 1
        numbers = f"rank {first}" if first == last else f"ranks {first} to {last}"
        words.append(f"{numbers} on {member.name}")
    left = [
        f"{member.name} is {member.liveness}"
        for member in members
        if not request.nodes and member.ring_address and member.liveness != "alive"
    ]
    return "; ".join([", ".join(words), *(["left out: " + ", ".join(left)] if left else [])])
